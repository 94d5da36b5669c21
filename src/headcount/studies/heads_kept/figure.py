"""The figures of `heads-kept`: one for each ablation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headcount.curves.explained import Explained
from headcount.errors import span_text
from headcount.figures.kept import KeptPanel, Line, plot_kept
from headcount.studies.heads_kept.cases import Case
from headcount.studies.heads_kept.config import Config
from headcount.studies.heads_kept.tables import TaskCurves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# By ablation: the name of the file, and the ablation in the words of the small print.
ABLATIONS = {"mean": ("figure", "mean over corrupted prompts"), "zero": ("zero", "zero")}


def draw(panels: Sequence[TaskCurves], cases: Sequence[Case], config: Config) -> dict[str, Figure]:
    """All figures by file name."""
    return {
        file: plot_kept(
            [_panel(panel) for panel in panels if panel.ablation == ablation],
            threshold=config.threshold,
            note=_note(words, cases, config),
        )
        for ablation, (file, words) in ABLATIONS.items()
    }


def _panel(panel: TaskCurves) -> KeptPanel:
    lines = []
    for model, top in panel.top.items():
        random = _points(panel.random[model]) if model in panel.random else []
        lines.append(Line(model, _points(top), random, panel.needed[model]))
    ratio = None if panel.ratio is None else panel.ratio.value
    return KeptPanel(panel.title, lines, ratio, list(panel.at_chance))


def _points(curve: Explained) -> list[tuple[float, float, float, float]]:
    return [(count, at.value, at.low, at.high) for count, at in curve.points]


def _note(ablation: str, cases: Sequence[Case], config: Config) -> str:
    """The small print."""
    totals = {case.model: case.request.model.layout.total for case in cases}
    return (
        f"heads ranked by {config.rankings[0]} per {config.per} · ablation of all other heads: "
        f"{ablation} · bands: 95 % intervals over n = "
        f"{span_text([case.request.prompts for case in cases])} prompts · dashed line: explained "
        f"effect of {config.threshold:g} · "
        f"{', '.join(f'{model} has {total} heads' for model, total in totals.items())}"
    )
