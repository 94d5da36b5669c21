"""What is estimated from the values of `silent-heads`: curves, areas, and losses at few heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headcount.curves.silent import CONSTANT, PER_INPUT
from headcount.report.estimates import Estimates
from headcount.stats import Estimate, Interval, mean_of, simultaneous
from headcount.studies.silent_heads.claims import PUBLISHED_SHARE, judge_claims
from headcount.studies.silent_heads.panels import (
    ACCURACY,
    CONTROLS,
    METRICS,
    ZEROED,
    Series,
    SilentPanel,
    panels_of,
)
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]
MEAN = "mean over tasks"


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    panels = panels_of(values, facts)
    fit = [panel for panel in panels if not panel.at_chance] or panels
    groups = {panel.key: [panel] for panel in panels}
    if len(fit) > 1:
        groups[MEAN] = fit
    tables = {
        "Areas": [row for task, some in groups.items() for row in area_rows(task, some)],
        "Areas compared": [r for task, some in groups.items() for r in compared_rows(task, some)],
        "Loss": [row for task, some in groups.items() for row in loss_rows(task, some)],
        "What is left": left_rows(fit),
    }
    notes = [f"{p.name}: {p.at_chance} It is left out of claims and means." for p in panels]
    return Estimates(
        rows=[row for panel in panels for row in point_rows(panel)],
        claims=judge_claims(panels),
        tables={title: rows for title, rows in tables.items() if rows},
        notes=[
            *(note for note, panel in zip(notes, panels, strict=True) if panel.at_chance),
            *(f"{panel.name}: {panel.items.words}." for panel in panels),
        ],
    )


def point_rows(panel: SilentPanel) -> Rows:
    """The tidy table of all curves of a task, and of the shares that its prompts lost."""
    model = panel.facts["model"]
    rows: Rows = []

    def add(series: Series, share: int, metric: str, found: Interval, draws: int) -> None:
        kind, score = series
        about = {"model": model, "task": panel.key, "series": kind, "score": score}
        rows.append(
            {**about, "metric": metric, "count": share, **_ends(found), "n": found.n}
            | {"draws": draws}
        )

    for metric in METRICS:
        add(("whole", ""), 0, metric, panel.interval(("whole", ""), 0, metric), 1)
        for series in panel.series:
            for share in panel.shares:
                draws = len(panel.draws(series, share, metric))
                add(series, share, metric, panel.interval(series, share, metric), draws)
    for score in panel.scores:
        for share in panel.shares:
            lost = panel.items.estimate(panel.lost((PER_INPUT, score), share))
            add((PER_INPUT, score), share, ZEROED, lost.interval, 1)
    return rows


def _ends(found: Interval) -> dict[str, float]:
    return {"value": found.value, "low": found.low, "high": found.high}


def area_rows(task: str, panels: Sequence[SilentPanel]) -> Rows:
    """The area of every curve: of a task, or the mean over tasks."""
    return [
        {"task": task, "series": series[0], "score": series[1], "metric": metric}
        | _ends(area_of(panels, series, metric).interval)
        for metric in METRICS
        for series in panels[0].series
    ]


def area_of(panels: Sequence[SilentPanel], series: Series, metric: str) -> Estimate:
    """The area of a curve, on the mean over tasks."""
    return mean_of([panel.area(series, metric) for panel in panels])


def compared_rows(task: str, panels: Sequence[SilentPanel]) -> Rows:
    """Differences of areas, paired by prompt, in three families.

    The first score minus each other; each score per input minus its constant heads; the first score
    minus its random controls. Each has an interval of its own, and one that holds together with
    those of its family.
    """
    first, *others = panels[0].scores
    families: list[list[tuple[Series, Series]]] = [
        [((PER_INPUT, first), (PER_INPUT, other)) for other in others],
        [((PER_INPUT, score), (CONSTANT, score)) for score in panels[0].scores],
        [((PER_INPUT, first), (control, first)) for control in CONTROLS],
    ]
    rows: Rows = []
    for metric in METRICS:
        for family in filter(None, families):
            gaps = [area_of(panels, a, metric) - area_of(panels, b, metric) for a, b in family]
            for (a, b), gap, wide in zip(family, gaps, simultaneous(gaps), strict=True):
                rows.append(
                    {
                        "task": task,
                        "metric": metric,
                        "first": a[1],
                        "minus": b[1] if b[0] == PER_INPUT else f"{b[0]}, {b[1]}",
                        **_ends(gap.interval),
                        "low together": wide.low,
                        "high together": wide.high,
                    }
                )
    return rows


def loss_rows(task: str, panels: Sequence[SilentPanel]) -> Rows:
    """What is lost at the first share that zeroes as many heads as published, by score."""
    rows: Rows = []
    for series in panels[0].series:
        shares = [panel.first_beyond(series, PUBLISHED_SHARE) for panel in panels]
        if any(share is None for share in shares):
            continue
        at = list(zip(panels, [int(share or 0) for share in shares], strict=True))
        zeroed = mean_of([p.items.estimate(p.lost(series, share)) for p, share in at])
        row: dict[str, Any] = {"task": task, "series": series[0], "score": series[1]}
        row |= {f"zeroed{end}": x for end, x in _named(zeroed.interval).items()}
        for metric in METRICS:
            loss = mean_of([panel.loss(series, share, metric) for panel, share in at])
            name = "loss" if metric == ACCURACY else f"loss of {metric}"
            row |= {f"{name}{end}": x for end, x in _named(loss.interval).items()}
        rows.append(row)
    return rows


def _named(found: Interval) -> dict[str, float]:
    return {"": found.value, " low": found.low, " high": found.high}


def left_rows(panels: Sequence[SilentPanel]) -> Rows:
    """The curves of the figure: what is left at each share, on the mean over tasks."""
    rows: Rows = []
    mean: Callable[..., Interval] = lambda some: mean_of(list(some)).interval  # noqa: E731
    for metric in METRICS:
        for series in panels[0].series:
            for share in panels[0].shares:
                left = mean(panel.kept(series, share, metric) for panel in panels)
                lost = mean(p.items.estimate(p.lost(series, share)) for p in panels)
                about = {"series": series[0], "score": series[1], "metric": metric}
                rows.append({**about, "count": share, "zeroed": lost.value, **_ends(left)})
    return rows
