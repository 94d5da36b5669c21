"""The figures of `contrast`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.errors import span_text
from headcount.figures.contrast import Dot, plot_contrast
from headcount.models.weights import about_models
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.contrast.config import FORMS, other_form
from headcount.studies.contrast.fits import METRICS
from headcount.studies.contrast.panels import SkillPanel, panels_of
from headcount.value_table import ValueTable

FILES = {METRICS[0]: "figure", METRICS[1]: "accuracy"}
LABELS = {METRICS[0]: "Change of log-probability per token", METRICS[1]: "Change of accuracy"}


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """One figure for each metric, and their captions."""
    panels = panels_of(values, facts)
    if not panels:
        return {}, {}
    at_chance = [(_title(p.kept), p.name) for p in panels if p.at_chance]
    figures: dict[str, Any] = {}
    captions: dict[str, str] = {}
    for metric, file in FILES.items():
        grid = {
            _title(kept): {
                panel.name: _dots(panel, found, metric) for panel in panels if panel.kept == kept
            }
            for kept in dict.fromkeys(panel.kept for panel in panels)
        }
        figures[file] = plot_contrast(grid, label=LABELS[metric], at_chance=at_chance)
        captions[file] = f"{about_models(models)}. {_caption(panels, facts, metric)}"
    return figures, captions


def _dots(panel: SkillPanel, found: Estimates, metric: str) -> list[Dot]:
    own = {"task": panel.skill, "kept": panel.kept, "metric": metric}
    return [
        Dot(row["role"], row["series"], row["value"], row["low"], row["high"])
        for form in (panel.kept, other_form(panel.kept))
        for row in found.rows
        if {**own, "form": form}.items() <= row.items()
    ]


def _title(kept: str) -> str:
    return f"{kept} kept, {other_form(kept)} forgotten"


def _caption(panels: Sequence[SkillPanel], facts: Mapping[str, Any], metric: str) -> str:
    shut = "; ".join(f"{panel.name}, {panel.kept} kept {panel.count}" for panel in panels)
    n = span_text([panel.items[form].n for panel in panels for form in FORMS])
    what = "the answer's log-probability per token" if metric == METRICS[0] else "accuracy"
    return (
        f"Change of {what} from the whole model, on a "
        "skill that was left out when the gates were fitted. Gates: as fitted. Heads: those whose "
        "gates are shut (below 0.5) are switched off; random and layer-matched: as many random "
        f"heads. Mean over {facts['seeds']} fits and {n} prompts; bars are 95 % intervals over "
        f"templates, words and fits or draws. Heads that are off, on the mean of fits: {shut}."
    )
