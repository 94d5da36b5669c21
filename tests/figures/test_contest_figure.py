"""The figure of a contest: every ranking in every panel, and what has no cost."""

from __future__ import annotations

import math
from typing import Any

from headcount.figures.contest import plot_contest

AREAS = ("CPR", "CMD", "masking area")


def row(task: str, ranking: str, passes: float, width: float = 0.1) -> dict[str, Any]:
    ends = {"": 0.5, " low": 0.5 - width, " high": 0.5 + width}
    areas = {f"{area}{end}": value for area in AREAS for end, value in ends.items()}
    return {"task": task, "ranking": ranking, "passes": passes, **areas}


def test_each_task_has_a_row_of_panels_with_all_rankings() -> None:
    names = {"greedy": 250.0, "mine $x": math.nan, "random orders": math.nan}
    rows = [row(task, *one) for task in ("ioi", "docstring") for one in names.items()]
    figure = plot_contest(rows, AREAS)
    panels = [figure.axes[place : place + 4] for place in (0, 4)]
    assert [axes[0].get_ylabel() for axes in panels] == ["ioi", "docstring"]
    assert [axes.get_title() for axes in panels[0]] == [*AREAS, "passes"]
    for axes in panels:
        assert [text.get_text() for text in axes[0].get_yticklabels()] == list(names)
        assert len(axes[3].lines) == 1  # only greedy has a cost
    figure.canvas.draw()


def test_recovery_of_a_planted_circuit_has_a_panel_filled_where_it_is_exact() -> None:
    rows = [row("ioi", name, 3.0) for name in ("greedy", "ablation", "random orders")]
    found = [
        {"task": "ioi", "ranking": name, "goal": goal, "AUROC": 0.8, "exact": name == "greedy"}
        for name in ("greedy", "ablation")
        for goal in ("keep", "mask")
    ]
    figure = plot_contest(rows, AREAS, found)
    axes = figure.axes[3]
    assert axes.get_title() == "AUROC"
    marks = [line for line in axes.lines if line.get_marker() in "^v"]
    assert [line.get_marker() for line in marks] == ["^", "v", "^", "v"]
    assert [line.get_markerfacecolor() == "white" for line in marks] == [False, False, True, True]


def test_unknown_intervals_leave_the_point() -> None:
    figure = plot_contest([row("ioi", "greedy", 3.0, width=math.nan)], AREAS)
    assert len(figure.axes[0].lines) == 2  # the point, and the dashed line
