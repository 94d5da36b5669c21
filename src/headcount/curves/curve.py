"""Curves: orders × counts × seeds, one tidy table with intervals.

series     the k heads that are masked (or, in mode "keep", the only ones that are not)
top        the best of the ranking
bottom     the worst
random     drawn from all but the best k, several times
matched    the same, with as many in each layer as the best k have there
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.evaluate import Values, evaluate
from headcount.engine.write.decode import Scope
from headcount.errors import HeadcountError, did_you_mean
from headcount.figures.curve import plot_curve
from headcount.figures.html import frame, picture, table
from headcount.figures.style import SERIES
from headcount.heads import HeadLayout, HeadScores, check_counts
from headcount.metrics import Metric, get_metric
from headcount.metrics.text import TextMetric
from headcount.models.model import Model
from headcount.rankings import rank
from headcount.rankings.random_draws import draw_matched, draw_random
from headcount.stats import Interval, accuracy_interval, bootstrap, paired_difference
from headcount.store import Store
from headcount.system.files import write_csv
from headcount.tasks import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Mode = Literal["mask", "keep"]


@dataclass(frozen=True)
class Point:
    """One row of the tidy table: the mean over examples (and draws) with its 95 % interval."""

    model: str
    task: str
    series: str
    metric: str
    count: int
    value: float
    low: float
    high: float
    n: int  # examples
    draws: int  # random draws behind the point; 1 for a fixed order
    unmatched: float  # share of layer-matched heads that came from another layer


@dataclass(frozen=True, eq=False)
class Curve:
    """Points, and the values behind them: (draws, examples) for each series and count."""

    points: tuple[Point, ...]
    raw: dict[tuple[str, int], Float[np.ndarray, "draws examples"]]
    scores: HeadScores
    metric: Metric | TextMetric
    mode: Mode
    stand_in: str
    clusters: np.ndarray
    left_out: tuple[str, ...] = ()  # sentences about points that could not be made

    def series(self, name: str) -> list[Point]:
        """The points of one series, by count."""
        return [point for point in self.points if point.series == name]

    def difference(self, one: str, other: str, count: int) -> Interval:
        """The paired difference of two series at one count, with its interval."""
        return paired_difference(
            self.raw[one, count], self.raw[other, count], clusters=self.clusters
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The tidy table: one row for each point."""
        return [asdict(point) for point in self.points]

    def to_csv(self, path: str | Path) -> None:
        """Write the tidy table."""
        write_csv(path, self.rows)

    def plot(self, *, title: str | None = None) -> Figure:
        """Draw the curve, with the intervals of all its points as bands."""
        return plot_curve(
            self.rows,
            heads=self.scores.layout.total,
            metric=self.metric.name,
            ranking=self.scores.method,
            stand_in=self.stand_in,
            verb=self._verb,
            shares=self.metric.binary,
            title=title,
        )

    def __repr__(self) -> str:
        counts = ", ".join(map(str, self._counts))
        return f"<Curve of {self._title}: {self.metric.name} at {counts} heads>"

    def _repr_html_(self) -> str:
        cells: dict[tuple[str, int], str] = {
            (p.series, p.count): f"{p.value:.3f} [{p.low:.3f}, {p.high:.3f}]" for p in self.points
        }
        rows = [
            [SERIES[name], *(cells.get((name, count), "–") for count in self._counts)]
            for name in SERIES
            if self.series(name)
        ]
        title = f"{self.metric.name} · {self._title} · n = {self.points[0].n} · stand-in: "
        numbers = table(["heads", *map(str, self._counts)], rows, numbers=len(self._counts))
        return frame(f"{title}{self.stand_in}", picture(self.plot()), numbers)

    @property
    def _counts(self) -> list[int]:
        return sorted({point.count for point in self.points})

    @property
    def _verb(self) -> str:
        return "masked" if self.mode == "mask" else "kept"

    @property
    def _title(self) -> str:
        first = self.points[0]
        return f"{first.task} on {first.model}, heads {self._verb} by {self.scores.method}"

    def __str__(self) -> str:
        lines = [f"{'series':24}{'heads':>6}{'value':>10}  95 % interval"]
        lines += [
            f"{SERIES[p.series]:24}{p.count:6}{p.value:10.3f}  [{p.low:.3f}, {p.high:.3f}]"
            for p in self.points
        ]
        return "\n".join(lines)


def default_counts(layout: HeadLayout) -> list[int]:
    """0, 1, 2, 4, … up to half of the heads: as far as random controls have heads to draw from."""
    counts = [0]
    while (following := max(1, counts[-1] * 2)) <= layout.total // 2:
        counts.append(following)
    return counts


def curve(
    model: Model,
    task: Task,
    ranking: str | Callable[[Model, Task], HeadScores] | HeadScores = "attribution",
    *,
    counts: Sequence[int] | None = None,
    series: Sequence[str] = ("top", "random", "matched"),
    seeds: int = 5,
    mode: Mode = "mask",
    metric: str | Metric | TextMetric = "accuracy",
    stand_in: str = "zero",
    scope: Scope = "all",
    epsilon: float = 0.0,
    store: Store | None = None,
    progress: bool = True,
) -> Curve:
    """Rank heads on the ranking part, then mask (or keep) more and more of them on the test part.

    Masked heads are multiplied by `epsilon`. `scope` is for metrics of written texts: see
    `evaluate`.

    >>> from headcount import curve, load_model, make_task
    >>> model = load_model("smollm2-135m")
    >>> task = make_task("ioi", model.tokenizer, n=16)
    >>> result = curve(model, task, counts=[0, 8], series=["top"])
    >>> [point.count for point in result.points]
    [0, 8]
    """
    for name in series:
        if name not in SERIES:
            raise HeadcountError(
                f'There is no series "{name}" (known: {", ".join(SERIES)}).'
                f"{did_you_mean(name, SERIES)}"
            )
    if seeds < 1:
        raise HeadcountError(f"Random controls need at least one seed, not {seeds}.")
    if not np.isfinite(epsilon):
        raise HeadcountError(f"epsilon is a number, such as 0 or 0.001, not {epsilon}.")
    if mode not in ("mask", "keep"):
        raise HeadcountError(f'There is no mode "{mode}" (known: mask, keep).')
    layout = model.layout
    counts = default_counts(layout) if counts is None else check_counts(counts, layout)
    metric = get_metric(metric)  # an unknown one is refused before anything is measured
    scores = rank(model, task, ranking, store=store, progress=progress)
    plan = _Plan(layout, scores, mode, epsilon)
    left_out: list[str] = []
    for name in series:
        for count in counts:
            if name in ("random", "matched") and 2 * count > layout.total:
                left_out.append(
                    f"{SERIES[name]} at {count} heads is left out: only {layout.total - count} of "
                    f"{layout.total} heads are outside the top {count}."
                )
            else:
                plan.add(name, count, seeds)
    if not plan.gates:
        raise HeadcountError(" ".join(left_out) or "A curve needs at least one series and count.")
    gates = np.stack(plan.gates)
    values = evaluate(
        model,
        task,
        gates,
        metric=metric,
        stand_in=stand_in,
        scope=scope,
        store=store,
        progress=progress,
    )
    points, raw = [], {}
    for (name, count), rows in plan.rows.items():
        raw[name, count] = values.values[rows]
        interval = interval_of(raw[name, count], values)
        points.append(
            Point(
                model=model.name,
                task=task.name,
                series=name,
                metric=values.metric.key,
                count=count,
                value=interval.value,
                low=interval.low,
                high=interval.high,
                n=len(values.examples),
                draws=len(rows),
                unmatched=plan.unmatched.get((name, count), 0.0),
            )
        )
    return Curve(
        tuple(points),
        raw,
        scores,
        values.metric,
        mode,
        values.stand_in,
        values.clusters,
        tuple(left_out),
    )


def interval_of(values: Float[np.ndarray, "draws examples"], measured: Values) -> Interval:
    """The mean over draws and examples, with the interval that suits the metric."""
    estimate: Any = accuracy_interval if measured.metric.binary else bootstrap
    interval: Interval = estimate(values, clusters=measured.clusters)
    return interval


class _Plan:
    """Which head sets to measure: each once, however many points share it."""

    def __init__(
        self, layout: HeadLayout, scores: HeadScores, mode: Mode, epsilon: float = 0.0
    ) -> None:
        self.layout, self.epsilon = layout, epsilon
        self.order = scores.order()
        self.mode = mode
        self.gates: list[Float[np.ndarray, "heads"]] = []
        self.rows: dict[tuple[str, int], list[int]] = {}
        self.unmatched: dict[tuple[str, int], float] = {}
        self._known: dict[bytes, int] = {}

    def add(self, series: str, count: int, seeds: int) -> None:
        """Plan one point: one head set for a fixed order, one for each draw otherwise."""
        top = self.order[:count].tolist()
        if series == "top":
            sets = [top]
        elif series == "bottom":
            sets = [self.order[len(self.order) - count :].tolist()]
        elif series == "random":
            sets = [
                draw_random(self.layout, count, outside=top, seed=seed).tolist()
                for seed in range(seeds)
            ]
        else:
            drawn = [draw_matched(self.layout, top, seed=seed) for seed in range(seeds)]
            sets = [heads.tolist() for heads, _ in drawn]
            self.unmatched[series, count] = float(np.mean([share for _, share in drawn]))
        self.rows[series, count] = [self._row(heads) for heads in sets]

    def _row(self, heads: Sequence[int]) -> int:
        chosen = np.zeros(self.layout.total, dtype=bool)
        chosen[list(heads)] = True
        kept = chosen if self.mode == "keep" else ~chosen
        gates = np.where(kept, 1, self.epsilon).astype(np.float32)
        row = self._known.setdefault(gates.tobytes(), len(self.gates))
        if row == len(self.gates):
            self.gates.append(gates)
        return row
