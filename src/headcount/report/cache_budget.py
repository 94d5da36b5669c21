"""The smallest cache at equal score, from the values of a curve whose masked heads stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.errors import counted
from headcount.figures.style import SERIES
from headcount.stats import Resampling
from headcount.value_table import ValueTable

TITLE = "Cache at equal score"
LOST = 0.05  # of the effect of full attention in all heads: what an equal score may lose


def cache_at_equal_score(values: ValueTable, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each series the smallest measured cache from which on the score stays that of the model.

    A score counts as equal if its mean is at most 5 % of the effect below that of the whole model;
    the effect is what the whole model loses when all heads stream. The columns low and high are the
    95 % interval of what is lost, paired by example. Without the score of all heads streaming there
    is no table, and a series that never comes so far has no row.
    """
    cache = facts["cache"]
    points = {(about["series"], about["count"]): about for about in values.facts()}
    whole, none = ([series, count] for series, count in cache["ends"])
    if tuple(whole) not in points or tuple(none) not in points:
        return []
    items = Resampling(values.clusters(**points[tuple(whole)]))
    means = {point: float(values.get(**about).mean()) for point, about in points.items()}
    least = means[tuple(whole)] - LOST * (means[tuple(whole)] - means[tuple(none)])
    rows = []
    for series in dict.fromkeys(series for series, _ in points):
        shares = {count: cache["shares"][series][str(count)] for s, count in points if s == series}
        kept = None
        for count in sorted(shares, key=shares.__getitem__, reverse=True):
            if means[series, count] < least:
                break
            kept = count
        if kept is None:
            continue
        table = values.get(**points[series, kept])
        lost = items.difference(values.get(**points[tuple(whole)]), table).interval
        share, long = shares[kept], cache["long"][series][str(kept)]
        about = {name: points[series, kept][name] for name in ("model", "task", "series", "metric")}
        rows.append(
            {
                **about,
                "count": kept,
                "value": means[series, kept],
                "lost": lost.value,
                "low": lost.low,
                "high": lost.high,
                "tokens": cache["tokens"],
                "bytes": cache["bytes"] * share,
                "smaller": 1 / share,
                "long_tokens": cache["long_tokens"],
                "long_smaller": 1 / long,
            }
        )
    return rows


def in_words(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each series of that table."""
    return [
        f"{SERIES[row['series']]} with {counted(row['count'], 'head')} in full: the score is equal "
        f"(within {LOST:.0%} of the effect), and the cache of {row['tokens']:,} tokens is "
        f"{row['smaller']:.2f} times smaller, computed; that of {row['long_tokens']:,} would be "
        f"{row['long_smaller']:.2f} times."
        for row in rows
    ]
