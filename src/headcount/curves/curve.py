"""Curves: a metric against the number of heads masked or kept, as a tidy table with intervals.

A curve is described before it is measured (`CurveRequest`): its heads may depend on a ranking that
is not computed yet, but the number of its head sets does not.

series     the k heads that are masked (or, in mode "keep", the only heads that are kept)
top        the k best heads of the ranking
bottom     the k worst heads
random     k random heads outside the best k, in several draws
matched    like random, but with the same number of heads in each layer as the best k
reranked   the k best heads of the ranking on resampled prompts, in several draws
anywhere   k random heads of all heads, the best k among them, in several draws
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from headcount.curves.cache import CacheKept, cache_kept
from headcount.engine.measure.ablations import check_ablation
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending, head_gates
from headcount.engine.measure.positions import read_positions
from headcount.engine.measure.sweep import Sweep, Values, whole_model
from headcount.engine.write.writing import Scope
from headcount.errors import HeadcountError, unknown
from headcount.figures.curves import draw_curve
from headcount.figures.html import frame, picture, table
from headcount.figures.style import SERIES, figure_of, shown
from headcount.heads import HeadLayout, HeadScores, check_counts, check_listed, listed_counts
from headcount.lab import Lab, check_asked, lab_for
from headcount.metrics import Metric, get_metric
from headcount.metrics.chance import chance_of
from headcount.metrics.text import TextMetric
from headcount.models.model import Model
from headcount.rankings import Ranking, fitting, rank
from headcount.rankings.random_draws import draw_matched, draw_random
from headcount.rankings.reranked import ranked_again
from headcount.registry import make_settings
from headcount.stats import Interval
from headcount.system.frames import data_frame
from headcount.tasks import Task

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Mode = Literal["mask", "keep"]
OUTSIDE = ("random", "matched")  # series of heads outside the best k
DRAWN = (*OUTSIDE, "reranked", "anywhere")  # series with several draws


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
    draws: int  # random draws whose mean the point is; 1 for top and bottom
    unmatched: float  # share of layer-matched heads that had to come from another layer


@dataclass(frozen=True, eq=False)
class Curve:
    """The points of a curve, and the value of each example, labelled by series and count."""

    points: tuple[Point, ...]
    values: Values
    scores: HeadScores
    mode: Mode
    left_out: tuple[str, ...] = ()  # sentences about points that could not be made
    cache: CacheKept | None = None  # how much of it is kept, where heads that are off stream
    at_chance: str = ""  # one sentence if the whole model is not clearly better than chance

    @property
    def raw(self) -> dict[tuple[str, int], Float[np.ndarray, "draws examples"]]:
        """The value of each draw and example, by series and count."""
        return {(p.series, p.count): self.values.of((p.series, p.count)) for p in self.points}

    @property
    def metric(self) -> Metric | TextMetric:
        """The metric that was measured."""
        return self.values.metric

    @property
    def ablation(self) -> str:
        """The ablation, in words."""
        return self.values.ablation

    @property
    def clusters(self) -> np.ndarray:
        """The numbers of each example's template and content."""
        return self.values.clusters

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: that the model is at chance, and which points are left out."""
        return (*filter(None, [self.at_chance]), *self.left_out)

    def series(self, name: str) -> list[Point]:
        """The points of one series, by count."""
        return [point for point in self.points if point.series == name]

    def difference(self, one: str, other: str, count: int) -> Interval:
        """The paired difference of two series at one count, with its interval."""
        return self.values.difference((one, count), (other, count))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The tidy table: one row for each point, with the share of the cache if heads stream."""
        kept = {} if self.cache is None else self.cache.shares
        more = {label: {"cache": share} for label, share in kept.items()}
        return [asdict(p) | more.get((p.series, p.count), {}) for p in self.points]

    def to_frame(self) -> pandas.DataFrame:
        """The tidy table as a pandas data frame, with the columns ranking and ablation added.

        >>> from headcount import curve, load_model, make_task
        >>> model = load_model("smollm2-135m-q4")
        >>> task = make_task("ioi", model.tokenizer, n=16)
        >>> frame = curve(model, task, counts=[0, 8], series=["top"]).to_frame()
        >>> print(frame[["series", "count", "ranking", "ablation"]])
          series  count      ranking ablation
        0    top      0  attribution     zero
        1    top      8  attribution     zero
        """
        added = {"ranking": self.scores.ranking, "ablation": self.ablation}
        return data_frame([row | added for row in self.rows])

    def plot(self, ax: Axes | None = None, *, title: str | None = None) -> Axes:
        """Draw the curve with its intervals as bands, into `ax` or into a new figure.

        >>> from headcount import curve, load_model, make_task
        >>> model = load_model("smollm2-135m-q4")
        >>> task = make_task("ioi", model.tokenizer, n=16)
        >>> ax = curve(model, task, counts=[0, 8], series=["top"]).plot()
        >>> ax.get_xlabel()  # ax.figure.savefig("curve.png") writes the picture
        'Number of heads masked (of 270)'
        """
        drawn = self._draw(ax, title)
        if ax is None:
            shown(figure_of(drawn))
        return drawn

    def figure(self) -> Figure:
        """The curve as a figure for files and pages, which pyplot does not show.

        >>> from headcount import curve, load_model, make_task
        >>> model = load_model("smollm2-135m-q4")
        >>> task = make_task("ioi", model.tokenizer, n=16)
        >>> len(curve(model, task, counts=[0, 8], series=["top"]).figure().axes)
        1
        """
        return figure_of(self._draw(None, None))

    def _draw(self, axes: Axes | None, title: str | None) -> Axes:
        first, layout = self.points[0], self.scores.layout
        xlabel = f"Number of {layout.word}s {self._verb} (of {layout.total})"
        if self.cache is not None:
            xlabel = f"Share of the key/value cache kept, of {self.cache.tokens} tokens"
        return draw_curve(
            self.rows,
            xlabel=xlabel,
            x="count" if self.cache is None else "cache",
            ylabel=self.metric.name,
            title=title or f"{first.task} · {first.model} · ranked by {self.scores.ranking}",
            note=f"ablation: {self.ablation}",
            shares=self.metric.binary,
            axes=axes,
            at_chance=bool(self.at_chance),
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
        title = f"{self.metric.name} · {self._title} · n = {self.points[0].n} · ablation: "
        numbers = table(["heads", *map(str, self._counts)], rows, numbers=len(self._counts))
        chance = table([""], [[self.at_chance]]) if self.at_chance else ""
        return frame(f"{title}{self.ablation}", picture(self.figure()), numbers, chance)

    @property
    def _counts(self) -> list[int]:
        return sorted({point.count for point in self.points})

    @property
    def _verb(self) -> str:
        return "masked" if self.mode == "mask" else "kept"

    @property
    def _title(self) -> str:
        first = self.points[0]
        return f"{first.task} on {first.model}, heads {self._verb} by {self.scores.ranking}"

    def __str__(self) -> str:
        lines = [f"{'series':24}{'heads':>6}{'value':>10}  95 % interval"]
        lines += [
            f"{SERIES[p.series]:24}{p.count:6}{p.value:10.3f}  [{p.low:.3f}, {p.high:.3f}]"
            for p in self.points
        ]
        if self.cache is not None:
            lines[0] += f"{'cache kept':>16}"
            for number, p in enumerate(self.points, start=1):
                lines[number] += f"{self.cache.shares[p.series, p.count]:>10.0%}"
        return "\n".join([*lines, *filter(None, [self.at_chance])])


def default_counts(layout: HeadLayout) -> list[int]:
    """0, 1, 2, 4, … up to half of the heads: as far as random controls have heads to draw from."""
    counts = [0]
    while (following := max(1, counts[-1] * 2)) <= layout.total // 2:
        counts.append(following)
    return counts


@dataclass(frozen=True)
class CurveSettings:
    """What a curve masks, and how.

    counts     numbers of heads (default: 0, 1, 2, 4, … up to half of all heads)
    series     any of top, bottom, random, matched, reranked and anywhere
    seeds      number of draws of random, matched, reranked and anywhere
    mode       "mask" switches the heads off; "keep" switches all others off
    ablation   what replaces the output of a masked head
    scope      for metrics of written texts: see `evaluate`
    positions  for metrics of logits: where gates act, see `evaluate`
    epsilon    the factor by which masked heads are multiplied
    """

    counts: Sequence[int] | None = None
    series: Sequence[str] = ("top", "random", "matched")
    seeds: int = 5
    mode: Mode = "mask"
    ablation: str = "zero"
    scope: Scope = "all"
    epsilon: float = 0.0
    positions: str = "all"

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", read_positions(self.positions))
        for name in self.series:
            if name not in SERIES:
                raise unknown("series", name, SERIES)
        object.__setattr__(self, "ablation", check_ablation(self.ablation))
        if self.counts is not None:
            check_counts(self.counts)
        if self.seeds < 1:
            raise HeadcountError(f"Random controls need at least one seed, not {self.seeds}.")
        if not np.isfinite(self.epsilon):
            raise HeadcountError(f"epsilon is a number, such as 0 or 0.001, not {self.epsilon}.")
        if self.mode not in ("mask", "keep"):
            raise unknown("mode", self.mode, ("mask", "keep"))


@dataclass(frozen=True, eq=False)
class CurveRequest:
    """A curve before it is measured: its cost can be counted, and a lab can carry it out."""

    model: Model
    task: Task
    ranking: Ranking | HeadScores
    metric: Metric | TextMetric
    settings: CurveSettings = CurveSettings()

    @cached_property
    def counts(self) -> list[int]:
        """The sorted numbers of heads; refuses numbers above that of the model's heads."""
        layout, chosen = self.model.layout, self.settings.counts
        counts = default_counts(layout) if chosen is None else check_counts(chosen, layout)
        if isinstance(self.ranking, HeadScores):
            counts = listed_counts(self.ranking, counts) if chosen is None else counts
            check_listed(self.ranking, counts, self.settings.series)
        return counts

    @cached_property
    def points(self) -> tuple[list[tuple[str, int]], tuple[str, ...]]:
        """The series and counts that can be measured, and a sentence for each that cannot."""
        total = self.model.layout.total
        points, left_out = [], []
        for name in dict.fromkeys(self.settings.series):
            for count in self.counts:
                if name in OUTSIDE and 2 * count > total:
                    left_out.append(
                        f"{SERIES[name]} at {count} heads is left out: only {total - count} of "
                        f"{total} heads are outside the top {count}."
                    )
                else:
                    points.append((name, count))
        if not points:
            raise HeadcountError(
                " ".join(left_out) or "A curve needs at least one series and count."
            )
        return points, tuple(left_out)

    def entries(self, scores: HeadScores | None) -> Iterator[HeadSetEntry]:
        """The head sets of all points; pending where they depend on scores that are not known."""
        for series, count in self.points[0]:
            draws = self.settings.seeds if series in DRAWN else 1
            for draw in range(draws):
                gates: Float[np.ndarray, "heads"] | Pending
                if count in (0, self.model.layout.total):
                    gates = self._gates(range(count))  # none or all: the same for every ranking
                elif scores is None and isinstance(self.ranking, Ranking):
                    how = self.settings.mode, self.settings.epsilon
                    gates = Pending((self.ranking.key, how, series, count, draw))
                else:
                    assert scores is not None
                    gates = self._gates(self._heads(scores, series, count, draw)[0])
                yield HeadSetEntry((series, count), gates)

    def _gates(self, heads: Sequence[int]) -> Float[np.ndarray, "heads"]:
        keep, epsilon = self.settings.mode == "keep", self.settings.epsilon
        return head_gates(self.model.layout, heads, keep=keep, off=epsilon)

    def _heads(
        self, scores: HeadScores, series: str, count: int, draw: int
    ) -> tuple[list[int], float]:
        """The heads of one draw of a point, and the share of them that could not be matched."""
        layout, order = self.model.layout, scores.order()
        top = scores.best(count).tolist()
        if series == "top":
            return top, 0.0
        if series == "bottom":
            return order[len(order) - count :].tolist(), 0.0
        if series == "random":
            return draw_random(layout, count, outside=top, seed=draw).tolist(), 0.0
        if series == "anywhere":
            return draw_random(layout, count, seed=draw).tolist(), 0.0
        if series == "reranked":
            again = ranked_again(scores, self.task.split("ranking").clusters, draw)
            if again is None:
                raise HeadcountError(
                    f'The ranking "{scores.ranking}" has no scores by prompt, so it cannot be '
                    "ranked again on resampled prompts: leave the series reranked out."
                )
            return np.argsort(-again, kind="stable")[:count].tolist(), 0.0
        heads, unmatched = draw_matched(layout, top, seed=draw)
        return heads.tolist(), unmatched

    def _sweep(self, head_sets: HeadSets) -> Sweep:
        chosen = self.settings
        how = chosen.ablation, chosen.scope, chosen.positions
        return Sweep(self.model, self.task, self.metric, head_sets, "test", *how)

    def count(self, counter: Counter) -> None:
        """Tell the counter what the ranking and all head sets will measure."""
        scores: HeadScores | None = None
        if isinstance(self.ranking, Ranking):
            scores = self.ranking.known(counter.store)
            self.ranking.count(counter)
        else:
            scores = fitting(self.ranking, self.model)
        sweep = self._sweep(HeadSets.of([], self.model.layout))
        sweep.check()
        counter.sweep(sweep, self.entries(scores))
        whole = 0 if self.settings.mode == "mask" else self.model.layout.total
        measured = chance_of(self.metric, self.task) and whole in {c for _, c in self.points[0]}
        if not measured:
            counter.sweep(whole_model(self.model, self.task, self.metric))

    def result(self, lab: Lab) -> Curve:
        """Rank on the ranking split, then mask (or keep) more and more heads on the test split."""
        points, left_out = self.points  # refuses before anything is measured
        self._sweep(HeadSets.of([], self.model.layout)).check()
        ranking = self.ranking
        scores = ranking.result(lab) if isinstance(ranking, Ranking) else ranking
        table = HeadSets.build(self.model.layout, self.entries(fitting(scores, self.model)))
        sweep = self._sweep(table)
        values = lab.measure(sweep)
        drawn = []
        for series, count in points:
            interval, draws = values.interval((series, count)), len(table.rows[series, count])
            unmatched = [self._heads(scores, series, count, draw)[1] for draw in range(draws)]
            drawn.append(
                Point(
                    model=self.model.name,
                    task=self.task.name,
                    series=series,
                    metric=values.metric.key,
                    count=count,
                    value=interval.value,
                    low=interval.low,
                    high=interval.high,
                    n=len(values.examples),
                    draws=draws,
                    unmatched=float(np.mean(unmatched)),
                )
            )
        whole = values
        if not values.tells_chance:
            whole = lab.measure(whole_model(self.model, self.task, self.metric))
        about = left_out, cache_kept(sweep), whole.at_chance
        return Curve(tuple(drawn), values, scores, self.settings.mode, *about)


def curve(
    model: Model,
    task: Task,
    ranking: str | Callable[[Model, Task], HeadScores] | HeadScores = "attribution",
    *,
    metric: str | Metric | TextMetric = "accuracy",
    lab: Lab | None = None,
    **settings: Any,
) -> Curve:
    """Rank heads on the ranking split, then mask (or keep) more and more of them on the test split.

    Settings are those of `CurveSettings`.

    >>> from headcount import curve, load_model, make_task
    >>> model = load_model("smollm2-135m-q4")
    >>> task = make_task("ioi", model.tokenizer, n=16)
    >>> result = curve(model, task, counts=[0, 8], series=["top"])
    >>> [point.count for point in result.points]
    [0, 8]
    """
    chosen = make_settings("A curve", CurveSettings, settings)
    metric = get_metric(metric)
    check_asked(model, task)
    asked: Ranking | HeadScores
    if isinstance(ranking, str):
        asked = Ranking.of(model, task, ranking)
    else:
        if chosen.counts is not None:
            check_counts(chosen.counts, model.layout)  # refuses before anything is ranked
        asked = rank(model, task, ranking, lab=lab)
    return CurveRequest(model, task, asked, metric, chosen).result(lab_for(lab, model))
