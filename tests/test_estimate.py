"""Resamples that divide by nothing give no interval, and no warning."""

from __future__ import annotations

import warnings

import numpy as np

from headcount.stats import Estimate


def test_few_items_give_an_unknown_interval_without_a_warning() -> None:
    spans = np.array([0.0, 0.0, *np.linspace(0.2, 0.6, 198)])  # two of 200 resamples have no span
    high = Estimate(0.4, spans, n=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        share = Estimate(0.2, np.full(200, 0.2), n=3).scaled(0.0, high)
        assert np.isinf(share.samples).sum() == 2
        found = share.interval
        assert found.low < found.value < found.high < np.inf
        many = Estimate(0.2, np.where(np.arange(200) < 20, np.inf, 0.2), n=3).interval
    assert np.isnan([many.low, many.high]).all()
