"""Keep only the first k edges of an order, of all heads together: the metric at each k."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.engine.edges.attention import edges_of
from headcount.engine.edges.job import ABSOLUTE, RANDOM, STEPS, EdgeJob, Emitted
from headcount.engine.measure.ablations import form
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.executor import Unit
from headcount.engine.measure.plan import MEASUREMENT, default_tokens
from headcount.engine.measure.sweep import whole_model
from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.metrics import Metric
from headcount.metrics.answers import answer_rows
from headcount.models.model import Model
from headcount.rankings.prove_derivative import require_derivative
from headcount.rankings.ranking import examples_key
from headcount.store import Store
from headcount.system.files import digest
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Encoded, Task, require_corrupted

SLOWER = 3  # times the work of a plain pass: weights are formed twice, and in the open


@dataclass(frozen=True, eq=False)
class EdgesRequest:
    """A metric on the test split with only the first edges of each order kept, at every count.

    ranked_by  the orders of edges: attribution or integrated-gradients, by their scores or (with
               ", absolute" behind) by the absolute values of these
    counts     the numbers of edges kept, besides none and all
    seeds      the number of random orders
    own        each prompt keeps the edges that rank first on itself; otherwise those of the mean
               over the ranking prompts of its template and length
    """

    model: Model
    task: Task
    ranked_by: tuple[str, ...]
    metric: Metric
    counts: Sequence[int]
    seeds: int = 0
    own: bool = False

    @cached_property
    def examples(self) -> list[Encoded]:
        """The tested prompts."""
        return self.model.encode(self.task.split("test"))

    @cached_property
    def ranked(self) -> list[Encoded]:
        """The prompts on which edges are ranked."""
        return self.examples if self.own else self.model.encode(self.task.split("ranking"))

    @property
    def prompts(self) -> int:
        """How many prompts are tested."""
        return len(self.examples)

    @cached_property
    def total(self) -> int:
        """The edges of the longest prompt."""
        return edges_of(self.model.layout.total, [example.length for example in self.examples])

    @cached_property
    def all_counts(self) -> tuple[int, ...]:
        """The counts with none and all."""
        below = {0, *(count for count in self.counts if count < self.total)}
        return (*sorted(below), self.total)

    @property
    def orders(self) -> list[str]:
        """The orders of edges."""
        return [*self.ranked_by, *[RANDOM] * bool(self.seeds)]

    def check(self) -> None:
        """Refuse prompts that do not align, and metrics that need several passes of a prompt."""
        require_corrupted(self.examples)
        require_corrupted(self.ranked)
        if len(answer_rows(self.metric, self.examples).rows) != len(self.examples):
            raise HeadcountError(
                f"The metric {self.metric.key} compares whole answers in several passes, and edges "
                "are kept in one: choose logit_difference, or first_token_logit_difference."
            )

    @cached_property
    def units(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The tested examples that are measured together, and the examples that rank for them."""
        groups: dict[Any, list[int]] = defaultdict(list)
        for place, example in enumerate(self.examples):
            shape = len(example.prompt), len(example.target)
            groups[shape if self.own else (form(example, corrupted=False), *shape)].append(place)
        by_form: dict[Any, list[int]] = defaultdict(list)
        for place, example in enumerate(self.ranked):
            shape = len(example.prompt), len(example.target)
            by_form[(form(example, corrupted=False), *shape)].append(place)
        rows = 8
        units = []
        for key, places in groups.items():
            ranked = () if self.own else tuple(by_form[key])
            if not self.own and not ranked:
                raise HeadcountError(
                    f"Example {self.examples[places[0]].example.id} has no ranking prompt of its "
                    "template and length, so no edges align: rank per prompt (per=prompt)."
                )
            step = rows if self.own else len(places)
            units += [(tuple(places[at : at + step]), ranked) for at in range(0, len(places), step)]
        return units

    def _context(self, example: Encoded, ranked: Sequence[int]) -> dict[str, Any]:
        """All that determines the values of one example."""
        return {
            "model": self.model.name,
            **self.model.identity,
            "task": self.task.name,
            "example": example.key,
            "ranked": examples_key(self.ranked[place] for place in ranked),
            "edges": [list(self.ranked_by), self.seeds, self.own],
            "counts": list(self.all_counts),
            "metric": [self.metric.key, getattr(self.metric, "version", 1)],
            "measurement": MEASUREMENT,
        }

    def _known(self, store: Store | None) -> dict[int, Any]:
        """The values that the store holds, by the place of the example."""
        if store is None:
            return {}
        found = {
            place: store.get_document("edges", self._context(self.examples[place], ranked))
            for places, ranked in self.units
            for place in places
        }
        return {place: value for place, value in found.items() if value is not None}

    def count(self, counter: Counter) -> None:
        """Count the backward passes of rankings, and a pass for each order and count."""
        self.check()
        known = self._known(counter.store)
        rankings = {order.removesuffix(ABSOLUTE) for order in self.ranked_by}
        steps = sum(max(1, STEPS[ranking]) for ranking in rankings)
        each = (len(self.ranked_by) + self.seeds) * len(self.all_counts)
        for places, ranked in self.units:
            if known.keys() >= set(places):
                counter.values(self.model, 0, 0, each * len(places))
                continue
            tokens = self.examples[places[0]].length
            scored = len(places) if self.own else len(ranked)
            counter.passes(self.model, SLOWER * steps * scored * tokens, "gradients")
            values = each * len(places)
            counter.values(self.model, values, SLOWER * values * tokens, 0)
        counter.sweep(whole_model(self.model, self.task, self.metric))

    def result(self, lab: Lab) -> EdgesKept:
        """Rank the edges, then keep more and more of them."""
        self.check()
        require_derivative(self.model)
        draws = {name: self.seeds if name == RANDOM else 1 for name in self.orders}
        shape = len(self.all_counts), self.prompts
        values = {name: np.full((times, *shape), np.nan) for name, times in draws.items()}
        known = self._known(lab.store)
        for place, stored in known.items():
            for name, table in stored.items():
                values[name][..., place] = table
        job = EdgeJob(
            self.examples,
            self.ranked,
            self.metric,
            self.ranked_by,
            self.all_counts,
            self.seeds,
            self.own,
            default_tokens(self.model) // 4,
        )
        units = [
            Unit(
                digest("".join(self.examples[place].key for place in places)),
                f"{self.task.name}, edges of {len(places)} prompts",
                (places, ranked),
            )
            for places, ranked in self.units
            if not known.keys() >= set(places)
        ]
        ranked_for = {place: ranked for places, ranked in self.units for place in places}
        label = f"{self.task.name}: edges"
        with progress_bar(label, self.prompts - len(known), show=lab.progress) as bar:

            def keep(unit: Unit, emitted: Emitted) -> None:
                places, tables = emitted
                for name, table in tables.items():
                    values[name][..., list(places)] = table
                lab.measured["value"] += sum(table.size for table in tables.values())
                if lab.store is not None:
                    for column, place in enumerate(places):
                        own = {name: table[..., column].tolist() for name, table in tables.items()}
                        context = self._context(self.examples[place], ranked_for[place])
                        lab.store.put_document("edges", context, own)
                bar.update(len(places))

            if units:
                lab.run(self.model, job, units, keep)
        whole = lab.measure(whole_model(self.model, self.task, self.metric))
        return EdgesKept(self, values, whole.at_chance)


@dataclass(frozen=True, eq=False)
class EdgesKept:
    """The result of an `EdgesRequest`: values by order, and whether the model is at chance."""

    request: EdgesRequest
    values: Mapping[str, Float[np.ndarray, "draws counts prompts"]]
    at_chance: str = ""
    ablation: str = field(default="what the edge says on the corrupted prompt")
