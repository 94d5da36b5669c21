"""Panels of masked-heads whose curves are made by hand, so that we know what must come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from headcount.studies.masked_heads.panels import COLUMNS, FunctionPanel, panels_of
from headcount.tasks import FUNCTIONS
from headcount.value_table import ValueTable

COUNTS = (0, 4, 8, 16, 32)
TOTAL = 256  # of which the counts are the published shares
ITEMS, TEMPLATES, DRAWS = 200, 20, 12


@dataclass(frozen=True)
class Function:
    """The share of right answers at each count; `comet` is the second metric under TopK."""

    top: Sequence[float]
    random: Sequence[float]
    comet: Sequence[float] = ()
    matched: Sequence[float] = ()
    floors: tuple[float, float] = (0.0, 0.0)
    chance: float | None = None
    more: Mapping[str, Sequence[float]] = field(default_factory=dict)  # further series


def made(
    functions: Mapping[str, Function],
    *,
    similarity: str = "comet",
    counts: Sequence[int] = COUNTS,
    total: int = TOTAL,
    draws: int = DRAWS,
) -> tuple[list[FunctionPanel], dict[str, Any]]:
    """Panels of these functions, and the facts of their study.

    Items are right or wrong by chance, and independent of each other.
    """
    values = ValueTable(COLUMNS, ("model", "task"))
    for key, function in functions.items():
        about = {"model": "made", "task": key}
        names = [(f"{key}-{i}", f"t{i % TEMPLATES}", f"c{i}") for i in range(ITEMS)]
        values.name_examples(names, **about)
        rng = np.random.default_rng(crc32(key.encode()))
        series = {
            "top": function.top,
            "random": function.random,
            "matched": function.matched or function.random,
            **function.more,
        }
        second = function.comet or [min(1.0, share + 0.15) for share in function.top]
        for metric, by_series in (
            ("exact_match", series),
            (similarity, {**series, "top": second}),
        ):
            for name, shares in by_series.items():
                rows = 1 if name == "top" else draws
                for count, share in zip(counts, shares, strict=True):
                    table = (rng.random((rows, ITEMS)) < share).astype(float)
                    if count or name == "top":
                        how = {"ranking": "attribution", "metric": metric}
                        values.put(table, **about, **how, series=name, count=count)
    facts = {
        "model": "made",
        "total": total,
        "functions": {key: FUNCTIONS[key].name for key in functions},
        "metrics": [
            {"key": "exact_match", "name": "Accuracy (exact match)", "binary": True},
            {"key": similarity, "name": similarity.upper(), "binary": False},
        ],
        "floors": {
            key: dict(zip(("exact_match", similarity), function.floors, strict=True))
            for key, function in functions.items()
        },
        "chance": {
            key: {"level": function.chance, "how": "by hand"}
            for key, function in functions.items()
            if function.chance is not None
        },
        "unmatched": {},
    }
    return panels_of(values, facts), facts
