"""The figures of the study `head-roles`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.errors import span_text
from headcount.figures.roles import RoleLine, plot_role_maps, plot_roles
from headcount.figures.style import points_of
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.report.estimates import Estimates
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.gates import Cell
from headcount.studies.head_roles.panels import METRICS, Reading, RolePanel
from headcount.studies.head_roles.toggling import RANDOM

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMED = "Δ Log Probability of Target Response"
PER_TOKEN = "Δ Log Probability per Target Token"
# What each curve starts from, and so what Δ is.
STARTS: dict[Base, str] = {
    "soft": (
        "Δ is the log-probability of the target when the first heads of a role are ablated, minus "
        "that when they are retained, with all other heads at their soft gates G⁺"
    ),
    "plain": (
        "Δ is the log-probability of the target when the first heads of a role are ablated, minus "
        "that of the whole model"
    ),
}
CHANCE = "Dotted dark grey: as many random orders of all heads, which know nothing of roles. "
Lines = dict[tuple[str, str], dict[str, RoleLine]]


def draw(
    panels: Sequence[RolePanel], found: Estimates, gates: Mapping[Cell, CausalGates]
) -> tuple[dict[str, Figure], dict[str, str]]:
    """All figures by file name, and their captions."""
    soft = [panel for panel in panels if panel.base == "soft"]
    plain = [panel for panel in panels if panel.base == "plain"]
    at_chance = [(panel.task, panel.model) for panel in soft if panel.at_chance]
    figures = {
        "figure": plot_roles(_lines(soft, found), label=SUMMED, at_chance=at_chance),
        "per-token": plot_roles(_lines(soft, found, "token"), label=PER_TOKEN, at_chance=at_chance),
        "interference": plot_roles(
            zoomed_in(_lines(soft, found)), label=SUMMED, at_chance=at_chance, zoomed=True
        ),
    }
    captions = {
        "figure": f"{STARTS['soft']}, summed over the target's tokens. {_rest(soft, gates)}",
        "per-token": (
            "As in the main figure, with each prompt's Δ divided by the number of its target's "
            f"tokens ({_lengths(soft)}). {_rest(soft, gates)}"
        ),
        "interference": (
            "Interference alone, up to twice the number of interfering heads; each panel has its "
            f"own axes. {_rest(soft, gates, with_random=False)}"
        ),
    }
    if plain:
        figures["plain"] = plot_roles(_lines(plain, found), label=SUMMED, at_chance=at_chance)
        captions["plain"] = f"{STARTS['plain']}, summed over tokens. {_rest(plain, gates)}"
    figures["roles"] = plot_role_maps(
        {(cell.name, cell.label): (f.labels(), stable(f)) for cell, f in gates.items()},
        {cell.label: list(cell.model.layout.counts) for cell in gates},
    )
    captions["roles"] = (
        "The role of each head, by its mean score over seeds (at least 0.5; undecided heads have "
        f"none). Strong colours: the head has this role in all of {_seeds(list(gates.values()))}; "
        "pale colours: not in all."
    )
    return figures, captions


def stable(gates: CausalGates) -> np.ndarray:
    """Which heads have the role of their label in all seeds."""
    labels = gates.labels()
    always = [(labels == role) & gates.has_role(role).all(0) for role in ROLES]
    return np.asarray(np.any(always, axis=0))


def _lines(panels: Sequence[RolePanel], found: Estimates, reading: Reading = "sum") -> Lines:
    """The lines of each panel."""

    def rows(panel: RolePanel) -> list[Any]:
        own = {"task": panel.task, "model": panel.model, "metric": METRICS[panel.base, reading]}
        return [row for row in found.rows if own.items() <= row.items()]

    return {
        (panel.task, panel.model): {
            **{r: RoleLine(points_of(rows(panel), r), panel.carries(r)) for r in ROLES},
            RANDOM: RoleLine(points_of(rows(panel), RANDOM)),
        }
        for panel in panels
    }


def zoomed_in(panels: Lines) -> Lines:
    """Interference alone, up to twice the number of heads that interfere."""
    zoomed: Lines = {}
    for where, lines in panels.items():
        whole = lines["interference"]
        near = [point for point in whole.points if point[0] <= 2 * whole.carriers]
        zoomed[where] = {"interference": RoleLine(near, whole.carriers)}
    return zoomed


def _rest(
    panels: Sequence[RolePanel], gates: Mapping[Cell, CausalGates], *, with_random: bool = True
) -> str:
    """What all captions say: models, prompts, seeds, intervals, and what is grey."""
    models = {panel.model: panel.heads for panel in panels}
    named = ", ".join(f"{model} ({heads} heads)" for model, heads in models.items())
    carriers = "; ".join(
        f"{panel.name} {', '.join(f'{panel.carries(role):.0f}' for role in ROLES)}"
        for panel in panels
    )
    lost = ", ".join(panel.name for panel in panels if panel.at_chance)
    return (
        f"{named}; {span_text([panel.prompts.n for panel in panels])} prompts a panel, mean over "
        f"{_seeds(list(gates.values()))}; bands are 95 % intervals over prompts and seeds, with "
        "the prompts of the fits held fixed. Thin grey: beyond the heads that carry the role (a "
        "score of at least 0.5), where the order is that of saturated gates, which is noise. "
        f"{CHANCE * with_random}Heads that facilitate, are irrelevant and "
        f"interfere, on the mean of seeds: {carriers}." + f" At chance: {lost}." * bool(lost)
    )


def _lengths(panels: Sequence[RolePanel]) -> str:
    means = {panel.name: float(np.mean(panel.facts["tokens"])) for panel in panels}
    return "on average " + ", ".join(f"{mean:.1f} on {name}" for name, mean in means.items())


def _seeds(gates: Sequence[CausalGates]) -> str:
    """The number of seeds of all panels, as text."""
    counts = sorted({fitted.seeds for fitted in gates})
    return "1 seed" if counts == [1] else f"{' or '.join(map(str, counts))} seeds"
