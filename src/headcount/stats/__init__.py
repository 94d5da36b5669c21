"""Intervals and tests: how sure a mean, a difference or a ratio is."""

from headcount.stats.estimate import (
    Estimate,
    Interval,
    combine,
    constant,
    mean_of,
    simultaneous,
    unknown_interval,
)
from headcount.stats.exact import common_by_chance, mcnemar, rank_probability
from headcount.stats.intervals import (
    accuracy_interval,
    bootstrap,
    heads_with_effect,
    paired_difference,
    percentile_interval,
    ratio_of_means,
    share_interval,
    wilson,
)
from headcount.stats.resampling import Clusters, Resampling, cells

__all__ = [
    "Clusters",
    "Estimate",
    "Interval",
    "Resampling",
    "accuracy_interval",
    "bootstrap",
    "cells",
    "combine",
    "common_by_chance",
    "constant",
    "heads_with_effect",
    "mcnemar",
    "mean_of",
    "paired_difference",
    "percentile_interval",
    "rank_probability",
    "ratio_of_means",
    "share_interval",
    "simultaneous",
    "unknown_interval",
    "wilson",
]
