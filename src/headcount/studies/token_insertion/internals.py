"""Model internals with and without inserts: attention profiles, affine check, activations.

Every number is kept for each prompt and head, so that claims can have intervals over prompts. The
store keeps them as one document for each model and set of prompts; a result keeps the numbers of
the head that is drawn, and means over the heads of each layer.

Where the head is chosen because it changes most, it is chosen on every other prompt, and drawn and
judged on the rest. Alternating prompts, rather than two runs of them, because the problems of a
task stand in the order of their templates: both halves have all templates.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.plan import MEASUREMENT
from headcount.errors import HeadcountError
from headcount.heads import Head, HeadLayout, HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.report.head_rows import head_rows
from headcount.studies.token_insertion.activations import STATISTICS, activation_statistics
from headcount.studies.token_insertion.attention import (
    AFFINE,
    EFFECTS,
    affine_fit,
    head_outputs,
    profile_effects,
    profiles,
    uniform_profile,
)
from headcount.tasks import Task, encode
from headcount.tasks.inserts import Insert, Inserted, locate, with_insert
from headcount.tasks.maths.token_classes import CLASSES, token_class

QUERIES = ("all", "original")  # a profile averages over all later tokens, or the original ones
PASSES = 4  # passes over each prompt, at most
PUBLISHED_HEAD = 14
HEIGHT = ("peak", "peak_without")  # numerator and denominator of the height of the peaks
UNIFORM, OTHERS = "uniform reader", "other layers"
Entry = tuple[str, str, str, str]  # series, metric, queries, where
Tables = dict[str, dict[Any, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Internals:
    """What was measured inside one model, and the head that is drawn and judged.

    layer         the layer of that head
    requested     its number; -1 takes head 14 or, in a smaller layer, the head that changes most
    choosing      the numbers of the prompts on which it is chosen; none if nothing is chosen
    effects       (series, queries, effect) → (prompts, heads); queries as in QUERIES
    uniform       (series, queries, effect) → (prompts,): the same of a uniform reader
    affine        (series, entry of AFFINE) → (prompts, heads); NaN where a head is silent
    activations   series → (prompts, classes, statistics); NaN where a prompt lacks such a token
    drawn         series → (heads of the layer, tokens): mean profiles over `aligned` prompts
    spans         series → positions of the inserted tokens in `drawn`
    aligned       the number of prompts whose tokens have equal positions
    """

    model: str
    layout: HeadLayout
    layer: int
    requested: int
    choosing: Sequence[int]
    effects: Mapping[tuple[str, ...], Float[np.ndarray, "prompts heads"]]
    uniform: Mapping[tuple[str, ...], Float[np.ndarray, "prompts"]]
    affine: Mapping[tuple[str, ...], Float[np.ndarray, "prompts heads"]]
    activations: Mapping[str, Float[np.ndarray, "prompts classes statistics"]]
    drawn: Mapping[str, Float[np.ndarray, "drawn _"]]
    spans: Mapping[str, Sequence[int]]
    aligned: int

    @property
    def series(self) -> list[str]:
        """The series that have an insert."""
        return list(dict.fromkeys(series for series, _ in self.affine))

    @cached_property
    def head(self) -> Head:
        """The head that is drawn and judged."""
        if self.requested >= 0 or self.layout.counts[self.layer] > PUBLISHED_HEAD:
            return Head(self.layer, PUBLISHED_HEAD if self.requested < 0 else self.requested)
        if not self.series:
            return Head(self.layer, 0)
        changes = [
            _known_means(self.effects[series, "all", "change"][list(self.choosing)].T)
            for series in self.series
        ]
        by_head = np.mean(changes, axis=0)[self.layout.layers == self.layer]
        return Head(self.layer, int(np.nan_to_num(by_head).argmax()))

    def heads_of(self, layer: int, *, others: bool = False) -> list[int]:
        """The numbers of a layer's heads, or with `others` of all other layers' heads."""
        return [int(n) for n in np.flatnonzero((self.layout.layers == layer) != others)]

    def entries(self) -> Iterator[tuple[Entry, Float[np.ndarray, "prompts"]]]:
        """What a result keeps: a number for each prompt, by series, metric, queries and where.

        Effects on profiles are kept for the head, for the mean over its layer, for the mean over
        all other layers and for a uniform reader; the affine check for the mean over each layer.
        Silent heads are left out of means, which are NaN where no head says anything.
        """
        layers = {f"layer {n}": self.heads_of(n) for n in range(len(self.layout.counts))}
        own = f"layer {self.layer}"
        places = {
            str(self.head): [self.layout.number(self.head)],
            own: layers[own],
            OTHERS: self.heads_of(self.layer, others=True),
        }
        for (series, queries, effect), table in self.effects.items():
            wanted = dict(places)
            if queries == "all" and effect in HEIGHT:
                wanted |= layers
            if queries == "all" and effect == "change" and self.choosing:
                wanted |= {str(self.layout.head(number)): [number] for number in layers[own]}
            for where, heads in wanted.items():
                if heads:
                    yield (series, effect, queries, where), _known_means(table[:, heads])
            yield (series, effect, queries, UNIFORM), self.uniform[series, queries, effect]
        for (series, entry), table in self.affine.items():
            for where, heads in {OTHERS: places[OTHERS], **layers}.items():
                if heads:
                    yield (series, entry, "", where), _known_means(table[:, heads])
        for series, cube in self.activations.items():
            for kind, tokens in enumerate(CLASSES):
                for number, statistic in enumerate(STATISTICS):
                    yield (series, statistic, "", tokens), cube[:, kind, number]


def _known_means(values: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows"]:
    """The mean of each row over what is not NaN; NaN if all of it is."""
    known = ~np.isnan(values)
    count = known.sum(1)
    sums = np.where(known, values, 0).sum(1)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def packed(tables: Tables) -> dict[str, Any]:
    """Turn tables of arrays into JSON: keys are joined by tabs, numbers have seven digits."""
    return {
        name: {key if isinstance(key, str) else "\t".join(key): _listed(v) for key, v in t.items()}
        for name, t in tables.items()
    }


def unpacked(data: Mapping[str, Mapping[str, Any]]) -> Tables:
    """Turn the JSON of `packed` back into tables of arrays."""
    return {
        name: {
            tuple(key.split("\t")) if "\t" in key else key: np.array(lists, dtype=float)
            for key, lists in table.items()
        }
        for name, table in data.items()
    }


def _listed(values: np.ndarray) -> Any:
    """An array as nested lists; None stands for NaN, which JSON lacks."""
    if values.ndim > 1:
        return [_listed(row) for row in values]
    return [None if np.isnan(v) else float(f"{v:.7g}") for v in values]


@dataclass(frozen=True, eq=False)
class InternalsRequest:
    """A request for the internals on prompts without an insert and with each insert.

    The profiles of `layer` are kept for the figure, from prompts on which no head was chosen. The
    head set `gates` applies to all passes. The first `sinks` tokens are left out of the effects on
    profiles.
    """

    model: Model
    task: Task
    inserts: Mapping[str, Insert]
    layer: int
    head: int
    gates: Float[np.ndarray, "heads"]
    sinks: int

    def __post_init__(self) -> None:
        if self.choosing and len(self.task) < 2:
            raise HeadcountError(
                "A head is chosen on one half of the prompts and judged on the other: read at "
                "least 2 prompts, or name a head."
            )

    @property
    def choosing(self) -> range:
        """The prompts on which a head is chosen: every other one, unless nothing is chosen."""
        small = self.model.layout.counts[self.layer] <= PUBLISHED_HEAD
        return range(0, len(self.task) if self.head < 0 and small else 0, 2)

    @cached_property
    def prompts(self) -> dict[str, list[Inserted]]:
        """The prompts of each series; the series without an insert comes first."""
        tokenizer = self.model.tokenizer
        without = encode(self.task, tokenizer)
        encoded = {"w/o": without}
        for series, insert in self.inserts.items():
            encoded[series] = encode(with_insert(self.task, tokenizer, insert), tokenizer)
        return {
            series: [locate(new, old) for new, old in zip(prompts, without, strict=True)]
            for series, prompts in encoded.items()
        }

    def ids(self, series: str) -> list[tuple[int, ...]]:
        """The token ids of a series' prompts."""
        return [prompt.encoded.prompt for prompt in self.prompts[series]]

    def bodies(self, series: str) -> list[list[int]]:
        """The positions of the problem, which is the second piece, in each prompt."""
        pairs = zip(self.prompts["w/o"], self.prompts[series], strict=True)
        return [[new.original[p] for p in range(*old.encoded.borders[1:])] for old, new in pairs]

    def context(self) -> dict[str, Any]:
        """The key in the store: everything that determines the result."""
        return {
            "model": self.model.name,
            **self.model.identity,
            "task": "token-insertion",
            "metric": "look",  # the name in stored keys, as that of the document, must not change
            "ablation": "zero",
            "prompts": {
                series: [prompt.encoded.key for prompt in prompts]
                for series, prompts in self.prompts.items()
            },
            "layer": self.layer,
            "gates": [float(gate) for gate in self.gates],
            "sinks": self.sinks,
            "choosing": list(self.choosing),
            "version": 4,
            "measurement": MEASUREMENT,
        }

    def count(self, counter: Counter) -> None:
        """Count the tokens of all passes, unless the store holds the internals."""
        store = counter.store
        if store is None or store.get_document("insert look", self.context()) is None:
            tokens = sum(len(ids) for series in self.prompts for ids in self.ids(series))
            counter.passes(self.model, PASSES * tokens)

    def result(self, lab: Lab) -> Internals:
        """Measure the internals, or read them from the store."""
        # New results go through JSON as stored ones do, so that both have the same digits.
        document = dict(lab.document("insert look", self.context, lambda: self._measure(lab)))
        spans, aligned = document.pop("spans"), document.pop("aligned")
        tables: Any = unpacked(document)
        which = self.model.name, self.model.layout, self.layer, self.head, self.choosing
        uniform = self._uniform()
        return Internals(*which, **tables, uniform=uniform, spans=spans, aligned=aligned)

    def _uniform(self) -> dict[tuple[str, ...], Float[np.ndarray, "prompts"]]:
        """Every effect on the profiles of a uniform reader, on the same prompts."""
        old = [uniform_profile(len(ids)) for ids in self.ids("w/o")]
        effects: dict[tuple[str, ...], np.ndarray] = {}
        for series in self.inserts:
            for queries in QUERIES:
                rows = [
                    profile_effects(
                        before,
                        uniform_profile(
                            len(prompt.encoded.prompt),
                            None if queries == "all" else prompt.original,
                        ),
                        prompt.original,
                        prompt.span,
                        sinks=self.sinks,
                    )
                    for before, prompt in zip(old, self.prompts[series], strict=True)
                ]
                for effect in EFFECTS:
                    effects[series, queries, effect] = np.array([row[effect][0] for row in rows])
        return effects

    def _measure(self, lab: Lab) -> dict[str, Any]:
        gates = None if (self.gates == 1).all() else self.gates
        how: dict[str, Any] = {"gates": gates, "progress": lab.progress}
        alike, spans = self.alike
        effects, drawn = self._profiles(alike, how)
        tables = {
            "effects": effects,
            "affine": self._affine(how),
            "activations": self._activations(how),
            "drawn": drawn,
        }
        return {**packed(tables), "spans": spans, "aligned": len(alike)}

    @property
    def alike(self) -> tuple[list[int], dict[str, list[int]]]:
        """The largest group of prompts whose tokens have equal positions in all series.

        These are their numbers, and the positions of the inserted tokens in each series.
        """
        forms = {
            number: tuple((len(prompt.encoded.prompt), prompt.span) for prompt in same)
            for number, same in enumerate(zip(*self.prompts.values(), strict=True))
            if number not in self.choosing
        }
        ((form, _),) = Tally(forms.values()).most_common(1)
        alike = [number for number, other in forms.items() if other == form]
        return alike, {s: list(prompts[alike[0]].span) for s, prompts in self.prompts.items()}

    def _profiles(self, alike: Sequence[int], how: Mapping[str, Any]) -> tuple[Any, Any]:
        """The effects on all profiles, and the layer's mean profiles over the `alike` prompts."""
        heads = self.model.layout.layers == self.layer
        drawn, effects = {}, {}
        old: list[np.ndarray] = []
        for series, prompts in self.prompts.items():
            by_queries = {"all": profiles(self.model, self.ids(series), **how)}
            drawn[series] = np.mean([by_queries["all"][number][heads] for number in alike], axis=0)
            if series == "w/o":
                old = by_queries["all"]
                continue
            original = [prompt.original for prompt in prompts]
            by_queries["original"] = profiles(self.model, self.ids(series), original, **how)
            for queries, new in by_queries.items():
                rows = [
                    profile_effects(a, b, prompt.original, prompt.span, sinks=self.sinks)
                    for a, b, prompt in zip(old, new, prompts, strict=True)
                ]
                for effect in EFFECTS:
                    effects[series, queries, effect] = np.stack([row[effect] for row in rows])
        return effects, drawn

    def _affine(self, how: Mapping[str, Any]) -> dict[Any, np.ndarray]:
        """All entries of AFFINE, fitted at the tokens of the problem."""
        old, *others = (
            head_outputs(self.model, self.ids(series), self.bodies(series), **how)
            for series in self.prompts
        )
        affine: dict[Any, np.ndarray] = {}
        for series, new in zip(self.inserts, others, strict=True):
            fits = [  # (prompts, entries, heads)
                np.concatenate(list(map(affine_fit, before, after)), axis=1)
                for before, after in zip(old, new, strict=True)
            ]
            for number, name in enumerate(AFFINE):
                affine[series, name] = np.array([fit[number] for fit in fits])
        return affine

    def _activations(self, how: Mapping[str, Any]) -> dict[Any, np.ndarray]:
        """Statistics by class of token in the problem; empty if they cannot be read."""
        decode, limits = self.model.tokenizer.decode, None
        kinds = [
            np.array([token_class(decode([ids[position]])) for position in body])
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
    """The mean over the tokens of each class; NaN for a class without tokens."""
    nothing = np.full(len(STATISTICS), np.nan)
    return [values[kinds == name].mean(0) if (kinds == name).any() else nothing for name in CLASSES]


def change_rows(
    internals: Internals, task: str, clusters: Int[np.ndarray, "prompts 2"]
) -> list[dict[str, Any]]:
    """The effect of each insert on each head: the change of its attention, and 1 − λ."""
    scores = {}
    for series in internals.series:
        for name, samples in (
            (f"attention changed, {series}", internals.effects[series, "all", "change"]),
            (f"1 − λ, {series}", filled(1 - internals.affine[series, "lambda"])),
        ):
            known = samples[~np.isnan(samples).any(1)]  # a short prompt has no profile
            if len(known):
                scores[name] = HeadScores(internals.layout, known.mean(0), name, {}, known)
    return head_rows(internals.model, task, scores, clusters=clusters)


def filled(values: Float[np.ndarray, "prompts heads"]) -> Float[np.ndarray, "prompts heads"]:
    """Fill NaN (a silent head) with the head's mean over prompts, or 0 if it is always silent."""
    return np.where(np.isnan(values), np.nan_to_num(_known_means(values.T)), values)
