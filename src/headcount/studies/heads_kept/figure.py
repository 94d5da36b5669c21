"""The figures of `heads-kept`: one for each ablation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headcount.curves.explained import Explained
from headcount.figures.kept import KeptPanel, Line, plot_kept
from headcount.studies.heads_kept.cases import Case
from headcount.studies.heads_kept.config import Config
from headcount.studies.heads_kept.tables import TaskCurves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# By ablation: the name of the file, and what the small print says.
ABLATIONS = {"mean": ("figure", "their mean on corrupted prompts"), "zero": ("zero", "zero")}


def draw(panels: Sequence[TaskCurves], cases: Sequence[Case], config: Config) -> dict[str, Figure]:
    """The pictures by the names of their files."""
    return {
        file: plot_kept(
            [_panel(panel) for panel in panels if panel.ablation == ablation],
            threshold=config.threshold,
            note=_note(absent, cases, config),
        )
        for ablation, (file, absent) in ABLATIONS.items()
    }


def _panel(panel: TaskCurves) -> KeptPanel:
    lines = []
    for model, top in panel.top.items():
        random = _points(panel.random[model]) if model in panel.random else []
        lines.append(Line(model, _points(top), random, panel.needed[model]))
    return KeptPanel(panel.title, lines, None if panel.ratio is None else panel.ratio.value)


def _points(curve: Explained) -> list[tuple[float, float, float, float]]:
    return [(count, at.value, at.low, at.high) for count, at in curve.points]


def _note(absent: str, cases: Sequence[Case], config: Config) -> str:
    """The small print."""
    tested = [case.request.prompts for case in cases]
    few, many = min(tested), max(tested)
    totals = {case.model: case.request.model.layout.total for case in cases}
    return (
        f"ranked by {config.rankings[0]} per {config.per} · absent heads: {absent} · bands: 95 % "
        f"intervals over n = {few if few == many else f'{few} to {many}'} prompts · dashed: "
        f"explained effect {config.threshold:g} · "
        f"heads: {', '.join(f'{model} {total}' for model, total in totals.items())}"
    )
