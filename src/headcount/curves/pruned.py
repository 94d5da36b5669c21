"""Pruned models as head sets: the best groups of a ranking beside random ones, raw and rescaled.

A pruned model is the model whose removed heads have a gate of 0, and rescaling the others is their
gate, so both are measured by gates on the whole model. `models/prune.py` proves that they are
equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.curves.texts import TextRequest
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending
from headcount.engine.measure.sweep import Sweep, Values
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics import get_logit_metric
from headcount.models.groups import GROUPS, Geometry, Kept, best_kept, geometry_of, random_kept
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking
from headcount.rankings.reconstruction import (
    known_writes,
    least_squares,
    writes_of,
)
from headcount.store import Store
from headcount.tasks import Encoded, Task

WHOLE, BEST, RANDOM = "whole", "best", "random"
RAW, RESCALED, HEALED = "raw", "rescaled", "healed"
LOSS = "logprob_per_token"


@dataclass(frozen=True)
class PrunedHeads:
    """Which heads are kept, and what was done to them: `count` groups, or heads of each group."""

    series: str = WHOLE
    treatment: str = ""
    kept: str = ""
    count: int = 0


@dataclass(frozen=True, eq=False)
class Pruning:
    """What all requests about one pruning share.

    sizes    the sizes to prune to
    text     on which heads are rescaled and, unless there is a task, ranked
    ranking  the name of a ranking, or scores
    task     on whose ranking split heads are ranked
    draws    random draws of each size
    rescale  whether the rescaled models are measured too
    """

    model: Model
    sizes: Sequence[Geometry]
    text: TextRequest
    ranking: str | HeadScores = "reconstruction"
    task: Task | None = None
    draws: int = 5
    rescale: bool = True

    @cached_property
    def whole(self) -> Geometry:
        """The geometry of the model."""
        return geometry_of(self.model)

    def label(self, series: str, treatment: str, size: Geometry) -> PrunedHeads:
        """The label of a size."""
        kind = self.whole.removed(size)
        return PrunedHeads(
            series, treatment, kind, size.groups if kind == GROUPS else size.per_group
        )

    @property
    def treatments(self) -> tuple[str, ...]:
        """What is measured by gates."""
        return (RAW, RESCALED) if self.rescale else (RAW,)

    @property
    def ranked_by(self) -> str:
        """The name of the ranking."""
        if isinstance(self.ranking, HeadScores):
            return self.ranking.ranking
        return self.ranking

    @property
    def kinds(self) -> list[str]:
        """The kinds of all sizes."""
        return list(dict.fromkeys(map(self.whole.removed, self.sizes)))

    def _rankings(self, text: Task) -> dict[str, Ranking]:
        """The ranking for each kind; none where there are scores."""
        if isinstance(self.ranking, HeadScores):
            return {}
        name, on = self.ranked_by, self.task or text
        takes = "unit" in RANKINGS[name].defaults()
        return {
            kind: Ranking.of(self.model, on, name, **({"unit": kind} if takes else {}))
            for kind in self.kinds
        }

    def known(self, store: Store | None) -> Chosen | None:
        """Which heads are kept, if the store knows all that decides it."""
        if "_chosen" not in vars(self):
            text = self.text.known(store)
            if text is None or store is None:
                return None
            task = self.text.task(text)
            found = {kind: r.known(store) for kind, r in self._rankings(task).items()}
            scores = {kind: known for kind, known in found.items() if known is not None}
            together = known_writes(self.model, self._fitted(task), store)
            if len(scores) < len(found) or (self.rescale and together is None):
                return None
            vars(self)["_chosen"] = self._chosen(task, scores, together or [])
        chosen: Chosen = vars(self)["_chosen"]
        return chosen

    def _chosen(
        self, task: Task, scores: Mapping[str, HeadScores], together: Sequence[np.ndarray]
    ) -> Chosen:
        if isinstance(self.ranking, HeadScores):
            scores = dict.fromkeys(self.kinds, self.ranking)
        return Chosen(self, task, scores, together)

    def _fitted(self, task: Task) -> list[Encoded]:
        """The blocks of text on which heads are rescaled."""
        return self.model.encode(task.split("ranking"))

    def count(self, counter: Counter) -> None:
        """Count the text, the rankings and the pass that rescales, unless they are known."""
        if self.known(counter.store) is not None or not counter.first((id(self), "chosen")):
            return
        self.text.count(counter)
        text = self.text.known(counter.store)
        tokens = self.text.fitted * self.text.block
        if text is not None or self.task is not None:
            # Without the text, the task that it would make does not matter.
            task = self.task if text is None else self.text.task(text)
            assert task is not None
            for ranking in self._rankings(task).values():
                ranking.count(counter)
        elif self.ranked_by == "group-ablation":
            counter.passes(self.model, tokens * self.whole.groups * self.whole.layers)
        counter.passes(self.model, tokens * self.rescale)

    def result(self, lab: Lab) -> Chosen:
        """Rank the heads, and read what they write on the text."""
        known = self.known(lab.store)
        if known is not None:
            return known
        task = self.text.task(self.text.result(lab))
        scores = {kind: ranking.result(lab) for kind, ranking in self._rankings(task).items()}

        together = writes_of(self.model, self._fitted(task), lab) if self.rescale else []
        vars(self)["_chosen"] = chosen = self._chosen(task, scores, together)
        return chosen


@dataclass(frozen=True, eq=False)
class Chosen:
    """What decides which heads are kept, and how they are rescaled.

    text      the text, as a task
    scores    the scores, by what is removed
    together  what heads write together, by layer; none if nothing is rescaled
    """

    pruning: Pruning
    text: Task
    scores: Mapping[str, HeadScores]
    together: Sequence[Float[np.ndarray, "heads heads"]]

    def kept(self, size: Geometry, draw: int | None) -> Kept:
        """The best heads, or those of a random draw."""
        whole = self.pruning.whole
        if draw is None:
            return best_kept(self.scores[whole.removed(size)], whole, size)
        return random_kept(whole, size, draw)

    def gates(self, size: Geometry, draw: int | None, treatment: str) -> Float[np.ndarray, "heads"]:
        """The gates that a pruned model equals.

        Rescaled heads write most nearly what all heads do: in every layer, their gates are the
        least squares of the block's output, as the whole model has it on the text.
        """
        kept = self.kept(size, draw)
        if treatment == RAW:
            return kept.astype(np.float32)
        return least_squares(self.together, kept, self.pruning.whole)


@dataclass(frozen=True, eq=False)
class PrunedRequest:
    """One task, or the text, under all head sets of a pruning and with all heads."""

    pruning: Pruning
    task: Task | None  # None: the text
    metric: str = LOSS

    def sweep(self, task: Task, head_sets: HeadSets) -> Sweep:
        """The measurement on the task, or on the text as a task."""
        return Sweep(self.pruning.model, task, get_logit_metric(self.metric), head_sets)

    def size(self) -> tuple[int, int]:
        """How many values one head set has, and how many tokens run for them."""
        if self.task is None:
            blocks = self.pruning.text.tested
            return blocks, blocks * self.pruning.text.block
        rows = self.sweep(self.task, HeadSets.of([], self.pruning.model.layout)).rows
        return len(rows), sum(row.length for row in rows)

    def _entries(self, chosen: Chosen | None) -> Iterator[HeadSetEntry]:
        """All head sets; pending ones as long as nothing is chosen."""
        pruning, ones = self.pruning, np.ones(self.pruning.model.layout.total, np.float32)
        yield HeadSetEntry(PrunedHeads(), ones)
        for size in pruning.sizes:
            for treatment in pruning.treatments:
                for draw in (None, *range(pruning.draws)):
                    label = pruning.label(BEST if draw is None else RANDOM, treatment, size)
                    gates: Any = Pending((id(pruning), label, draw))
                    if chosen is not None:
                        gates = chosen.gates(size, draw, treatment)
                    yield HeadSetEntry(label, gates)

    def count(self, counter: Counter) -> None:
        """Count the rankings and all head sets."""
        pruning = self.pruning
        pruning.count(counter)
        chosen = pruning.known(counter.store)
        task = chosen.text if self.task is None and chosen is not None else self.task
        if task is not None:
            sweep = self.sweep(task, HeadSets.of([], pruning.model.layout))
            counter.sweep(sweep, self._entries(chosen))
        else:
            sets = len(list(self._entries(None)))
            values, tokens = self.size()
            counter.values(pruning.model, sets * values, sets * tokens, 0)

    def result(self, lab: Lab) -> Values:
        """The values, labelled by `PrunedHeads`."""
        chosen = self.pruning.result(lab)
        table = HeadSets.build(self.pruning.model.layout, self._entries(chosen))
        return lab.measure(self.sweep(self.task or chosen.text, table))
