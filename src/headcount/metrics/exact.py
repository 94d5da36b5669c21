"""Exact match: the accuracy of written answers."""

from __future__ import annotations

from headcount.metrics.normalise import normalise
from headcount.metrics.text import TextMetric, by_rule


def is_match(text: str, gold: str) -> bool:
    """Whether `text` is the answer `gold`, all of it and nothing besides.

    >>> is_match("The Nile.", "nile"), is_match("56.0", "56"), is_match("560", "56")
    (True, True, False)
    """
    return normalise(text) == normalise(gold)


EXACT_MATCH = TextMetric("exact_match", "Accuracy (exact match)", by_rule(is_match), binary=True)
