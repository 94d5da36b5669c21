"""Inside the model, with and without inserts: profiles, the affine check, sparse activations.

Everything is per prompt and head, so that claims can have intervals over prompts. It is kept in the
store as one document for each model and set of prompts.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.plan import MEASUREMENT
from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.studies.token_insertion.activations import STATISTICS, activation_statistics
from headcount.studies.token_insertion.affine import AFFINE, affine_fit, head_outputs
from headcount.studies.token_insertion.profiles import EFFECTS, profile_effects, profiles
from headcount.tasks import Task, encode
from headcount.tasks.inserts import Insert, Inserted, locate, with_insert
from headcount.tasks.maths.token_classes import CLASSES, token_class

QUERIES = ("all", "original")  # whose attention a profile averages: all later tokens, or those
LOOKS = 4  # passes over each prompt, at most


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen on some prompts.

    effects       (series, queries, effect) → (prompts, heads); queries as in QUERIES
    affine        (series, entry of AFFINE) → (prompts, heads); NaN where a head says nothing
    activations   series → (prompts, classes, statistics); NaN where a prompt has no such token
    drawn         series → (heads of the layer, tokens): profiles, the mean over `aligned` prompts
    spans         series → places of the inserted tokens in `drawn`
    """

    effects: Mapping[tuple[str, ...], Float[np.ndarray, "prompts heads"]]
    affine: Mapping[tuple[str, ...], Float[np.ndarray, "prompts heads"]]
    activations: Mapping[str, Float[np.ndarray, "prompts classes statistics"]]
    drawn: Mapping[str, Float[np.ndarray, "drawn _"]]
    spans: Mapping[str, Sequence[int]]
    aligned: int

    @property
    def series(self) -> list[str]:
        """The inserts that were looked at."""
        return list(dict.fromkeys(series for series, _ in self.affine))

    def scaled(
        self, series: str, entry: str, heads: Sequence[int] | Int[np.ndarray, "some"]
    ) -> Float[np.ndarray, "known"]:
        """The mean of an entry of AFFINE over those heads that say something, by prompt."""
        values = self.affine[series, entry][:, list(heads)]
        known = ~np.isnan(values)
        values, known = values[known.any(1)], known[known.any(1)]
        return np.asarray(np.where(known, values, 0).sum(1) / known.sum(1))

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back; numbers to seven digits."""
        return {
            "effects": {"\t".join(key): _listed(value) for key, value in self.effects.items()},
            "affine": {"\t".join(key): _listed(value) for key, value in self.affine.items()},
            "activations": {key: _listed(value) for key, value in self.activations.items()},
            "drawn": {key: _listed(value) for key, value in self.drawn.items()},
            "spans": {key: list(value) for key, value in self.spans.items()},
            "aligned": self.aligned,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Look:
        """Read what `to_json` wrote."""
        effects, affine, activations, drawn = (
            {key: np.array(lists, dtype=float) for key, lists in data[name].items()}  # None: NaN
            for name in ("effects", "affine", "activations", "drawn")
        )
        return cls(
            {tuple(key.split("\t")): values for key, values in effects.items()},
            {tuple(key.split("\t")): values for key, values in affine.items()},
            activations,
            drawn,
            data["spans"],
            data["aligned"],
        )


def _listed(values: np.ndarray) -> Any:
    """Nested lists; JSON has no NaN, so None stands for it."""
    if values.ndim > 1:
        return [_listed(row) for row in values]
    return [None if np.isnan(v) else float(f"{v:.7g}") for v in values]


@dataclass(frozen=True, eq=False)
class LookRequest:
    """A request for a look at prompts without an insert and with each of some inserts.

    The profiles of `layer` are kept for the figure. The head set `gates` holds throughout, and the
    first `sinks` tokens are left out of the effects on profiles.
    """

    model: Model
    task: Task
    inserts: Mapping[str, Insert]
    layer: int
    gates: Float[np.ndarray, "heads"]
    sinks: int

    @cached_property
    def prompts(self) -> dict[str, list[Inserted]]:
        """The prompts of each series; those without an insert are the first."""
        tokenizer = self.model.tokenizer
        without = encode(self.task, tokenizer)
        encoded = {"w/o": without}
        for series, insert in self.inserts.items():
            encoded[series] = encode(with_insert(self.task, tokenizer, insert), tokenizer)
        return {
            series: [locate(new, old) for new, old in zip(some, without, strict=True)]
            for series, some in encoded.items()
        }

    def ids(self, series: str) -> list[tuple[int, ...]]:
        """The token ids of a series' prompts."""
        return [one.encoded.prompt for one in self.prompts[series]]

    def bodies(self, series: str) -> list[list[int]]:
        """Where each prompt, which has two pieces, holds the tokens of its problem."""
        pairs = zip(self.prompts["w/o"], self.prompts[series], strict=True)
        return [[new.original[p] for p in range(*old.encoded.borders[1:])] for old, new in pairs]

    def context(self) -> dict[str, Any]:
        """All that determines what is seen."""
        return {
            "model": self.model.name,
            **self.model.identity,
            "task": "token-insertion",
            "metric": "look",
            "stand_in": "zero",
            "prompts": {
                series: [one.encoded.key for one in some] for series, some in self.prompts.items()
            },
            "layer": self.layer,
            "gates": [float(gate) for gate in self.gates],
            "sinks": self.sinks,
            "version": 3,
            "measurement": MEASUREMENT,
        }

    def count(self, counter: Counter) -> None:
        """Tell the tokens of the passes, unless the store holds the look."""
        store = counter.store
        if store is None or store.get_document("insert look", self.context()) is None:
            tokens = sum(len(ids) for series in self.prompts for ids in self.ids(series))
            counter.passes(self.model, LOOKS * tokens)

    def result(self, lab: Lab) -> Look:
        """Look, or read what was seen before."""
        # The same numbers whether they were kept or not: through JSON in both cases.
        document = lab.document("insert look", self.context, lambda: self._see(lab).to_json())
        return Look.from_json(document)

    def _see(self, lab: Lab) -> Look:
        gates = None if (self.gates == 1).all() else self.gates
        how: dict[str, Any] = {"gates": gates, "progress": lab.progress}
        # The largest group of prompts whose tokens, original and inserted, have equal places.
        forms = [
            tuple((len(one.encoded.prompt), one.span) for one in same)
            for same in zip(*self.prompts.values(), strict=True)
        ]
        ((form, _),) = Tally(forms).most_common(1)
        alike = [place for place, other in enumerate(forms) if other == form]
        effects, drawn = self._profiles(alike, how)
        spans = {series: some[alike[0]].span for series, some in self.prompts.items()}
        affine, activations = self._affine(how), self._activations(how)
        return Look(effects, affine, activations, drawn, spans, len(alike))

    def _profiles(self, alike: Sequence[int], how: Mapping[str, Any]) -> tuple[Any, Any]:
        """Effects on all profiles, and the layer's mean profiles over prompts of one form."""
        first = self.model.layout.starts[self.layer]
        heads = slice(first, first + self.model.layout.counts[self.layer])
        drawn, effects = {}, {}
        old: list[np.ndarray] = []
        for series, some in self.prompts.items():
            new = profiles(self.model, self.ids(series), **how)
            drawn[series] = np.mean([new[place][heads] for place in alike], axis=0)
            if series == "w/o":
                old = new
                continue
            original = [one.original for one in some]
            by_queries = {
                "all": new,
                "original": profiles(self.model, self.ids(series), original, **how),
            }
            for queries, new in by_queries.items():
                rows = [
                    profile_effects(a, b, one.original, one.span, sinks=self.sinks)
                    for a, b, one in zip(old, new, some, strict=True)
                ]
                for effect in EFFECTS:
                    effects[series, queries, effect] = np.stack([row[effect] for row in rows])
        return effects, drawn

    def _affine(self, how: Mapping[str, Any]) -> dict[tuple[str, ...], np.ndarray]:
        """All of AFFINE at the tokens of the problem, behind an insert before or between."""
        old, *others = (
            head_outputs(self.model, self.ids(series), self.bodies(series), **how)
            for series in self.prompts
        )
        affine: dict[tuple[str, ...], np.ndarray] = {}
        for series, new in zip(self.inserts, others, strict=True):
            fits = [
                [affine_fit(a, b) for a, b in zip(before, after, strict=True)]
                for before, after in zip(old, new, strict=True)
            ]
            for number, name in enumerate(AFFINE):
                affine[series, name] = np.array(
                    [np.concatenate([fit[number] for fit in by_site]) for by_site in fits]
                )
        return affine

    def _activations(self, how: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Statistics by kind of token, in the problem; none where the first MLP has no module."""
        decode, limits = self.model.tokenizer.decode, None
        kinds = [
            np.array([token_class(decode([ids[place]])) for place in body])
            for ids, body in zip(self.ids("w/o"), self.bodies("w/o"), strict=True)
        ]
        by_series = {}
        for series in self.prompts:
            ids, bodies = self.ids(series), self.bodies(series)
            try:
                values, limits = activation_statistics(
                    self.model, ids, bodies, limits=limits, **how
                )
            except HeadcountError:
                return {}
            by_series[series] = np.array(list(map(_by_class, values, kinds)))
        return by_series


def _by_class(
    values: Float[np.ndarray, "tokens statistics"], kinds: np.ndarray
) -> list[Float[np.ndarray, "statistics"]]:
    """The mean over the tokens of each class; NaN for a class that no token has."""
    nothing = np.full(len(STATISTICS), np.nan)
    return [values[kinds == name].mean(0) if (kinds == name).any() else nothing for name in CLASSES]
