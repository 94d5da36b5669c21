"""Made-up values of `token-insertion`: grades and internals of which we know what must come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.heads import HeadLayout
from headcount.studies.token_insertion.attention import AFFINE, EFFECTS
from headcount.studies.token_insertion.internals import QUERIES, Internals
from headcount.studies.token_insertion.panels import COLUMNS, PROBLEMS, PROMPTS, SHARED
from headcount.value_table import ValueTable

INSERTS = ("w/ Mless", "w/ Mful")
LAYOUT = HeadLayout((2, 3))
PROMPT_COUNT = 24
HEIGHT = 2.0  # of the peaks without an insert
# A uniform reader: what it receives falls with the position, and inserted tokens come early.
UNIFORM = {
    "peak": 1.6,
    "peak_without": HEIGHT,
    "timing": 0.95,
    "change": 0.1,
    "span": 1.4,
    "original": 1.0,
    "span_spread": 0.15,
    "original_spread": 0.45,
}


def internals(
    factor: float = 0.6,
    *,
    heads: Mapping[int, Mapping[str, float]] | None = None,
    choosing: Sequence[int] = (),
    requested: int = 1,
    **effects: float,
) -> Internals:
    """Two layers with two and three heads; `heads` gives some heads effects of their own.

    `peak` is what is left of the height of the peaks.
    """
    rng = np.random.default_rng(0)

    def some(effect: str, value: float) -> np.ndarray:
        table = np.full((PROMPT_COUNT, LAYOUT.total), value)
        for head, own in (heads or {}).items():
            table[:, head] = own.get(effect, value)
        return table * rng.uniform(0.97, 1.03, table.shape)

    values = {**UNIFORM, "span": 0.5, "span_spread": 0.2, "original_spread": 0.9, **effects}
    values["peak"] = HEIGHT * effects["peak"] if "peak" in effects else UNIFORM["peak"]
    assert set(values) == set(EFFECTS)
    keys = [(s, q, e) for s in INSERTS for q in QUERIES for e in EFFECTS]
    return Internals(
        model="m",
        layout=LAYOUT,
        layer=0,
        requested=requested,
        choosing=choosing,
        effects={(s, q, e): some(e, values[e]) for s, q, e in keys},
        uniform={(s, q, e): np.full(PROMPT_COUNT, UNIFORM[e]) for s, q, e in keys},
        affine={(s, name): some(name, factor) for s in INSERTS for name in AFFINE},
        activations={},
        drawn={},
        spans={},
        aligned=1,
    )


def result(
    grades: Mapping[str, Mapping[str, Any]],
    inside: Internals | None = None,
    chance: float | None = None,
) -> tuple[ValueTable, dict[str, Any]]:
    """The values and facts of models by their grades, by series; `inside` belongs to model m."""
    values = ValueTable(COLUMNS, SHARED)
    place = {"count": 55, "place": "between"}
    for model, by_series in grades.items():
        about: dict[str, Any] = {"model": model, "task": "task", "sample": PROBLEMS}
        n = np.atleast_2d(by_series["w/o"]).shape[1]
        values.name_examples([(f"p{i}", f"t{i % 20}", f"c{i}") for i in range(n)], **about)
        for series, right in by_series.items():
            own = {"series": series, "metric": "maths", "queries": "", "where": "", **place}
            values.put(right, **about, **own)
    if inside is not None:
        about = {"model": "m", "task": "task", "sample": PROMPTS, **place}
        named = [(f"r{i}", f"t{i % 24}", f"c{i}") for i in range(PROMPT_COUNT)]
        values.name_examples(named, **about)
        for (series, metric, queries, where), numbers in inside.entries():
            own = {"series": series, "metric": metric, "queries": queries, "where": where}
            values.put(numbers, **about, **own)
    cut = [
        {"model": m, "task": "task", "series": s, **place, "truncated": 0, "of": 1}
        for m, by_series in grades.items()
        for s in by_series
    ]
    level = {"level": chance, "how": "by hand"}
    return values, {
        "models": list(grades),
        "tasks": {"task": "problems"},
        "metric": {"key": "maths", "name": "Accuracy"},
        "greedy": True,
        "insert": "tokens",
        "sweep": "",
        "chance": {} if chance is None else {m: {"task": level} for m in grades},
        "truncated": cut,
        "inside": {}
        if inside is None
        else {
            "m": {
                "head": str(inside.head),
                "layer": inside.layer,
                "layers": 2,
                "choosing": list(inside.choosing),
            }
        },
    }
