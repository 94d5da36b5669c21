"""The state of an explorer: what is switched off, and on which prompt.

A state comes from a page, a link, a notebook or a user's Python, so `ExplorerState.of` trusts
nothing: what does not fit the model is refused in one sentence. It names heads and texts, never
files or code.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.errors import HeadcountError, counted, unknown
from headcount.heads import HeadLayout, HeadScores, HeadSet
from headcount.rankings.random_draws import draw_matched

ABLATIONS = ("zero", "mean", "corrupted")
MOST_GATE = 2.0

KINDS: dict[str, tuple[type, ...]] = {"bool": (bool,), "float": (int, float), "int": (int,)}


@dataclass(frozen=True)
class ExplorerState:
    """What an explorer shows; `heads` are those that are gated or, with `keep`, the only others.

    gate       the number by which gated heads are multiplied: 0 is off, 1 changes nothing
    ablation   what replaces the output of a head: zero, mean or corrupted
    corrupted  the counterfactual prompt, for the ablation of that name
    colour     the ranking, or what else colours the map
    selected   the head whose attention and output are shown
    seed       of the random heads beside the head set

    >>> state = ExplorerState(heads=("0.1",), gate=0.5)
    >>> state.gates(HeadLayout((2,)))
    array([1. , 0.5], dtype=float32)
    """

    heads: tuple[str, ...] = ()
    keep: bool = False
    gate: float = 0.0
    ablation: str = "zero"
    prompt: str = ""
    corrupted: str = ""
    target: str = ""
    foils: tuple[str, ...] = ()
    colour: str = ""
    selected: str = ""
    seed: int = 0

    @classmethod
    def of(cls, given: Any, layout: HeadLayout) -> ExplorerState:
        """The state that a page or a user gives; refuses what is no state of this model."""
        if not isinstance(given, Mapping):
            raise HeadcountError("A state of the explorer is a mapping from names to values.")
        known = {item.name: str(item.type) for item in fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise unknown("setting of the explorer", str(name)[:40], known)
            if not _fits(value, known[name]):
                raise HeadcountError(f"The explorer's {name} cannot be {str(value)[:40]!r}.")
        lists = {name: tuple(given[name]) for name in ("heads", "foils") if name in given}
        return cls(**{**given, **lists}).checked(layout)

    def checked(self, layout: HeadLayout) -> ExplorerState:
        """The state with its heads in order; refuses what does not fit the model.

        Texts are checked where they are read, so that one that is too long blocks nothing else.
        """
        if self.ablation not in ABLATIONS:
            raise unknown("ablation", self.ablation[:40], ABLATIONS)
        if not 0 <= self.gate <= MOST_GATE:
            raise HeadcountError(f"The gate is a number from 0 to 2, not {self.gate:g}.")
        if self.selected:
            layout.parse(self.selected)
        heads = {layout.parse(head) for head in self.heads}
        return replace(self, heads=tuple(map(str, sorted(heads))))

    def settings(self) -> dict[str, Any]:
        """The state as plain data."""
        return asdict(self)

    @cached_property
    def head_set(self) -> HeadSet:
        """The heads with their gate."""
        return HeadSet(self.heads, keep=self.keep, gate=self.gate)

    def gates(self, layout: HeadLayout) -> Float[np.ndarray, "heads"]:
        """One gate for each head of the model."""
        return self.head_set.gates(layout)

    def chosen(self, layout: HeadLayout) -> list[int]:
        """The numbers of the heads in the head set."""
        return [layout.number(head) for head in self.head_set]

    def controls(
        self, layout: HeadLayout, draws: int
    ) -> tuple[Float[np.ndarray, "draws heads"], str]:
        """Gates of as many random heads of the same layers, and a sentence where there are too few.

        They are drawn from the other heads of each layer; where the head set has more than half of
        all heads, from all heads of each layer.
        """
        chosen, rows, note = self.chosen(layout), [], ""
        for draw in range(draws):
            seed = 1000 * self.seed + draw
            if 2 * len(chosen) <= layout.total:
                drawn, unmatched = draw_matched(layout, chosen, seed=seed)
                heads = drawn.tolist()
                moved = round(unmatched * len(chosen))
                if moved:
                    note = f"{counted(moved, 'random head')} from the nearest other layers"
            else:
                heads = _any_of_layers(layout, chosen, seed)
                note = "drawn from all heads, because the head set has more than half of them"
            named = HeadSet([layout.head(h) for h in heads], keep=self.keep, gate=self.gate)
            rows.append(named.gates(layout))
        return np.stack(rows), note

    def command(self, model: str, task: str, metric: str, settings: Mapping[str, Any]) -> str:
        """The command line that measures this head set on the task or, without one, writes."""
        if not (self.heads or self.keep):
            return "# This is the whole model: choose heads first."
        if not task and self.ablation != "zero":
            return f"# Without a task no command has the ablation {self.ablation}."
        words = ["headcount", "ablate" if task else "generate", "--model", model]
        words += ["--task", task] if task else [f"--prompt={self.prompt}"]
        words += ["--heads", *self.heads, *["--keep"] * self.keep]
        words += ["--gate", f"{self.gate:g}"] * bool(self.gate)
        words += ["--metric", metric, "--ablation", self.ablation] if task else []
        chosen = [f"{name}={value}" for name, value in settings.items()]
        return shlex.join([*words, *["--set"] * bool(chosen), *chosen])

    def python(self, model: str, task: str, metric: str, settings: Mapping[str, Any]) -> str:
        """The same in Python."""
        chosen = "".join(f", {name}={value!r}" for name, value in settings.items())
        how = f"keep={self.keep}, gate={self.gate:g}"
        lines = [
            "from headcount import HeadSet, evaluate, generate, load_model, make_task",
            f"model = load_model({model!r})",
            f"heads = HeadSet({' '.join(self.heads)!r}, {how})",
        ]
        if task:
            lines += [
                f"task = make_task({task!r}, model{chosen})",
                f"values = evaluate(model, task, {{'whole': [], 'set': heads}}, metric={metric!r}, "
                f"ablation={self.ablation!r})",
                "print(values.interval('set'), values.difference('set', 'whole'))",
            ]
        if self.ablation == "zero" and self.prompt:
            lines.append(f"print(generate(model, [{self.prompt!r}], heads)[0].text)")
        return "\n".join(lines)


def choose(
    text: str,
    layout: HeadLayout,
    scores: HeadScores | None = None,
    seed: int | Sequence[int] = 0,
) -> list[str]:
    """The heads that a text names: `top 8`, `bottom 8`, `random 8`, `layer 3`, or `3.4 11.2`.

    Several of these are added up; `top` needs scores.

    >>> choose("layer 1, 0.0", HeadLayout((2, 2)))
    ['0.0', '1.0', '1.1']
    """
    words = re.split(r"[\s,;]+", text.strip().lower())
    heads: set[int] = set()
    while words and words != [""]:
        word = words.pop(0)
        if word in ("top", "bottom", "random", "layer"):
            number = words.pop(0) if words else ""
            if not number.isdecimal() or len(number) > 6:
                raise HeadcountError(f'Write a number after "{word}", such as {word} 3.')
            heads |= set(_named(word, int(number), layout, scores, seed))
        elif word in ("all", "none"):
            heads = set(range(layout.total)) if word == "all" else set()
        else:
            heads.add(layout.number(layout.parse(word)))
    return [str(layout.head(number)) for number in sorted(heads)]


def _named(
    word: str,
    number: int,
    layout: HeadLayout,
    scores: HeadScores | None,
    seed: int | Sequence[int],
) -> Sequence[int]:
    if word == "layer":
        if number >= len(layout.counts):
            there = f"this model has attention layers 0 to {len(layout.counts) - 1}"
            raise HeadcountError(f"There is no layer {number}: {there}.")
        start: int = layout.starts[number]
        return range(start, start + layout.counts[number])
    if number > layout.total:
        raise HeadcountError(f"This model has {layout.total} heads, not {number}.")
    if word == "random":
        chosen = np.random.default_rng(seed).choice(layout.total, number, replace=False)
        return [int(head) for head in chosen]
    if scores is None:
        raise HeadcountError(f'Choose a ranking to colour the map by first: "{word}" follows it.')
    order = [int(head) for head in scores.order()]
    return order[:number] if word == "top" else order[len(order) - number :]


def _any_of_layers(layout: HeadLayout, chosen: Sequence[int], seed: int) -> list[int]:
    """As many heads of each layer as are chosen in it, drawn from all heads of the layer."""
    rng = np.random.default_rng(seed)
    heads: list[int] = []
    for layer, start in enumerate(layout.starts):
        count = int((layout.layers[list(chosen)] == layer).sum())
        heads += (start + rng.choice(layout.counts[layer], count, replace=False)).tolist()
    return heads


def _fits(value: Any, kind: str) -> bool:
    """Whether a value from outside has the type of a field."""
    if kind.startswith("tuple"):
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    if kind in KINDS:
        is_bool = isinstance(value, bool)
        return type(value) in KINDS[kind] and is_bool == (kind == "bool") and abs(value) < 1e9
    return isinstance(value, str)
