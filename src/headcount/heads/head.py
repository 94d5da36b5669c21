"""Heads, their layout in a model, and head sets, in each form in which users give them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from headcount.errors import HeadcountError, counted
from headcount.system.files import read_json, write_json_rows

FORMAT = "headcount head set 1"  # of the file of a head set

Unit = Literal["head", "kv"]
# What a layout counts: query heads, or key/value heads, each with all of its query heads.
UNITS: dict[str, str] = {"head": "head", "kv": "key/value head"}


@dataclass(frozen=True, order=True)
class Head:
    """One query head: its attention site ("layer") and its index in it, both counted from 0.

    >>> str(Head(3, 4))
    '3.4'
    """

    layer: int
    index: int

    def __str__(self) -> str:
        return f"{self.layer}.{self.index}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read a head written as LAYER.HEAD, such as 3.4."""
        layer, dot, index = text.strip().partition(".")
        if not (dot and layer.isdecimal() and index.isdecimal() and len(layer + index) < 20):
            raise HeadcountError(f'"{text[:40]}" is not a head: write LAYER.HEAD, such as 3.4.')
        return cls(int(layer), int(index))


@dataclass(frozen=True)
class HeadLayout:
    """How many heads each attention site has; the order in which all heads of a model are numbered.

    A "layer" is an attention site: a block with two attentions has two, one without has none. The
    unit "kv" counts key/value heads, each of which stands for all of its query heads.

    >>> layout = HeadLayout((2, 3))
    >>> layout.total, list(map(str, layout))
    (5, ['0.0', '0.1', '1.0', '1.1', '1.2'])
    >>> layout.number(Head(1, 0))
    2
    >>> layout.gates(off=[Head(0, 1)])  # or ["0.1"]
    array([1., 0., 1., 1., 1.], dtype=float32)
    """

    counts: tuple[int, ...]
    unit: Unit = field(default="head", repr=False)

    def __post_init__(self) -> None:
        if any(count < 1 for count in self.counts):
            raise ValueError(f"every site needs at least one head, not {self.counts}")

    @property
    def total(self) -> int:
        """The number of heads of all sites."""
        return sum(self.counts)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of each site's first head."""
        return tuple(int(n) for n in np.cumsum((0, *self.counts))[:-1])

    @cached_property
    def layers(self) -> Int[np.ndarray, "heads"]:
        """The site of each head."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def __str__(self) -> str:
        return f"{self.total} {self.word}s in {counted(len(self.counts), 'layer')}"

    @property
    def word(self) -> str:
        """What is counted, in words: head, or key/value head."""
        return UNITS[self.unit]

    def __iter__(self) -> Iterator[Head]:
        for layer, count in enumerate(self.counts):
            for index in range(count):
                yield Head(layer, index)

    def __len__(self) -> int:
        return self.total

    def head(self, number: int) -> Head:
        """The head with this number."""
        layer = int(self.layers[number])
        return Head(layer, int(number) - self.starts[layer])

    def number(self, head: Head) -> int:
        """The place of `head` in the order of all heads."""
        layer, index, layers = head.layer, head.index, len(self.counts)
        there = f"this model has attention layers 0 to {layers - 1}"
        if 0 <= layer < layers:
            if 0 <= index < self.counts[layer]:
                return self.starts[layer] + index
            there = f"layer {layer} has heads 0 to {self.counts[layer] - 1}"
        raise HeadcountError(f"There is no head {head}: {there}.")

    def parse(self, text: str) -> Head:
        """Read a head written as LAYER.HEAD, such as 3.4, and check that the model has it."""
        head = Head.parse(text)
        self.number(head)
        return head

    def gates(
        self,
        *,
        off: Iterable[Head | str] | None = None,
        keep: Iterable[Head | str] | None = None,
    ) -> Float[np.ndarray, "heads"]:
        """One gate per head: 0 for the heads in `off` (or for all but those in `keep`), else 1."""
        if (off is None) == (keep is None):
            raise ValueError("give either off or keep")
        named = keep if off is None else off
        return HeadSet(() if named is None else named, keep=off is None).gates(self)


@dataclass(frozen=True)
class HeadSet:
    """Heads that are masked together or, with `keep`, the only heads that are not masked.

    heads   names ("3.4"), objects of type `Head`, or one text of names ("3.4 11.2"); kept sorted
    keep    mask all other heads instead of these
    gate    the number by which masked heads are multiplied
    layout  that of the model for which they were chosen: models with another one are refused

    >>> HeadSet("0.1 1.0").gates(HeadLayout((2, 2)))
    array([1., 0., 0., 1.], dtype=float32)
    >>> print(HeadSet([Head(0, 1)], keep=True))
    only 0.1
    """

    heads: tuple[Head, ...]
    keep: bool = False
    gate: float = 0.0
    layout: HeadLayout | None = field(default=None, compare=False, repr=False)

    def __init__(
        self,
        heads: str | Head | Iterable[str | Head],
        *,
        keep: bool = False,
        gate: float = 0.0,
        layout: HeadLayout | None = None,
    ) -> None:
        if isinstance(heads, str):
            heads = heads.replace(",", " ").split()
        given = list(heads) if isinstance(heads, Iterable) else [heads]
        for head in given:
            if not isinstance(head, str | Head):
                raise HeadcountError(f'{head!r} is not a head: write LAYER.HEAD, such as "3.4".')
        parsed = {Head.parse(head) if isinstance(head, str) else head for head in given}
        object.__setattr__(self, "heads", tuple(sorted(parsed)))
        object.__setattr__(self, "keep", keep)
        object.__setattr__(self, "gate", float(gate))
        object.__setattr__(self, "layout", layout)
        if not np.isfinite(self.gate):
            raise HeadcountError(f"The gate of a head set is a number such as 0, not {gate}.")

    def __str__(self) -> str:
        names = " ".join(map(str, self.heads))
        damped = f", masked heads times {self.gate:g}" if self.gate else ""
        if self.keep:
            return f"only {names or 'no head'}{damped}"
        return f"without {names}{damped}" if names else "whole"

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[Head]:
        return iter(self.heads)

    def gates(self, layout: HeadLayout) -> Float[np.ndarray, "heads"]:
        """One gate for each head of a model; refuses heads that the model does not have."""
        if self.layout not in (None, layout):
            raise HeadcountError(
                f"This head set was chosen for a model with {self.layout}, and this model has "
                f"{layout}."
            )
        named = np.isin(np.arange(layout.total), [layout.number(head) for head in self.heads])
        return np.where(named == self.keep, 1, self.gate).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        counts = {} if self.layout is None else {"heads_per_layer": list(self.layout.counts)}
        heads = list(map(str, self.heads))
        return {"format": FORMAT, **counts, "heads": heads, "keep": self.keep, "gate": self.gate}

    @classmethod
    def from_json(cls, data: Any) -> HeadSet:
        """Read what `to_json` wrote; refuses anything else, with the first thing that is wrong.

        >>> HeadSet.from_json(HeadSet("0.1", keep=True).to_json())
        HeadSet(heads=(Head(layer=0, index=1),), keep=True, gate=0.0)
        """
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise _no_head_set(f'its format is not "{FORMAT}"')
        heads, keep, gate = (data.get(name) for name in ("heads", "keep", "gate"))
        if not isinstance(heads, list) or not all(isinstance(head, str) for head in heads):
            raise _no_head_set('its heads must be a list of names such as "3.4"')
        if isinstance(gate, bool) or not isinstance(gate, int | float) or not abs(gate) < 1e9:
            raise _no_head_set("gate must be a number")
        if not isinstance(keep, bool):
            raise _no_head_set("keep must be true or false")
        counts = data.get("heads_per_layer", [])
        if not isinstance(counts, list) or any(type(n) is not int or n < 1 for n in counts):
            raise _no_head_set("heads_per_layer must be a list of numbers of heads")
        layout = HeadLayout(tuple(counts)) if counts else None
        return cls(heads, keep=keep, gate=gate, layout=layout)

    def save(self, path: str | Path) -> None:
        """Write the head set as a JSON file, which `--heads` on the command line reads, too."""
        write_json_rows(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> HeadSet:
        """Read a head set that `save`, or the explorer, wrote."""
        try:
            return cls.from_json(read_json(path, "a head set"))
        except HeadcountError as error:
            raise HeadcountError(str(error).replace("This is", f"{path} is", 1)) from error


def _no_head_set(reason: str) -> HeadcountError:
    return HeadcountError(f"This is not a file of a head set: {reason}.")


def check_gates(gates: Any, layout: HeadLayout) -> Float[np.ndarray, "sets heads"]:
    """Return `gates` as one row of numbers per head set, or say what is wrong with them."""
    needed = f"Gates need shape (head sets, {layout.total}), one number for each head of the model"
    try:  # NumPy has no bfloat16, and reads no tensor with a gradient or on a GPU
        tensor = hasattr(gates, "detach")
        given = np.asarray(gates.detach().float().cpu() if tensor else gates)
        if given.dtype.kind not in "biuf":  # NumPy would read the name "3.4" as a number
            raise TypeError(f"{given.dtype} is no kind of number")
        array = np.atleast_2d(given.astype(np.float32))
    except (TypeError, ValueError) as error:  # rows of different lengths, or no numbers at all
        raise HeadcountError(f"{needed}: {error}.") from error
    if array.ndim != 2 or array.shape[1] != layout.total:
        raise HeadcountError(f"{needed}, not {np.shape(gates)}.")
    if not np.isfinite(array).all():
        raise HeadcountError("Gates must be finite numbers: there is a NaN or an infinity in them.")
    return array


def as_gates(heads: Any, layout: HeadLayout) -> Float[np.ndarray, "heads"]:
    """One gate for each head, from masked heads (names or `Head`s), a `HeadSet`, or gates.

    >>> as_gates(["0.1"], HeadLayout((2, 1)))
    array([1., 0., 1.], dtype=float32)
    """
    if isinstance(heads, HeadSet):
        return heads.gates(layout)
    if isinstance(heads, str | Head):
        return HeadSet(heads).gates(layout)
    if isinstance(heads, Mapping):  # its values would be ignored
        raise _not_heads(heads, layout)
    if not _is_array(heads):
        if _several(heads) and len(heads) > 1:
            raise HeadcountError(f"Give one head set here, not {len(heads)}.")
        try:
            items = list(heads)
        except TypeError as error:
            raise _not_heads(heads, layout) from error
        named = [isinstance(item, str | Head) for item in items]
        if all(named):
            return HeadSet(items).gates(layout)
        if any(named):
            raise _not_heads(heads, layout)
    gates = check_gates(heads, layout)
    if len(gates) != 1:
        raise HeadcountError(f"Give one head set here, not {len(gates)}.")
    return np.asarray(gates[0])


def gates_by_label(heads: Any, layout: HeadLayout) -> dict[Any, Float[np.ndarray, "heads"]]:
    """The gates of one head set or of several, by label: the keys of a dict, else 0, 1, 2, …

    >>> gates_by_label({"all": [], "best": ["0.1"]}, HeadLayout((2,)))["best"]
    array([1., 0.], dtype=float32)
    >>> list(gates_by_label([["0.0"], ["0.1"], HeadSet("0.0", keep=True)], HeadLayout((2,))))
    [0, 1, 2]
    """
    if isinstance(heads, Mapping):
        several = dict(heads)
    elif _is_array(heads):
        several = dict(enumerate(check_gates(heads, layout)))
    elif _several(heads):
        several = dict(enumerate(heads))
    else:
        several = {0: heads}
    if not several:
        raise HeadcountError("Give at least one head set; [] is the whole model.")
    return {label: as_gates(one_set, layout) for label, one_set in several.items()}


def _is_array(heads: Any) -> bool:
    """Whether `heads` is an array or tensor of gates; an array of texts holds names of heads."""
    return (
        hasattr(heads, "ndim") and getattr(getattr(heads, "dtype", None), "kind", "f") not in "UO"
    )


def _several(heads: Any) -> bool:
    """Whether `heads` is a list of head sets, and not one head set."""
    return (
        isinstance(heads, list | tuple)
        and bool(heads)
        and all(hasattr(item, "__len__") and not isinstance(item, str) for item in heads)
    )


def _not_heads(heads: Any, layout: HeadLayout) -> HeadcountError:
    text = repr(heads) if len(repr(heads)) <= 60 else f"{repr(heads)[:59]}…"
    return HeadcountError(
        'Heads are given as names such as "3.4", as Head objects, as a HeadSet, or as one gate '
        f"for each of the {layout.total} heads, not as {text}."
    )


def check_counts(counts: Any, layout: HeadLayout | None = None) -> list[int]:
    """Return `counts` sorted and without repeats, or refuse those that exceed the model's heads.

    Without a layout, as long as no model is loaded, only what fits no model is refused.
    """
    if isinstance(counts, str) or not isinstance(counts, Iterable):
        raise HeadcountError(
            f"Counts are a list of numbers of heads, such as [0, 4], not {counts!r}."
        )
    for count in counts:
        whole = isinstance(count, Integral | float) and count % 1 == 0
        if not whole or not 0 <= count <= (math.inf if layout is None else layout.total):
            has = "counts are whole numbers, from 0 on"
            if layout is not None:
                has = f"this model has {layout.total} (counts go from 0 to that number)"
            raise HeadcountError(f"Cannot choose {count} heads: {has}.")
    return sorted({int(count) for count in counts})
