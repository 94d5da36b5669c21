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
from headcount.heads import Head, HeadLayout, HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.report.head_rows import head_rows
from headcount.stats import bootstrap, paired_difference
from headcount.studies.token_insertion.activations import STATISTICS, activation_statistics
from headcount.studies.token_insertion.attention import (
    AFFINE,
    EFFECTS,
    affine_fit,
    head_outputs,
    profile_effects,
    profiles,
)
from headcount.tasks import Task, encode
from headcount.tasks.inserts import Insert, Inserted, locate, with_insert
from headcount.tasks.maths.token_classes import CLASSES, token_class

QUERIES = ("all", "original")  # whose attention a profile averages: all later tokens, or those
LOOKS = 4  # passes over each prompt, at most
PUBLISHED_HEAD = 14
Tables = dict[str, dict[Any, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen in one model on some prompts, and the head that is drawn and judged.

    layer, asked  that head; for -1 the head 14 of the layer, or the one that changes most
    effects       (series, queries, effect) → (prompts, heads); queries as in QUERIES
    affine        (series, entry of AFFINE) → (prompts, heads); NaN where a head says nothing
    activations   series → (prompts, classes, statistics); NaN where a prompt has no such token
    drawn         series → (heads of the layer, tokens): profiles, the mean over `aligned` prompts
    spans         series → places of the inserted tokens in `drawn`
    """

    model: str
    layout: HeadLayout
    layer: int
    asked: int
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

    @property
    def chosen(self) -> bool:
        """Whether the head was taken for changing most on these same prompts."""
        return self.asked < 0 and self.layout.counts[self.layer] <= PUBLISHED_HEAD

    @cached_property
    def head(self) -> Head:
        """The head that is drawn and judged."""
        if not self.chosen:
            return Head(self.layer, PUBLISHED_HEAD if self.asked < 0 else self.asked)
        changes = [self.effects[series, "all", "change"] for series in self.series]
        if not changes:
            return Head(self.layer, 0)
        by_head = np.mean(changes, axis=(0, 1))[self.layout.layers == self.layer]
        return Head(self.layer, int(np.nan_to_num(by_head).argmax()))

    @property
    def number(self) -> int:
        """Its number among all heads."""
        return self.layout.number(self.head)

    def heads_of(self, layer: int, *, others: bool = False) -> list[int]:
        """The numbers of a layer's heads, or of those of all other layers."""
        return [int(n) for n in np.flatnonzero((self.layout.layers == layer) != others)]

    def scaled(
        self, series: str, entry: str, heads: Sequence[int] | Int[np.ndarray, "some"]
    ) -> Float[np.ndarray, "known"]:
        """The mean of an entry of AFFINE over those heads that say something, by prompt."""
        values = self.affine[series, entry][:, list(heads)]
        known = ~np.isnan(values)
        values, known = values[known.any(1)], known[known.any(1)]
        return np.asarray(np.where(known, values, 0).sum(1) / known.sum(1))


def packed(tables: Tables) -> dict[str, Any]:
    """Tables of arrays as JSON has them: keys are joined, and numbers have seven digits."""
    return {
        name: {key if isinstance(key, str) else "\t".join(key): _listed(v) for key, v in t.items()}
        for name, t in tables.items()
    }


def unpacked(data: Mapping[str, Mapping[str, Any]]) -> Tables:
    """Read what `packed` made."""
    return {
        name: {
            tuple(key.split("\t")) if "\t" in key else key: np.array(lists, dtype=float)
            for key, lists in table.items()
        }
        for name, table in data.items()
    }


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
    head: int
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
        return [prompt.encoded.prompt for prompt in self.prompts[series]]

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
            "ablation": "zero",
            "prompts": {
                series: [prompt.encoded.key for prompt in some]
                for series, some in self.prompts.items()
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
        seen = dict(lab.document("insert look", self.context, lambda: self._see(lab)))
        spans, aligned = seen.pop("spans"), seen.pop("aligned")
        tables: Any = unpacked(seen)
        which = self.model.name, self.model.layout, self.layer, self.head
        return Look(*which, **tables, spans=spans, aligned=aligned)

    def _see(self, lab: Lab) -> dict[str, Any]:
        gates = None if (self.gates == 1).all() else self.gates
        how: dict[str, Any] = {"gates": gates, "progress": lab.progress}
        # The largest group of prompts whose tokens, original and inserted, have equal places.
        forms = [
            tuple((len(prompt.encoded.prompt), prompt.span) for prompt in same)
            for same in zip(*self.prompts.values(), strict=True)
        ]
        ((form, _),) = Tally(forms).most_common(1)
        alike = [place for place, other in enumerate(forms) if other == form]
        effects, drawn = self._profiles(alike, how)
        tables = {
            "effects": effects,
            "affine": self._affine(how),
            "activations": self._activations(how),
            "drawn": drawn,
        }
        spans = {series: list(some[alike[0]].span) for series, some in self.prompts.items()}
        return {**packed(tables), "spans": spans, "aligned": len(alike)}

    def _profiles(self, alike: Sequence[int], how: Mapping[str, Any]) -> tuple[Any, Any]:
        """Effects on all profiles, and the layer's mean profiles over prompts of one form."""
        heads = self.model.layout.layers == self.layer
        drawn, effects = {}, {}
        old: list[np.ndarray] = []
        for series, some in self.prompts.items():
            by_queries = {"all": profiles(self.model, self.ids(series), **how)}
            drawn[series] = np.mean([by_queries["all"][place][heads] for place in alike], axis=0)
            if series == "w/o":
                old = by_queries["all"]
                continue
            original = [prompt.original for prompt in some]
            by_queries["original"] = profiles(self.model, self.ids(series), original, **how)
            for queries, new in by_queries.items():
                rows = [
                    profile_effects(a, b, prompt.original, prompt.span, sinks=self.sinks)
                    for a, b, prompt in zip(old, new, some, strict=True)
                ]
                for effect in EFFECTS:
                    effects[series, queries, effect] = np.stack([row[effect] for row in rows])
        return effects, drawn

    def _affine(self, how: Mapping[str, Any]) -> dict[Any, np.ndarray]:
        """All of AFFINE at the tokens of the problem, behind an insert before or between."""
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


def affine_rows(look: Look) -> list[dict[str, Any]]:
    """λ, the size of the added direction, R², spread and height of the peaks: mean over heads."""
    rows = []
    for series in look.series:
        for layer in range(len(look.layout.counts)):
            heads = look.heads_of(layer)
            factor, bias, explained, spread = (look.scaled(series, e, heads) for e in AFFINE)
            if not len(factor):  # no head of the layer says anything
                continue
            mean = bootstrap(factor)
            by_head = [_known(values) for values in look.affine[series, "lambda"].T[heads]]
            peak, before = (
                look.effects[series, "all", name][:, heads].mean()
                for name in ("peak", "peak_without")
            )
            rows.append(
                {
                    "model": look.model,
                    "series": series,
                    "layer": layer,
                    "lambda": mean.value,
                    "low": mean.low,
                    "high": mean.high,
                    "heads below 1": float(np.mean([v < 1 for v in by_head if v is not None])),
                    "added direction": float(bias.mean()),
                    "R2": float(explained.mean()),
                    "spread": float(spread.mean()),
                    "peaks": float(peak / before),
                    "by head": " ".join("–" if v is None else f"{v:.3f}" for v in by_head),
                }
            )
    return rows


def _known(values: Float[np.ndarray, "prompts"]) -> float | None:
    """Their mean without those that are unknown; None where all are."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def activation_rows(look: Look) -> list[dict[str, Any]]:
    """Each statistic by kind of token, without an insert and how each insert changes it."""
    rows = []
    inserted = dict(look.activations)
    before = inserted.pop("w/o", np.full((0, len(CLASSES), len(STATISTICS)), np.nan))
    for kind, name in enumerate(CLASSES):
        there = ~np.isnan(before[:, kind, 0])
        if there.sum() < 2:
            continue
        for number, statistic in enumerate(STATISTICS):
            old = before[there, kind, number]
            changes = {
                f"{series} minus w/o": str(paired_difference(values[there, kind, number], old))
                for series, values in inserted.items()
            }
            facts = {"model": look.model, "tokens": name, "statistic": statistic}
            counts = {"prompts": int(there.sum())}
            rows.append({**facts, "w/o": float(old.mean()), **changes, **counts})
    return rows


def change_rows(look: Look, task: str) -> list[dict[str, Any]]:
    """What each insert does to each head: how far its attention changes, and 1 − λ."""
    scores = {}
    for series in look.series:
        for name, samples in (
            (f"attention changed, {series}", look.effects[series, "all", "change"]),
            (f"1 − λ, {series}", filled(1 - look.affine[series, "lambda"])),
        ):
            known = samples[~np.isnan(samples).any(1)]  # too short a prompt has no profile
            if len(known):
                scores[name] = HeadScores(look.layout, known.mean(0), name, {}, known)
    return head_rows(look.model, task, scores)


def filled(values: Float[np.ndarray, "prompts heads"]) -> Float[np.ndarray, "prompts heads"]:
    """NaN, of a head that is silent on a prompt, becomes its mean over prompts; 0 if on all."""
    means = [_known(column) or 0.0 for column in values.T]
    return np.where(np.isnan(values), means, values)
