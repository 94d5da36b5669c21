"""The figures of the study `head-roles`: curves, and maps of the roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headcount.figures.roles import plot_role_maps, plot_roles
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.studies.description import span_text
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.gates import Cell
from headcount.studies.head_roles.toggling import RoleCurves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The name of the file, and what curves start from.
STARTS: dict[Base, tuple[str, str]] = {
    "soft": ("figure", "from soft gates G⁺, ablated minus retained"),
    "plain": ("plain", "from the whole model, ablated minus whole"),
}


def draw(panels: Sequence[RoleCurves], gates: Mapping[Cell, CausalGates]) -> dict[str, Figure]:
    """All figures, by the names of their files."""
    figures = {}
    for base, (name, start) in STARTS.items():
        some = [panel for panel in panels if panel.base == base]
        if some:
            figures[name] = plot_roles(
                {(panel.task, panel.model): _lines(panel) for panel in some},
                note=f"{start} · mean of {_seeds(list(gates.values()))} · bands: 95 % intervals "
                f"over seeds and prompts · n = {span_text([len(p.clusters) for p in some])}",
            )
    figures["roles"] = plot_role_maps(
        {(cell.name, cell.label): its.labels() for cell, its in gates.items()},
        {cell.label: list(cell.model.layout.counts) for cell in gates},
    )
    return figures


def _lines(panel: RoleCurves) -> dict[str, list[tuple[int, float, float, float]]]:
    lines: dict[str, list[tuple[int, float, float, float]]] = {role: [] for role in ROLES}
    for row in panel.rows:
        lines[row["series"]].append((row["count"], row["value"], row["low"], row["high"]))
    return lines


def _seeds(gates: Sequence[CausalGates]) -> str:
    """How many there are in each panel."""
    counts = sorted({its.seeds for its in gates})
    return "1 seed" if counts == [1] else f"{' or '.join(map(str, counts))} seeds"
