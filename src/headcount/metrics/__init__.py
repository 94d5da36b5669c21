"""Metrics: from the logits at the target's positions to one number per example."""

from __future__ import annotations

from headcount.errors import HeadcountError, did_you_mean
from headcount.metrics.metric import Metric, Scored
from headcount.metrics.scores import ACCURACY, CHOICE, LOGIT_DIFFERENCE, LOGPROB, LOGPROB_MEAN

__all__ = ["METRICS", "Metric", "Scored", "get_metric"]

METRICS: dict[str, Metric] = {
    metric.key: metric for metric in (LOGPROB, LOGPROB_MEAN, ACCURACY, LOGIT_DIFFERENCE, CHOICE)
}


def get_metric(metric: str | Metric) -> Metric:
    """The metric of this name, or the metric itself.

    >>> get_metric("accuracy").name
    'Accuracy'
    """
    if isinstance(metric, Metric):
        return metric
    if metric not in METRICS:
        raise HeadcountError(
            f'There is no metric "{metric}" (known: {", ".join(METRICS)}).'
            f"{did_you_mean(metric, METRICS)}"
        )
    return METRICS[metric]
