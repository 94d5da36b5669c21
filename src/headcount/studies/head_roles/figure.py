"""The figures of the study `head-roles`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.errors import span_text
from headcount.figures.layout import both_widths
from headcount.figures.roles import RoleLine, plot_role_maps, plot_roles
from headcount.figures.style import COLUMN, points_of
from headcount.models.weights import about_models, display_names
from headcount.rankings.causal_gates.result import ROLES
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.panels import METRICS, Reading, RolePanel, panels_of
from headcount.studies.head_roles.toggling import RANDOM
from headcount.value_table import ValueTable

if TYPE_CHECKING:
    pass

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


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """All figures by file name, and their captions."""
    panels, names = panels_of(values, facts), display_names(models)
    soft = [panel for panel in panels if panel.base == "soft"]
    plain = [panel for panel in panels if panel.base == "plain"]
    at_chance = [(panel.task, names[panel.model]) for panel in soft if panel.at_chance]
    lines, per_token = (_lines(soft, found, names, reading) for reading in ("sum", "token"))
    zoomed = zoomed_in(lines)
    how: dict[str, Any] = {"at_chance": at_chance, "width": COLUMN}
    figures = {
        **both_widths("figure", plot_roles, lines, label=SUMMED, at_chance=at_chance),
        "per-token": plot_roles(per_token, label=PER_TOKEN, **how),
        "interference": plot_roles(zoomed, label=SUMMED, zoomed=True, **how),
    }
    rest = _rest(soft, about_models(models), names)
    captions = {
        "figure": (
            f"{STARTS['soft']}, summed over the target's tokens. {CHANCE}{rest} interference.png "
            "has interference at a scale of its own."
        ),
        "per-token": (
            "As in the main figure, with each prompt's Δ divided by the number of its target's "
            f"tokens ({_lengths(soft, names)}). {CHANCE}{rest}"
        ),
        "interference": (
            "Interference alone, up to twice the number of interfering heads where so many were "
            f"measured ({_reach(zoomed)}); each panel has its own axes. {rest}"
        ),
    }
    if plain:
        figures["plain"] = plot_roles(_lines(plain, found, names), label=SUMMED, **how)
        captions["plain"] = f"{STARTS['plain']}, summed over tokens. {CHANCE}{rest}"
    figures["roles"] = plot_role_maps(
        {
            (panel.task, names[panel.model]): (np.array(panel.roles.labels), panel.roles.stable)
            for panel in soft
        },
        {names[model]: models[model]["heads"] for model in names},
    )
    captions["roles"] = (
        "The role of each head, by its mean score over seeds (at least 0.5; undecided heads have "
        f"none). Strong colours: the head has this role in all of {_seeds(soft)}; pale colours: "
        f"not in all. {about_models(models)}."
    )
    return figures, captions


def _reach(zoomed: Lines) -> str:
    """The largest count of each panel: "Syntax 50"."""
    return ", ".join(
        f"{task} {lines['interference'].points[-1][0]:.0f}" for (task, _), lines in zoomed.items()
    )


def _lines(
    panels: Sequence[RolePanel],
    found: Estimates,
    names: Mapping[str, str],
    reading: Reading = "sum",
) -> Lines:
    """The lines of each panel."""

    def rows(panel: RolePanel) -> list[Any]:
        own = {"task": panel.task, "model": panel.model, "metric": METRICS[panel.base, reading]}
        return [row for row in found.rows if own.items() <= row.items()]

    return {
        (panel.task, names[panel.model]): {
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


def _rest(panels: Sequence[RolePanel], about: str, names: Mapping[str, str]) -> str:
    """What all captions say: models, prompts, seeds, intervals, and what is grey."""
    carriers = "; ".join(
        f"{_place(panel, names)} {', '.join(f'{panel.carries(role):.0f}' for role in ROLES)}"
        for panel in panels
    )
    lost = ", ".join(_place(panel, names) for panel in panels if panel.at_chance)
    return (
        f"{about}; {span_text([panel.prompts.n for panel in panels])} prompts a panel, mean over "
        f"{_seeds(panels)}; bands are 95 % intervals over prompts and seeds, with "
        "the prompts of the fits held fixed. Thin grey: beyond the heads that carry the role (a "
        "score of at least 0.5), where the order is that of saturated gates, which is noise. "
        "Heads that facilitate, are irrelevant and "
        f"interfere, on the mean of seeds: {carriers}." + f" At chance: {lost}." * bool(lost)
    )


def _place(panel: RolePanel, names: Mapping[str, str]) -> str:
    return panel.task if len(names) == 1 else f"{panel.task} ({names[panel.model]})"


def _lengths(panels: Sequence[RolePanel], names: Mapping[str, str]) -> str:
    means = {_place(panel, names): float(np.mean(panel.facts["tokens"])) for panel in panels}
    return "on average " + ", ".join(f"{mean:.1f} on {name}" for name, mean in means.items())


def _seeds(panels: Sequence[RolePanel]) -> str:
    """The number of seeds of all panels, as text."""
    counts = sorted({panel.roles.seeds for panel in panels})
    return "1 seed" if counts == [1] else f"{' or '.join(map(str, counts))} seeds"
