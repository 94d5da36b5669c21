"""Zero the heads that are least active on each input: the metric at every share of heads.

A threshold for each score and share is fixed on the ranking split, over all its prompts and heads
together; on the test split, each prompt loses the heads whose score is at or below it. How many
these are differs from prompt to prompt. Three controls stand beside it: the same number of heads
for every prompt, by the mean score over the ranking prompts (`constant`); as many random heads as
the first score zeroes on that very prompt (`random`); and as many of them in each layer
(`matched`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any
from zlib import crc32

import numpy as np
from jaxtyping import Bool, Float

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending
from headcount.engine.measure.plan import MEASUREMENT
from headcount.engine.measure.sweep import Sweep
from headcount.engine.read.activity import attention_shape, head_norms
from headcount.errors import HeadcountError
from headcount.heads import HeadLayout
from headcount.lab import Lab
from headcount.metrics import Metric
from headcount.models.model import Model
from headcount.rankings.ranking import examples_key
from headcount.tasks import Encoded, Task

PER_INPUT, CONSTANT, RANDOM, MATCHED, WHOLE = "per-input", "constant", "random", "matched", "whole"
ATTENTION, WRITTEN = ("first-token", "entropy"), "written"  # scores that not every model has
READ = {  # what each score is made of
    "relative-norm": "output",
    "output-norm": "output",
    "value-norm": "value",
    "first-token": "first",
    "entropy": "entropy",
    "written": "written",
}
Activity = Mapping[str, tuple[Float[np.ndarray, "ranked heads"], Float[np.ndarray, "tested heads"]]]


@dataclass(frozen=True, eq=False)
class ActivityRequest:
    """The activity of all heads on the ranking and the test prompts, by these scores.

    The result has a score's values on both splits, the lowest of which are silent, or the error
    that says why the model does not have the score.
    """

    model: Model
    task: Task
    scores: tuple[str, ...]

    @cached_property
    def examples(self) -> list[Encoded]:
        """The ranking prompts, then the test prompts."""
        if any(example.whole_text for example in self.task):
            raise HeadcountError(
                f'The answers of "{self.task.name}" are whole texts without a prompt, on which the '
                "activity of heads could be read: choose a task with prompts."
            )
        both = [self.model.encode(self.task.split(split)) for split in ("ranking", "test")]
        return [*both[0], *both[1]]

    def context(self, kind: str) -> dict[str, Any]:
        """All that determines the scores of one kind."""
        facts = {"model": self.model.name, **self.model.identity, "measurement": MEASUREMENT}
        return facts | {"activity": kind, "examples": examples_key(self.examples)}

    @property
    def _kinds(self) -> list[str]:
        """The passes that are needed: a kind each."""
        norms = [score for score in self.scores if score not in ATTENTION]
        kinds = ["written" if WRITTEN in norms else "norms"] * bool(norms)
        return kinds + ["attention"] * (len(norms) < len(self.scores))

    def count(self, counter: Counter) -> Activity | None:
        """Count the passes that are missing; the scores, if the store holds all of them."""
        known: dict[str, Any] = {}
        for kind in self._kinds:
            document = None
            if counter.store is not None:
                document = counter.store.get_document("activity", self.context(kind))
            if document is None:
                counter.passes(self.model, sum(len(e.prompt) for e in self.examples))
            known[kind] = document
        if any(document is None for document in known.values()):
            return None
        return self._scores(known.values())

    def result(self, lab: Lab) -> tuple[Activity, dict[str, str]]:
        """The scores, and why a score is missing."""
        documents, refusals = [], {}
        kinds = self._kinds
        while kinds:
            kind = kinds.pop()
            try:
                read, context = partial(self._read, kind, lab), partial(self.context, kind)
                documents.append(lab.document("activity", context, read))
            except HeadcountError as error:
                refusals[kind] = str(error)
                if kind == "written" and set(self.scores) - {*ATTENTION, WRITTEN}:
                    kinds.append("norms")
        found = self._scores(documents)
        if not found:
            raise HeadcountError(next(iter(refusals.values())))
        refused = {}
        for score in (score for score in self.scores if score not in found):
            kinds = ["attention"] if score in ATTENTION else ["norms", "written"]
            refused[score] = next(refusals[kind] for kind in kinds if kind in refusals)
        return found, refused

    def _read(self, kind: str, lab: Lab) -> dict[str, Any]:
        """One pass over all prompts."""
        sequences = [example.prompt for example in self.examples]
        if kind == "attention":
            found = attention_shape(self.model, sequences, progress=lab.progress)
        else:
            own = {"written": kind == "written", "progress": lab.progress}
            found = head_norms(self.model, sequences, **own)
        # Six digits, so that stored scores and new ones are the same.
        return {name: [[float(f"{x:.6g}") for x in row] for row in s] for name, s in found.items()}

    def _scores(self, documents: Iterable[Any]) -> Activity:
        read = {name: np.array(rows) for each in documents for name, rows in each.items()}
        many, found = len(self.task.split("ranking")), {}
        for score in self.scores:
            values = activity_of(score, read, self.model.layout)
            if values is not None:
                found[score] = values[:many], values[many:]
        return found


def activity_of(
    score: str, read: Mapping[str, np.ndarray], layout: HeadLayout
) -> Float[np.ndarray, "prompts heads"] | None:
    """One score from what was read, the lowest values of which are silent; None if it is missing.

    >>> read = {"output": np.array([[1.0, 3.0, 4.0, 4.0]]), "first": np.array([[0.9, 0.2, 0, 1]])}
    >>> activity_of("relative-norm", read, HeadLayout((2, 2))).tolist()
    [[0.5, 1.5, 1.0, 1.0]]
    """
    name = READ[score]
    if name not in read:
        return None
    values = read[name]
    if score == "relative-norm":
        layers = (layout.layers == np.arange(len(layout.counts))[:, None]).astype(float)
        means = (values @ layers.T / layers.sum(1))[:, layout.layers]  # (prompts, heads)
        return values / np.where(means > 0, means, 1.0)
    return -values if score == "first-token" else values  # much attention to it is silence


@dataclass(frozen=True, eq=False)
class SilentRequest:
    """A metric on the test split with the least active heads zeroed, at every share.

    shares   percentages of all heads; thresholds zero at least these on the ranking split
    seeds    the number of draws of each random control
    """

    model: Model
    task: Task
    scores: tuple[str, ...]
    metric: Metric
    shares: Sequence[int]
    seeds: int = 1

    @cached_property
    def activity(self) -> ActivityRequest:
        """The request for the scores."""
        return ActivityRequest(self.model, self.task, self.scores)

    @cached_property
    def prompts(self) -> int:
        """How many prompts are tested."""
        return len(self.task.split("test"))

    def entries(self, activity: Activity | None) -> Iterator[HeadSetEntry]:
        """The head sets; pending while the activity of heads is not known."""
        layout, every = self.model.layout, range(self.prompts)
        yield HeadSetEntry((WHOLE, "", 0), np.ones(layout.total, dtype=np.float32))
        for share in self.shares:
            for score in self.scores if activity is None else activity:
                silent: Any = None
                constant: Any = None
                if activity is not None:
                    ranking, test = activity[score]
                    silent = test <= threshold(ranking, share)
                    order = np.argsort(ranking.mean(0), kind="stable")
                    constant = np.isin(np.arange(layout.total), order[: fixed(share, layout)])
                label = CONSTANT, score, share
                yield HeadSetEntry(label, _gates(constant, label))
                for place in every:
                    label = PER_INPUT, score, share
                    own = None if silent is None else silent[place]
                    yield HeadSetEntry(label, _gates(own, (label, place)), place)
            yield from self._random(activity, share)

    def _random(self, activity: Activity | None, share: int) -> Iterator[HeadSetEntry]:
        """As many random heads as the first score zeroes on each prompt: of all, and by layer."""
        ids = [example.id for example in self.task.split("test")]
        silent: Any = None
        if activity is not None:
            ranking, test = next(iter(activity.values()))
            silent = test <= threshold(ranking, share)
        for seed in range(self.seeds):
            for place, name in enumerate(ids):
                for series in (RANDOM, MATCHED):
                    drawn = None
                    if silent is not None:
                        rng = np.random.default_rng([seed, share, crc32(name.encode())])
                        drawn = shuffled(silent[place], self.model.layout, rng, series == MATCHED)
                    label = series, seed, share
                    yield HeadSetEntry(label, _gates(drawn, (label, place)), place)

    def _sweep(self, head_sets: HeadSets) -> Sweep:
        return Sweep(self.model, self.task, self.metric, head_sets)

    def count(self, counter: Counter) -> None:
        """Count the passes that read activity, and all head sets."""
        known = self.activity.count(counter)
        empty = HeadSets.of([], self.model.layout)
        counter.sweep(self._sweep(empty), self.entries(known))

    def result(self, lab: Lab) -> Silenced:
        """Read the activity, zero the heads that are least active, and measure."""
        self._sweep(HeadSets.of([], self.model.layout)).check()
        activity, refused = self.activity.result(lab)
        table = HeadSets.build(self.model.layout, self.entries(activity), self.prompts)
        found = lab.measure(self._sweep(table))
        values: dict[tuple[str, str, int], np.ndarray] = {(WHOLE, "", 0): found.of((WHOLE, "", 0))}
        zeroed = {}
        first = next(iter(activity))
        for share in self.shares:
            for score in activity:
                for series in (PER_INPUT, CONSTANT):
                    values[series, score, share] = found.of((series, score, share))
                rows = list(table.rows[PER_INPUT, score, share])
                zeroed[score, share] = (table.gates[rows] == 0).mean(1)
            for series in (RANDOM, MATCHED):
                draws = [found.of((series, seed, share)) for seed in range(self.seeds)]
                values[series, first, share] = np.concatenate(draws)
        return Silenced(self, values, zeroed, refused)


@dataclass(frozen=True, eq=False)
class Silenced:
    """The result of a `SilentRequest`.

    values   by series, score and share; random controls have the score that they are matched to
    zeroed   the share of heads that each prompt loses, by score and share
    refused  why a score is missing
    """

    request: SilentRequest
    values: Mapping[tuple[str, str, int], Float[np.ndarray, "draws prompts"]]
    zeroed: Mapping[tuple[str, int], Float[np.ndarray, "prompts"]]
    refused: Mapping[str, str] = field(default_factory=dict)


def threshold(scores: Float[np.ndarray, "prompts heads"], share: int) -> float:
    """The smallest score at or below which at least this percentage of all scores lies.

    >>> threshold(np.array([[0.0, 3.0], [1.0, 2.0]]), 50)
    1.0
    """
    return float(np.quantile(scores, share / 100, method="inverted_cdf"))


def fixed(share: int, layout: HeadLayout) -> int:
    """The number of heads that the constant control zeroes."""
    return round(layout.total * share / 100)


def shuffled(
    silent: Bool[np.ndarray, "heads"], layout: HeadLayout, rng: np.random.Generator, by_layer: bool
) -> Bool[np.ndarray, "heads"]:
    """As many random heads as are silent: of all heads, or in each layer as many as there.

    >>> rng = np.random.default_rng(0)
    >>> shuffled(np.array([True, False, True, True]), HeadLayout((2, 2)), rng, True).tolist()[2:]
    [True, True]
    """
    if not by_layer:
        return rng.permutation(silent)
    parts = np.split(silent, np.cumsum(layout.counts)[:-1])
    return np.concatenate([rng.permutation(part) for part in parts])


def _gates(
    silent: Bool[np.ndarray, "heads"] | None, key: Any
) -> Float[np.ndarray, "heads"] | Pending:
    return Pending(("silent", key)) if silent is None else (~silent).astype(np.float32)
