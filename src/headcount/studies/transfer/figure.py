"""The figures of the study `transfer`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.errors import counted, span_text
from headcount.figures.style import Row
from headcount.figures.transfer import Ends, plot_shared, plot_transfer
from headcount.models.weights import about_models
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.transfer.panels import Transfer, transfer_of
from headcount.value_table import ValueTable

SERIES = {"TopK": "specificity", "layer-matched": "layer-matched"}  # columns of the table
CLEAR = ("difference low", "low together")  # a star for each that is above 0


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """The matrix with the specificity of each task, and the overlap of the head sets."""
    transfer, about = transfer_of(values, facts), about_models(models)
    keys = list(transfer.tasks)
    names = [task.name for task in transfer.tasks.values()]
    pairs = {(row["ranked on"], row["tested on"]): row for row in found.tables["Transfer"]}
    losses = np.array([[_ends(pairs[one, other], "loss") for other in keys] for one in keys])
    stars = np.array(
        [[sum(pairs[one, other][low] > 0 for low in CLEAR) for other in keys] for one in keys]
    )
    by_task = {row["task"]: row for row in found.tables.get("Specificity", ())}
    specific = {
        series: [_ends(by_task[key], column) if key in by_task else None for key in keys]
        for series, column in SERIES.items()
    }
    at_chance = [task.name for task in transfer.tasks.values() if task.at_chance]
    figures = {
        "figure": plot_transfer(
            names, losses, stars, specific, at_chance=at_chance, border=_border(transfer)
        ),
        "overlap": plot_shared(names, _shares(keys, found.tables["Overlap"]), _chance(found)),
    }
    return figures, {
        "figure": _caption(transfer, at_chance, about),
        "overlap": _overlap(transfer, found, about),
    }


def _ends(row: Row, column: str) -> Ends:
    return row[column], row[f"{column} low"], row[f"{column} high"]


def _border(transfer: Transfer) -> int:
    """The first high-level function, if all low-level ones stand before all high-level ones."""
    levels = [transfer.facts["levels"].get(key) for key in transfer.tasks]
    low = levels.count("low")
    return (
        low if levels == ["low"] * low + ["high"] * (len(levels) - low) and low < len(levels) else 0
    )


def _shares(keys: Sequence[str], rows: Sequence[Row]) -> np.ndarray:
    """The mean share in common over counts; the diagonal is left out."""
    shares = np.full((len(keys), len(keys)), np.nan)
    for a, one in enumerate(keys):
        for b, other in enumerate(keys):
            own = [row["share"] for row in rows if {row["one"], row["other"]} == {one, other}]
            if own:
                shares[a, b] = float(np.mean(own))
    return shares


def _masked(transfer: Transfer) -> str:
    return f"heads ranked by {transfer.facts['ranking']}, {_counts(transfer)} masked"


def _counts(transfer: Transfer) -> str:
    counts = ", ".join(map(str, transfer.counts))
    return f"{counts} heads{' (mean over these counts)' * (len(transfer.counts) > 1)}"


def _caption(transfer: Transfer, at_chance: list[str], about: str) -> str:
    facts, tasks = transfer.facts, transfer.tasks.values()
    n = span_text([task.items.n for task in tasks])
    left_out = f" At chance, and left out: {', '.join(at_chance)}." if at_chance else ""
    return (
        f"Above: what a task (column) loses with the best heads of a task (row) masked, as a share "
        f"of unmasked minus chance, with 95 % intervals; {facts['metric']['name']}. * costs more "
        "than random heads of the same layers, by the interval of that difference; ** by intervals "
        "that hold together over all cells. Boxes: a task under its own best heads."
        f"{' Dashed: between low-level and high-level functions.' * bool(_border(transfer))} "
        "Below: own loss minus "
        "the mean of row and column, for the best heads and for "
        f"{counted(facts['seeds'], 'draw')} of layer-matched random heads, with 95 % intervals, "
        f"rankings held fixed. {about}; {_masked(transfer)}, zero ablation; {n} items a "
        f"task.{left_out}"
    )


def _chance(found: Estimates) -> float:
    """The share that two random draws have in common, on the mean of pairs and counts."""
    return float(np.mean([row["chance"] for row in found.tables["Overlap"]]))


def _overlap(transfer: Transfer, found: Estimates, about: str) -> str:
    return (
        "The share of their best heads that two tasks have in common. Two random draws would "
        f"share {_chance(found):.3f}. {about}; {_masked(transfer)}."
    )
