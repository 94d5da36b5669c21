"""Metrics: one number per example, from a model's logits or from the text that it writes.

METRICS use the logits at the target's positions, TEXT_METRICS the written answer.
"""

from __future__ import annotations

from headcount.errors import HeadcountError, unknown
from headcount.metrics.comet import COMET, comet_metric
from headcount.metrics.logits import LOGIT_METRICS, Metric, Scored
from headcount.metrics.maths import MATHS, PUBLISHED_MATHS
from headcount.metrics.published_accuracy import PUBLISHED_ACCURACY
from headcount.metrics.similarity import GOLD_SIMILARITY, SIMILARITY
from headcount.metrics.text import EXACT_MATCH, TextMetric, Written, floor, shuffled

__all__ = [
    "METRICS",
    "TEXT_METRICS",
    "Metric",
    "Scored",
    "TextMetric",
    "Written",
    "comet_metric",
    "floor",
    "get_logit_metric",
    "get_metric",
    "shuffled",
]

METRICS: dict[str, Metric] = {metric.key: metric for metric in LOGIT_METRICS}
_WORDS = (EXACT_MATCH, PUBLISHED_ACCURACY, SIMILARITY, GOLD_SIMILARITY, COMET)
TEXT_METRICS: dict[str, TextMetric] = {
    metric.key: metric for metric in (*_WORDS, MATHS, PUBLISHED_MATHS)
}


def get_metric(metric: str | Metric | TextMetric) -> Metric | TextMetric:
    """The metric of this name, or the metric itself.

    >>> get_metric("accuracy").name, get_metric("exact_match").name
    ('Accuracy', 'Accuracy (exact match)')
    """
    if isinstance(metric, Metric | TextMetric):
        return metric
    if metric in METRICS:
        return METRICS[metric]
    if metric not in TEXT_METRICS:
        raise unknown("metric", metric, [*METRICS, *TEXT_METRICS])
    # COMET's model may have been changed in the environment, and the metric is named after it.
    return comet_metric() if metric == COMET.key else TEXT_METRICS[metric]


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
            f"forcing: use one of {', '.join(METRICS)}."
        )
    return chosen
