"""The figures of the study `head-roles`: curves, and maps of the roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headcount.figures.roles import plot_role_maps, plot_roles
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.studies.head_roles.cells import Cell
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.panel import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES: dict[Base, str] = {"soft": "figure", "plain": "plain"}
STARTS: dict[Base, str] = {
    "soft": "from soft gates G⁺, ablated less retained",
    "plain": "from the whole model, ablated less whole",
}


def draw(panels: Sequence[Panel], gates: Mapping[Cell, CausalGates]) -> dict[str, Figure]:
    """All figures, by the names of their files."""
    figures = {}
    for base, name in NAMES.items():
        some = [panel for panel in panels if panel.toggled.base == base]
        if some:
            figures[name] = plot_roles(
                {(panel.task, panel.model): _lines(panel) for panel in some},
                note=f"{STARTS[base]} · mean of {_seeds(list(gates.values()))} · bands: 95 % "
                f"intervals over seeds and prompts · n = {_prompts(some)}",
            )
    figures["roles"] = plot_role_maps(
        {(cell.name, cell.label): its.labels() for cell, its in gates.items()},
        {cell.label: list(cell.model.layout.counts) for cell in gates},
    )
    return figures


def _lines(panel: Panel) -> dict[str, list[tuple[int, float, float, float]]]:
    return {
        role: [
            (row["count"], row["value"], row["low"], row["high"])
            for row in panel.rows
            if row["series"] == role
        ]
        for role in ROLES
    }


def _seeds(gates: Sequence[CausalGates]) -> str:
    """How many there are in each panel."""
    counts = sorted({its.seeds for its in gates})
    if counts == [1]:
        return "1 seed"
    return f"{' or '.join(map(str, counts))} seeds"


def _prompts(panels: Sequence[Panel]) -> str:
    numbers = [len(panel.toggled.clusters) for panel in panels]
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
