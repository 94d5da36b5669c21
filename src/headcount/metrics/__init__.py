"""Metrics: one number per example, from a model's logits or from the text that it writes.

A `Metric` reads the logits at the target's positions, a `TextMetric` the written answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headcount.errors import HeadcountError
from headcount.metrics.comet import COMET, comet_metric
from headcount.metrics.logits import LOGIT_METRICS, Metric, Scored
from headcount.metrics.maths import MATHS, PUBLISHED_MATHS
from headcount.metrics.published_accuracy import PUBLISHED_ACCURACY
from headcount.metrics.similarity import GOLD_SIMILARITY, SIMILARITY
from headcount.metrics.text import EXACT_MATCH, TextMetric, Written, floor, shuffled
from headcount.registry import Registry

__all__ = [
    "METRICS",
    "Metric",
    "Scored",
    "TextMetric",
    "Written",
    "comet_metric",
    "floor",
    "get_logit_metric",
    "get_metric",
    "logit_metrics",
    "shuffled",
]


def _make(key: str, name: str, function: Callable[..., Any], **facts: Any) -> Metric | TextMetric:
    kind = TextMetric if facts.pop("text", False) else Metric
    return kind(key, name, function, **facts)


_WORDS = (EXACT_MATCH, PUBLISHED_ACCURACY, SIMILARITY, GOLD_SIMILARITY, COMET)
_OURS: tuple[Metric | TextMetric, ...] = (*LOGIT_METRICS, *_WORDS, MATHS, PUBLISHED_MATHS)
METRICS: Registry[Metric | TextMetric] = Registry("metric", _make, {m.key: m for m in _OURS})


def get_metric(metric: str | Metric | TextMetric) -> Metric | TextMetric:
    """The metric of this name, or the metric itself.

    >>> get_metric("accuracy").name, get_metric("exact_match").name
    ('Accuracy', 'Accuracy (exact match)')
    """
    if isinstance(metric, Metric | TextMetric):
        return metric
    if not isinstance(metric, str):
        raise HeadcountError(
            f"A metric is a name, such as accuracy, or a Metric, not a {type(metric).__name__}: "
            "the decorator headcount.metric makes one of a function."
        )
    # COMET's model may have been changed in the environment, and the metric is named after it.
    return comet_metric() if metric == COMET.key else METRICS[metric]


def logit_metrics() -> list[Metric]:
    """All metrics that are read off logits."""
    return [metric for metric in METRICS.values() if isinstance(metric, Metric)]


def get_logit_metric(metric: str | Metric | TextMetric) -> Metric:
    """The metric of this name, which must use logits, as rankings by derivative need it.

    >>> get_logit_metric("similarity")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    headcount.errors.HeadcountError: The metric "similarity" scores written texts, but ...
    """
    chosen = get_metric(metric)
    if isinstance(chosen, TextMetric):
        raise HeadcountError(
            f'The metric "{chosen.key}" scores written texts, but this needs logits under teacher '
            f"forcing: use one of {', '.join(metric.key for metric in logit_metrics())}."
        )
    return chosen
