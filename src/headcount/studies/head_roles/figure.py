"""The figures of the study `head-roles`: curves, and maps of the roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headcount.errors import span_text
from headcount.figures.roles import plot_role_maps, plot_roles
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.gates import Cell
from headcount.studies.head_roles.toggling import RoleCurves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The name of each file, and the part of its small print that says what Δ is.
STARTS: dict[Base, tuple[str, str]] = {
    "soft": ("figure", "Δ = ablated minus retained, all other heads at soft gates G⁺"),
    "plain": ("plain", "Δ = ablated minus whole model, all other heads on"),
}


def draw(panels: Sequence[RoleCurves], gates: Mapping[Cell, CausalGates]) -> dict[str, Figure]:
    """All figures by file name."""
    figures = {}
    for base, (name, definition) in STARTS.items():
        drawn = [panel for panel in panels if panel.base == base]
        if drawn:
            n = span_text([len(panel.clusters) for panel in drawn])
            figures[name] = plot_roles(
                {(panel.task, panel.model): _lines(panel) for panel in drawn},
                note=f"{definition} · mean over {_seeds(list(gates.values()))} · bands: 95 % "
                f"intervals over seeds and prompts · n = {n} prompts",
                at_chance=[(panel.task, panel.model) for panel in drawn if panel.at_chance],
            )
    figures["roles"] = plot_role_maps(
        {(cell.name, cell.label): fitted.labels() for cell, fitted in gates.items()},
        {cell.label: list(cell.model.layout.counts) for cell in gates},
    )
    return figures


def _lines(panel: RoleCurves) -> dict[str, list[tuple[int, float, float, float]]]:
    lines: dict[str, list[tuple[int, float, float, float]]] = {role: [] for role in ROLES}
    for row in panel.rows:
        lines[row["series"]].append((row["count"], row["value"], row["low"], row["high"]))
    return lines


def _seeds(gates: Sequence[CausalGates]) -> str:
    """The number of seeds of all panels, as text."""
    counts = sorted({fitted.seeds for fitted in gates})
    return "1 seed" if counts == [1] else f"{' or '.join(map(str, counts))} seeds"
