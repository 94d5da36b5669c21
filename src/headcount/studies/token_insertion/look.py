"""Inside the model, with and without inserts: profiles, the affine check, sparse activations.

Everything is per prompt and head, so that claims can have intervals over prompts. It is kept in the
store as one document for each model and set of prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.forecast import forecast
from headcount.engine.measure.plan import MEASUREMENT
from headcount.errors import HeadcountError
from headcount.models.model import Model
from headcount.store import Store
from headcount.studies.token_insertion.activations import STATISTICS, activation_statistics
from headcount.studies.token_insertion.effects import (
    EFFECTS,
    affine_fit,
    head_outputs,
    profile_effects,
)
from headcount.studies.token_insertion.profiles import profiles
from headcount.tasks import Encoded
from headcount.tasks.inserts import Inserted, locate
from headcount.tasks.maths.token_classes import CLASSES, token_class

QUERIES = ("all", "original")  # whose attention a profile averages: all later tokens, or those
LOOKS = 4  # passes over each prompt, about
AFFINE = ("lambda", "bias", "explained", "spread")


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen on some prompts.

    effects       (series, queries, effect) → (prompts, heads); queries as in QUERIES
    affine        (series, entry of AFFINE) → (prompts, heads); NaN where a head says nothing
    activations   series → (prompts, classes, statistics); NaN where a prompt has no such token
    drawn         series → (heads of the layer, tokens): profiles, the mean over `aligned` prompts
    spans         series → places of the inserted tokens in `drawn`
    """

    effects: Mapping[tuple[str, str, str], Float[np.ndarray, "prompts heads"]]
    affine: Mapping[tuple[str, str], Float[np.ndarray, "prompts heads"]]
    activations: Mapping[str, Float[np.ndarray, "prompts classes statistics"]]
    drawn: Mapping[str, Float[np.ndarray, "drawn _"]]
    spans: Mapping[str, Sequence[int]]
    aligned: int

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
        effects = {tuple(key.split("\t")): _array(v) for key, v in data["effects"].items()}
        affine = {tuple(key.split("\t")): _array(v) for key, v in data["affine"].items()}
        return cls(
            effects,
            affine,
            {key: _array(value) for key, value in data["activations"].items()},
            {key: _array(value) for key, value in data["drawn"].items()},
            data["spans"],
            data["aligned"],
        )


def look_inside(
    model: Model,
    without: Sequence[Encoded],
    with_inserts: Mapping[str, Sequence[Encoded]],
    *,
    layer: int,
    gates: Float[np.ndarray, "heads"],
    sinks: int,
    store: Store | None,
    progress: bool,
) -> Look | None:
    """Look at the same prompts without and with each insert; `without` goes by the name "w/o".

    None in a forecast, where nothing is looked at.
    """
    context = {
        "model": model.name,
        **model.identity,
        "task": "token-insertion",
        "metric": "look",
        "stand_in": "zero",
        "prompts": {
            series: [one.key for one in some]
            for series, some in {"w/o": without, **with_inserts}.items()
        },
        "layer": layer,
        "gates": [float(gate) for gate in gates],
        "sinks": sinks,
        "version": 3,
        "measurement": MEASUREMENT,
    }
    found = None if store is None else store.get_document("insert look", context)
    if found is not None:
        return Look.from_json(found)
    if (expected := forecast()) is not None:
        for some in (without, *with_inserts.values()):
            expected.add(model, "pass", 0, LOOKS * sum(len(one.prompt) for one in some))
        return None
    under = None if (gates == 1).all() else gates
    located = {
        series: [locate(new, old) for new, old in zip(some, without, strict=True)]
        for series, some in with_inserts.items()
    }
    effects, drawn, spans, aligned = _profiles(
        model, without, located, layer, under, sinks, progress
    )
    affine = _affine(model, without, located, under, progress)
    activations = _activations(model, without, located, under, progress)
    look = Look(effects, affine, activations, drawn, spans, aligned)
    if store is not None:
        store.put_document("insert look", context, look.to_json())
    return Look.from_json(look.to_json())  # the same numbers whether they were kept or not


def _profiles(
    model: Model,
    without: Sequence[Encoded],
    located: Mapping[str, Sequence[Inserted]],
    layer: int,
    gates: Float[np.ndarray, "heads"] | None,
    sinks: int,
    progress: bool,
) -> tuple[Any, Any, Any, int]:
    """Effects on all profiles, and the mean profiles of a layer over prompts of one length."""
    options: dict[str, Any] = {"gates": gates, "progress": progress}
    old = profiles(model, [one.prompt for one in without], **options)
    alike = _alike(without, located)
    first = model.layout.starts[layer]
    heads = slice(first, first + model.layout.counts[layer])
    drawn = {"w/o": np.mean([old[place][heads] for place in alike], axis=0)}
    spans: dict[str, list[int]] = {"w/o": []}
    effects: dict[tuple[str, str, str], np.ndarray] = {}
    for series, some in located.items():
        prompts = [one.encoded.prompt for one in some]
        for queries in QUERIES:
            asking = None if queries == "all" else [one.original for one in some]
            new = profiles(model, prompts, asking, **options)
            rows = [
                profile_effects(a, b, one.original, one.span, sinks=sinks)
                for a, b, one in zip(old, new, some, strict=True)
            ]
            for effect in EFFECTS:
                effects[series, queries, effect] = np.stack([row[effect] for row in rows])
            if queries == "all":
                drawn[series] = np.mean([new[place][heads] for place in alike], axis=0)
                spans[series] = list(some[alike[0]].span)
    return effects, drawn, spans, len(alike)


def _alike(without: Sequence[Encoded], located: Mapping[str, Sequence[Inserted]]) -> list[int]:
    """The largest group of prompts whose tokens, original and inserted, have the same places."""
    forms = [
        (len(one.prompt), *(some[place].span for some in located.values()))
        for place, one in enumerate(without)
    ]
    (most, _), *_ = Counter(forms).most_common(1)
    return [place for place, form in enumerate(forms) if form == most]


def _affine(
    model: Model,
    without: Sequence[Encoded],
    located: Mapping[str, Sequence[Inserted]],
    gates: Float[np.ndarray, "heads"] | None,
    progress: bool,
) -> dict[tuple[str, str], np.ndarray]:
    """All of AFFINE at the tokens of the problem, which an insert before or between precedes."""
    bodies = [range(*_body(one)) for one in without]
    old = head_outputs(model, [one.prompt for one in without], bodies, gates, progress=progress)
    found: dict[tuple[str, str], np.ndarray] = {}
    for series, some in located.items():
        places = [[one.original[p] for p in body] for one, body in zip(some, bodies, strict=True)]
        prompts = [one.encoded.prompt for one in some]
        new = head_outputs(model, prompts, places, gates, progress=progress)
        fits = [
            [affine_fit(a, b) for a, b in zip(one, other, strict=True)]
            for one, other in zip(old, new, strict=True)
        ]
        for number, name in enumerate(AFFINE):
            found[series, name] = np.array(
                [np.concatenate([fit[number] for fit in by_site]) for by_site in fits]
            )
    return found


def _activations(
    model: Model,
    without: Sequence[Encoded],
    located: Mapping[str, Sequence[Inserted]],
    gates: Float[np.ndarray, "heads"] | None,
    progress: bool,
) -> dict[str, np.ndarray]:
    """Statistics of the first MLP by kind of token, in the problem; none where it has no module."""
    bodies = [range(*_body(one)) for one in without]
    kinds = [
        np.array([token_class(model.tokenizer.decode([one.prompt[p]])) for p in body])
        for one, body in zip(without, bodies, strict=True)
    ]
    try:
        old, limits = activation_statistics(
            model, [one.prompt for one in without], bodies, gates=gates, progress=progress
        )
    except HeadcountError:
        return {}
    by_series = {"w/o": old}
    for series, some in located.items():
        by_series[series], _ = activation_statistics(
            model,
            [one.encoded.prompt for one in some],
            [[one.original[p] for p in body] for one, body in zip(some, bodies, strict=True)],
            limits=limits,
            gates=gates,
            progress=progress,
        )
    return {
        series: np.array(
            [
                [
                    one[kind == name].mean(0) if (kind == name).any() else _NOTHING
                    for name in CLASSES
                ]
                for one, kind in zip(found, kinds, strict=True)
            ]
        )
        for series, found in by_series.items()
    }


_NOTHING = np.full(len(STATISTICS), np.nan)


def _body(one: Encoded) -> tuple[int, int]:
    """Where the problem starts and ends in a prompt of two pieces."""
    _, start, end = one.borders
    return start, end


def _listed(values: np.ndarray) -> Any:
    """Nested lists; JSON has no NaN, so None stands for it."""
    if values.ndim > 1:
        return [_listed(row) for row in values]
    return [None if np.isnan(v) else float(f"{v:.7g}") for v in values]


def _array(lists: Any) -> np.ndarray:
    return np.array(lists, dtype=float)  # None becomes NaN
