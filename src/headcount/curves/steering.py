"""Steering: add to what heads say the direction in which right and wrong answers differ.

    z' = z + α · σ · d

z is a head's output where the answer is predicted; d, of length 1, is its mean over items that the
model answers right minus its mean over those that it answers wrong, and σ how far items spread
along d. It is the gate formula with g = 1 and b = α · σ · d. Directions come from the ranking
split.

series              what is added, and where
whole               nothing
learned             α · σ · d, at the best heads of the ranking
random-direction    a random direction of the same length, at the same heads
random-heads        α · σ · d of their own, at random heads of the same layers
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.measure.plan import MEASUREMENT
from headcount.engine.measure.sweep import Sweep
from headcount.engine.read.collect import collect
from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, HeadScores
from headcount.lab import Lab, check_asked, lab_for
from headcount.metrics import Metric, get_logit_metric
from headcount.models.gated import gated
from headcount.models.model import Model
from headcount.rankings import Ranking
from headcount.rankings.random_draws import draw_matched
from headcount.rankings.ranking import examples_key
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Task

WHOLE, LEARNED = "whole", "learned"
RANDOM_DIRECTION, RANDOM_HEADS = "random-direction", "random-heads"
SERIES = (LEARNED, RANDOM_DIRECTION, RANDOM_HEADS)
FEWEST = 5  # right answers, and wrong ones, that a direction is made from
Layers = list[Float[np.ndarray, "heads size"]]


@dataclass(frozen=True, eq=False)
class Directions:
    """σ · d of every head, layer by layer, and how many answers were right and wrong."""

    layout: HeadLayout
    layers: Layers
    right: int
    wrong: int

    def biases(
        self, heads: Sequence[int], alpha: float = 5.0, *, seed: int | None = None
    ) -> Layers:
        """What steers at these heads (by number), for `gated`; with a seed, at random."""
        rng = None if seed is None else np.random.default_rng(seed)
        chosen = np.isin(np.arange(self.layout.total), list(heads))
        found = []
        for layer, own in enumerate(self.layers):
            at = chosen[self.layout.layers == layer][:, None]  # (heads, 1)
            if rng is not None:
                drawn = rng.normal(size=own.shape)
                own = drawn * (np.linalg.norm(own, axis=1) / np.linalg.norm(drawn, axis=1))[:, None]
            found.append(alpha * own * at)
        return found


def directions(model: Model, task: Task, *, lab: Lab | None = None) -> Directions:
    """The direction of right answers, of every head, on the ranking split.

    >>> from headcount import gated, load_model, make_task
    >>> from headcount.curves.steering import directions
    >>> model = load_model("smollm2-135m-q4")
    >>> task = make_task("math", model, shots=1).subset(120)
    >>> found, head = directions(model, task), model.layout.parse("23.3")
    >>> with gated(model, biases=found.biases([model.layout.number(head)], alpha=5)):
    ...     pass  # everything that runs the model here is steered
    """
    check_asked(model, task)
    found = _directions(model, task, lab_for(lab, model))
    if refusal := _too_few(task, found):
        raise HeadcountError(refusal)
    return found


def _directions(model: Model, task: Task, lab: Lab) -> Directions:
    examples = model.encode(task.split("ranking"))
    answered = lab.measure(_answers(model, task)).table[0] > 0
    outputs = collect(model, [e.prompt for e in examples], [[-1]] * len(examples), progress=False)
    layers = []
    for output in outputs:
        z = output[:, 0].astype(np.float64)  # (items, heads, size)
        if not 0 < answered.sum() < len(z):
            return Directions(model.layout, [], int(answered.sum()), int((~answered).sum()))
        apart = z[answered].mean(0) - z[~answered].mean(0)
        along = apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-12)
        spread = np.einsum("ihs,hs->ih", z, along).std(0)
        layers.append(spread[:, None] * along)
    return Directions(model.layout, layers, int(answered.sum()), int((~answered).sum()))


def _answers(model: Model, task: Task) -> Sweep:
    """Which ranking items the whole model answers right."""
    accuracy = get_logit_metric("accuracy")
    return Sweep(model, task, accuracy, HeadSets.of([], model.layout), "ranking")


def _too_few(task: Task, found: Directions) -> str:
    """Why there is no direction; an empty text if there is one."""
    if min(found.right, found.wrong) >= FEWEST:
        return ""
    return (
        f'The model answers {found.right} ranking items of "{task.name}" right and {found.wrong} '
        f"wrong, and a direction needs at least {FEWEST} of each: choose another task, or more "
        "items."
    )


@dataclass(frozen=True)
class Steered:
    """What is added to which heads, and how strongly."""

    series: str
    alpha: float


@dataclass(frozen=True, eq=False)
class Steering:
    """The result of a `SteeringRequest`: values by `Steered` and metric, (draws, items).

    Without a direction there are none, and `refusal` says why.
    """

    scores: HeadScores
    found: Directions
    values: Mapping[tuple[Steered, str], Float[np.ndarray, "draws items"]]
    refusal: str = ""


@dataclass(frozen=True, eq=False)
class SteeringRequest:
    """Metrics on the test split, steered at the best heads of a ranking, and the controls."""

    model: Model
    task: Task
    ranking: Ranking
    metrics: Sequence[Metric]
    top: int
    alphas: Sequence[float]
    seeds: int

    @property
    def labels(self) -> list[Steered]:
        """Nothing added, and every series at every α."""
        return [Steered(WHOLE, 0.0), *(Steered(s, a) for a in self.alphas for s in SERIES)]

    def _cells(self) -> Iterator[tuple[Steered, int, Metric]]:
        """Every label but the first, with the number of its draw, and every metric."""
        for label in self.labels[1:]:
            for draw in range(1 if label.series == LEARNED else self.seeds):
                for metric in self.metrics:
                    yield label, draw, metric

    def _context(self, label: Steered, draw: int, metric: Metric) -> dict[str, Any]:
        """All that determines the values of a cell."""
        tested = self.model.encode(self.task.split("test"))
        return {
            **self.ranking.context,
            **metric.store_facts,
            "steered": [label.series, label.alpha, draw, self.top],
            "tested": examples_key(tested),
            "measurement": MEASUREMENT,
        }

    def _whole(self, metric: Metric) -> Sweep:
        return Sweep(self.model, self.task, metric, HeadSets.of([], self.model.layout))

    def count(self, counter: Counter) -> None:
        """Count the ranking, the pass that reads heads, and every cell."""
        self.ranking.count(counter)
        examples = self.model.encode(self.task.split("ranking"))
        counter.sweep(_answers(self.model, self.task))
        passes = 0
        for metric in self.metrics:
            counter.sweep(self._whole(metric))
        for label, draw, metric in self._cells():
            rows = self._whole(metric).rows
            known = counter.store and counter.store.get_document(
                "steering", self._context(label, draw, metric)
            )
            passes += not known
            some = (0, 0, len(rows)) if known else (len(rows), sum(r.length for r in rows), 0)
            counter.values(self.model, *some)
        if passes:
            counter.passes(self.model, sum(len(example.prompt) for example in examples))

    def result(self, lab: Lab) -> Steering:
        """Rank heads, find the direction, and steer."""
        scores = self.ranking.result(lab)
        found = _directions(self.model, self.task, lab)
        values: dict[tuple[Steered, str], np.ndarray] = {}
        if refusal := _too_few(self.task, found):
            return Steering(scores, found, values, refusal)
        for metric in self.metrics:
            values[self.labels[0], metric.key] = lab.measure(self._whole(metric)).values
        many = len(list(self._cells()))
        with progress_bar(
            f"{self.task.name}: steering", many, show=lab.progress, unit="run"
        ) as bar:
            for label, draw, metric in self._cells():
                make = partial(self._steered, lab, found, scores, (label, draw, metric))
                context = partial(self._context, label, draw, metric)
                row = np.array([lab.document("steering", context, make)])
                key = label, metric.key
                values[key] = np.concatenate([values[key], row]) if draw else row
                bar.update(1)
        return Steering(scores, found, values)

    def _steered(
        self, lab: Lab, found: Directions, scores: HeadScores, cell: tuple[Steered, int, Metric]
    ) -> list[float]:
        """The values of one cell."""
        label, draw, metric = cell
        heads: Sequence[int] = scores.best(self.top).tolist()
        if label.series == RANDOM_HEADS:
            heads = draw_matched(self.model.layout, heads, seed=draw)[0].tolist()
        seed = draw if label.series == RANDOM_DIRECTION else None
        with gated(self.model, biases=found.biases(heads, label.alpha, seed=seed)):
            # No store: its keys do not know what is added.
            measured = Lab(store=None, progress=False).measure(self._whole(metric))
        lab.measured["value"] += measured.table.shape[1]
        # Seven digits, so that stored values and new ones are the same.
        return [float(f"{value:.7g}") for value in measured.values[0]]
