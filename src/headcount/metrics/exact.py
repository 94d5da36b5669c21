"""Exact match: the accuracy of written answers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from headcount.metrics.normalise import normalise
from headcount.metrics.text import TextMetric, Written


def is_match(text: str, gold: str) -> bool:
    """Whether `text` is the answer `gold`, all of it and nothing besides.

    >>> is_match("The Nile.", "nile"), is_match("56.0", "56"), is_match("560", "56")
    (True, True, False)
    """
    return normalise(text) == normalise(gold)


def _exact_match(written: Written) -> Float[np.ndarray, "texts"]:
    pairs = zip(written.texts, written.golds, strict=True)
    return np.array([is_match(text, gold) for text, gold in pairs], dtype=float)


EXACT_MATCH = TextMetric("exact_match", "Accuracy (exact match)", _exact_match, binary=True)
