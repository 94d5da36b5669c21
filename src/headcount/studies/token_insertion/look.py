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
from headcount.tasks import Encoded, Task, encode
from headcount.tasks.inserts import Insert, Inserted, locate, with_insert
from headcount.tasks.token_classes import CLASSES, token_class

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
    def without(self) -> list[Encoded]:
        """The prompts as they are."""
        return encode(self.task, self.model.tokenizer)

    @cached_property
    def inserted(self) -> dict[str, list[Inserted]]:
        """The prompts with each insert."""
        tokenizer = self.model.tokenizer
        found = {}
        for series, insert in self.inserts.items():
            prompts = encode(with_insert(self.task, tokenizer, insert), tokenizer)
            found[series] = [locate(a, b) for a, b in zip(prompts, self.without, strict=True)]
        return found

    @property
    def prompts(self) -> dict[str, list[Encoded]]:
        """All prompts, by series."""
        more = {series: [one.encoded for one in some] for series, some in self.inserted.items()}
        return {"w/o": self.without, **more}

    def context(self) -> dict[str, Any]:
        """All that determines what is seen."""
        return {
            "model": self.model.name,
            **self.model.identity,
            "task": "token-insertion",
            "metric": "look",
            "stand_in": "zero",
            "prompts": {series: [one.key for one in some] for series, some in self.prompts.items()},
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
            tokens = sum(len(one.prompt) for some in self.prompts.values() for one in some)
            counter.passes(self.model, LOOKS * tokens)

    def result(self, lab: Lab) -> Look:
        """Look, or read what was seen before."""
        # The same numbers whether they were kept or not: through JSON in both cases.
        document = lab.document("insert look", self.context, lambda: self._see(lab).to_json())
        return Look.from_json(document)

    def _see(self, lab: Lab) -> Look:
        gates = None if (self.gates == 1).all() else self.gates
        how: dict[str, Any] = {"gates": gates, "progress": lab.progress}
        alike = self._alike()
        effects, drawn = self._profiles(alike, how)
        spans = {series: some[alike[0]].span for series, some in self.inserted.items()}
        affine, activations = self._affine(how), self._activations(how)
        return Look(effects, affine, activations, drawn, {"w/o": (), **spans}, len(alike))

    def _alike(self) -> list[int]:
        """The largest group of prompts whose tokens, original and inserted, have equal places."""
        forms = [
            (len(one.prompt), *(some[place].span for some in self.inserted.values()))
            for place, one in enumerate(self.without)
        ]
        ((most, _),) = Tally(forms).most_common(1)
        return [place for place, form in enumerate(forms) if form == most]

    def _profiles(self, alike: Sequence[int], how: Mapping[str, Any]) -> tuple[Any, Any]:
        """Effects on all profiles, and the layer's mean profiles over prompts of one form."""
        layout = self.model.layout
        first = layout.starts[self.layer]
        heads = slice(first, first + layout.counts[self.layer])
        old = profiles(self.model, [one.prompt for one in self.without], **how)
        drawn = {"w/o": np.mean([old[place][heads] for place in alike], axis=0)}
        effects: dict[tuple[str, str, str], np.ndarray] = {}
        for series, some in self.inserted.items():
            prompts = [one.encoded.prompt for one in some]
            for queries in QUERIES:
                asking = None if queries == "all" else [one.original for one in some]
                new = profiles(self.model, prompts, asking, **how)
                rows = [
                    profile_effects(a, b, one.original, one.span, sinks=self.sinks)
                    for a, b, one in zip(old, new, some, strict=True)
                ]
                for effect in EFFECTS:
                    effects[series, queries, effect] = np.stack([row[effect] for row in rows])
                if queries == "all":
                    drawn[series] = np.mean([new[place][heads] for place in alike], axis=0)
        return effects, drawn

    def _affine(self, how: Mapping[str, Any]) -> dict[tuple[str, str], np.ndarray]:
        """All of AFFINE at the tokens of the problem, behind an insert before or between."""
        old = head_outputs(self.model, [one.prompt for one in self.without], self._bodies(), **how)
        affine: dict[tuple[str, str], np.ndarray] = {}
        for series, some in self.inserted.items():
            prompts = [one.encoded.prompt for one in some]
            new = head_outputs(self.model, prompts, self._bodies(series), **how)
            fits = [
                [affine_fit(a, b) for a, b in zip(one, other, strict=True)]
                for one, other in zip(old, new, strict=True)
            ]
            for number, name in enumerate(AFFINE):
                affine[series, name] = np.array(
                    [np.concatenate([fit[number] for fit in by_site]) for by_site in fits]
                )
        return affine

    def _activations(self, how: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Statistics by kind of token, in the problem; none where the first MLP has no module."""
        model, bodies = self.model, self._bodies()
        try:
            old, limits = activation_statistics(
                model, [one.prompt for one in self.without], bodies, **how
            )
        except HeadcountError:
            return {}
        by_series = {"w/o": old}
        for series, some in self.inserted.items():
            prompts = [one.encoded.prompt for one in some]
            by_series[series], _ = activation_statistics(
                model, prompts, self._bodies(series), limits=limits, **how
            )
        kinds = [
            np.array([token_class(model.tokenizer.decode([one.prompt[p]])) for p in body])
            for one, body in zip(self.without, bodies, strict=True)
        ]
        return {
            series: np.array(
                [_by_class(values, kind) for values, kind in zip(prompts, kinds, strict=True)]
            )
            for series, prompts in by_series.items()
        }

    def _bodies(self, series: str = "w/o") -> list[list[int]]:
        """Where each prompt, which has two pieces, holds the tokens of its problem."""
        bodies = [list(range(*one.borders[1:])) for one in self.without]
        if series == "w/o":
            return bodies
        some = zip(self.inserted[series], bodies, strict=True)
        return [[one.original[p] for p in body] for one, body in some]


def _by_class(
    values: Float[np.ndarray, "tokens statistics"], kinds: np.ndarray
) -> list[Float[np.ndarray, "statistics"]]:
    """The mean over the tokens of each class; NaN for a class that no token has."""
    nothing = np.full(len(STATISTICS), np.nan)
    return [values[kinds == name].mean(0) if (kinds == name).any() else nothing for name in CLASSES]
