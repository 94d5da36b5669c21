"""Heads, their layout in a model, and scores over them. Plain values: no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from headcount.errors import HeadcountError
from headcount.figures.head_map import draw_head_map
from headcount.figures.html import decimals, frame, picture, side_by_side, table
from headcount.figures.style import figure_of, shown
from headcount.system.files import read_json, replacing, write_json_rows
from headcount.system.frames import data_frame

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, order=True)
class Head:
    """One query head: the attention site it belongs to, and its place there. Both count from 0.

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
        if not (dot and layer.isdecimal() and index.isdecimal()):
            raise HeadcountError(f'"{text}" is not a head: write LAYER.HEAD, such as 3.4.')
        return cls(int(layer), int(index))


@dataclass(frozen=True)
class HeadLayout:
    """How many heads each attention site has; the order in which all heads of a model are numbered.

    A "layer" is an attention site: a block with two attentions has two, one without has none.

    >>> layout = HeadLayout((2, 3))
    >>> layout.total, list(map(str, layout))
    (5, ['0.0', '0.1', '1.0', '1.1', '1.2'])
    >>> layout.number(Head(1, 0))
    2
    >>> layout.gates(off=[Head(0, 1)])  # or ["0.1"]
    array([1., 0., 1., 1., 1.], dtype=float32)
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(count < 1 for count in self.counts):
            raise ValueError(f"every site needs at least one head, not {self.counts}")

    @property
    def total(self) -> int:
        """How many heads there are in all."""
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
        layers = len(self.counts)
        return f"{self.total} heads in {layers} layer{'' if layers == 1 else 's'}"

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
        named = (keep if off is None else off) or ()
        heads = (self.parse(head) if isinstance(head, str) else head for head in named)
        chosen = np.isin(np.arange(self.total), [self.number(head) for head in heads])
        return np.asarray(chosen if off is None else ~chosen, dtype=np.float32)


@dataclass(frozen=True)
class HeadSet:
    """Heads that are masked together or, with `keep`, the only heads that are not masked.

    heads   names ("3.4"), `Head`s, or one text of names ("3.4 11.2")
    keep    mask all other heads instead of these
    gate    the number by which masked heads are multiplied

    >>> HeadSet("0.1 1.0").gates(HeadLayout((2, 2)))
    array([1., 0., 0., 1.], dtype=float32)
    >>> print(HeadSet([Head(0, 1)], keep=True))
    only 0.1
    """

    heads: tuple[Head, ...]
    keep: bool = False
    gate: float = 0.0

    def __init__(
        self, heads: str | Head | Iterable[str | Head], *, keep: bool = False, gate: float = 0.0
    ) -> None:
        given = (
            heads.replace(",", " ").split()
            if isinstance(heads, str)
            else [heads]
            if isinstance(heads, Head)
            else list(heads)
        )
        for head in given:
            if not isinstance(head, str | Head):
                raise HeadcountError(f'{head!r} is not a head: write LAYER.HEAD, such as "3.4".')
        parsed = (Head.parse(head) if isinstance(head, str) else head for head in given)
        object.__setattr__(self, "heads", tuple(dict.fromkeys(parsed)))
        object.__setattr__(self, "keep", keep)
        object.__setattr__(self, "gate", float(gate))

    def __str__(self) -> str:
        names = " ".join(map(str, self.heads))
        return (
            f"only {names or 'no head'}" if self.keep else f"without {names}" if names else "whole"
        )

    def __len__(self) -> int:
        return len(self.heads)

    def gates(self, layout: HeadLayout) -> Float[np.ndarray, "heads"]:
        """One gate for each head of a model; refuses heads that the model does not have."""
        named = np.isin(np.arange(layout.total), [layout.number(head) for head in self.heads])
        return np.where(named == self.keep, 1, self.gate).astype(np.float32)


@dataclass(frozen=True, eq=False)
class HeadScores:
    """One score per head, higher meaning more important, and where the scores come from.

    `samples` holds the raw values behind the mean, one row per example or seed, where the ranking
    has them.

    >>> scores = HeadScores(HeadLayout((2, 2)), np.array([0.1, 0.9, 0.0, 0.5]), ranking="by hand")
    >>> [str(head) for head in scores.top(2)]
    ['0.1', '1.1']
    """

    layout: HeadLayout
    values: Float[np.ndarray, "heads"]
    ranking: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    samples: Float[np.ndarray, "samples heads"] | None = None

    def __post_init__(self) -> None:
        if self.values.shape != (self.layout.total,):
            raise HeadcountError(
                f"Scores need one value for each of the {self.layout.total} heads, not an array of "
                f"shape {self.values.shape}."
            )
        if not np.isfinite(self.values).all():
            raise HeadcountError(
                f'The ranking "{self.ranking}" gave scores that are not numbers (NaN or infinite): '
                "check the model's dtype and the task."
            )

    @classmethod
    def averaged(
        cls,
        layout: HeadLayout,
        samples: Float[np.ndarray, "samples heads"],
        ranking: str,
        parameters: Mapping[str, Any] | None = None,
    ) -> HeadScores:
        """The mean of samples: one row per example or seed."""
        return cls(layout, samples.mean(0), ranking, dict(parameters or {}), samples)

    def order(self) -> Int[np.ndarray, "heads"]:
        """Head numbers from the highest score to the lowest; equal scores in head order."""
        return np.argsort(-self.values, kind="stable")

    def top(self, count: int) -> list[Head]:
        """The `count` heads with the highest scores, best first."""
        if not 0 <= count <= self.layout.total:
            raise HeadcountError(
                f"Cannot take the top {count} of {self.layout.total} heads: ask for a number from "
                f"0 to {self.layout.total}."
            )
        return [self.layout.head(number) for number in self.order()[:count]]

    def intervals(
        self, clusters: Sequence[Any] | np.ndarray | None = None, *, resamples: int = 2000
    ) -> Float[np.ndarray, "heads 2"]:
        """The ends of each head's 95 % interval, by bootstrap over samples; NaN where unknown.

        `clusters` names each sample's cluster, as in `stats`; from n, each resample draws n - 1.
        """
        rows = 0 if self.samples is None else len(self.samples)
        names = np.arange(rows) if clusters is None else np.asarray(clusters)
        if self.samples is not None and names.shape != (rows,):
            raise ValueError(f"{len(names)} cluster names for {rows} samples")
        _, labels, sizes = np.unique(names, return_inverse=True, return_counts=True)
        if self.samples is None or len(sizes) < 2:
            return np.full((self.layout.total, 2), np.nan)
        sums = np.zeros((len(sizes), self.layout.total))
        np.add.at(sums, labels, self.samples)
        even = np.full(len(sizes), 1 / len(sizes))
        drawn = np.random.default_rng(0).multinomial(len(sizes) - 1, even, size=resamples)
        means = (drawn @ sums) / (drawn @ sizes)[:, None]  # (resamples, heads)
        return np.asarray(np.quantile(means, [0.025, 0.975], axis=0).T)

    def __repr__(self) -> str:
        best = ", ".join(
            f"{self.layout.head(n)} {self._text(self.values[n])}" for n in self.order()[:3]
        )
        return f"<HeadScores by {self.ranking}: {self.layout}; best {best}>"

    def __str__(self) -> str:
        lines = [f"{'head':>8}{'score':>11}  95 % interval"]
        for head, value, *ends in self._table():
            lines.append(f"{head:>8}{value:>11}" + "".join(f"  {text}" for text in ends))
        rest = self.layout.total - (len(lines) - 1)
        return "\n".join([*lines, f"… and {rest} others"] if rest else lines)

    def plot(self, ax: Axes | None = None, *, title: str = "") -> Axes:
        """Draw a map of the scores, layer by head, into `ax` or into a new figure.

        >>> scores = HeadScores(HeadLayout((2, 2)), np.array([0.1, 0.9, 0.0, 0.5]), "by hand")
        >>> scores.plot(title="by hand").get_ylabel()
        'layer'
        """
        drawn = draw_head_map(self.values.tolist(), self.layout.counts, title=title, axes=ax)
        if ax is None:
            shown(figure_of(drawn))
        return drawn

    def to_frame(self) -> pandas.DataFrame:
        """A pandas data frame with one row for each head, in the order of the layout.

        The columns are head, layer, index, score, and the ends of the 95 % interval: low and high.

        >>> scores = HeadScores(HeadLayout((1, 1)), np.array([0.1, 0.9]), "by hand")
        >>> print(scores.to_frame()[["head", "score"]])
          head  score
        0  0.0    0.1
        1  1.0    0.9
        """
        columns = ("head", "layer", "index", "score", "low", "high")
        table = zip(self.layout, self.values.tolist(), self.intervals().tolist(), strict=True)
        rows = [(str(head), head.layer, head.index, score, *ends) for head, score, ends in table]
        return data_frame([dict(zip(columns, row, strict=True)) for row in rows])

    def _repr_html_(self) -> str:
        rows = self._table()
        header = ["head", "score", "95 % interval"][: len(rows[0])]
        about = [self.parameters[key] for key in ("task", "model") if key in self.parameters]
        title = " · ".join([f"Heads by {self.ranking}", *map(str, about), str(self.layout)])
        best = table(header, rows, numbers=len(header) - 1)
        drawn = draw_head_map(self.values.tolist(), self.layout.counts)
        return frame(title, side_by_side(picture(figure_of(drawn)), best))

    def _table(self) -> list[list[str]]:
        """The best heads, their scores and, where known, intervals."""
        ends = self.intervals()
        known = bool(np.isfinite(ends).all())
        return [
            [str(self.layout.head(n)), self._text(self.values[n])]
            + [f"{self._text(ends[n, 0])} to {self._text(ends[n, 1])}"] * known
            for n in self.order()[:10]
        ]

    def _text(self, value: float) -> str:
        return f"{value:+.{decimals(float(np.abs(self.values).max()))}f}"

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back, bit for bit."""
        return {
            "format": "headcount scores 1",
            "ranking": self.ranking,
            "parameters": dict(self.parameters),
            "heads_per_layer": list(self.layout.counts),
            "values": [float(v) for v in self.values],
            "samples": None if self.samples is None else self.samples.tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HeadScores:
        """Read what `to_json` wrote."""
        try:
            samples = data.get("samples")
            return cls(
                HeadLayout(tuple(data["heads_per_layer"])),
                np.asarray(data["values"], dtype=np.float64),
                ranking=data["ranking"],
                parameters=data["parameters"],
                samples=None if samples is None else np.asarray(samples, dtype=np.float64),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HeadcountError(f"This is not a file of head scores: {error!r}.") from error

    def save(self, path: str | Path) -> None:
        """Write the scores as `NAME.json`, and their samples as `NAME.npz` beside it.

        The samples are kept in float32, which is more than their intervals need; the scores
        themselves are read back bit for bit. `NAME.json` can also be read alone.
        """
        samples = _samples_path(path)
        # Old samples go first, so that after a crash they never stand beside new scores.
        samples.unlink(missing_ok=True)
        write_json_rows(path, {k: v for k, v in self.to_json().items() if k != "samples"})
        if self.samples is not None:
            with replacing(samples) as beside, beside.open("wb") as file:
                np.savez_compressed(file, samples=self.samples.astype(np.float32))

    @classmethod
    def load(cls, path: str | Path) -> HeadScores:
        """Read scores that `save` wrote, with their samples if those are still beside them."""
        scores = cls.from_json(read_json(path, "head scores"))
        samples = _samples_path(path)
        if not samples.exists():
            return scores
        return replace(scores, samples=_read_samples(samples, scores.layout))


def _samples_path(path: str | Path) -> Path:
    return Path(f"{str(path).removesuffix('.json')}.npz")


def _read_samples(path: Path, layout: HeadLayout) -> Float[np.ndarray, "samples heads"]:
    advice = "delete it to do without the samples, or rank the heads again"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            samples = np.asarray(arrays["samples"], dtype=np.float64)
    except Exception as error:  # a damaged archive fails in many ways
        raise HeadcountError(
            f"Cannot read samples of head scores from {path}: {advice}."
        ) from error
    if samples.ndim != 2 or samples.shape[1] != layout.total:
        raise HeadcountError(
            f"{path} holds samples of shape {samples.shape}, not one for each of {layout.total} "
            f"heads in a row: {advice}."
        )
    return samples


def check_gates(gates: Any, layout: HeadLayout) -> Float[np.ndarray, "sets heads"]:
    """Return `gates` as one row of numbers per head set, or say what is wrong with them."""
    needed = f"Gates need shape (head sets, {layout.total}), one number for each head of the model"
    try:
        given = np.asarray(gates)
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
    """One gate for each head, from whatever names one head set.

    That is a list of names or `Head`s that are masked, a `HeadSet`, or gates.

    >>> as_gates(["0.1"], HeadLayout((2, 1)))
    array([1., 0., 1.], dtype=float32)
    """
    if isinstance(heads, HeadSet):
        return heads.gates(layout)
    if isinstance(heads, str | Head):
        return HeadSet(heads).gates(layout)
    if not _is_array(heads):
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
    """Whether these are gates in an array or a tensor; an array of texts holds names."""
    return hasattr(heads, "ndim") and getattr(heads.dtype, "kind", "f") not in "UO"


def _several(heads: Any) -> bool:
    """Whether this is a list of head sets, and not one head set."""
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


def check_counts(counts: Sequence[int], layout: HeadLayout) -> list[int]:
    """Return `counts` sorted and without repeats, or refuse those that the model cannot meet."""
    for count in counts:
        if not 0 <= count <= layout.total:
            raise HeadcountError(
                f"Cannot choose {count} heads: this model has {layout.total} "
                "(counts go from 0 to that number)."
            )
    return sorted({int(count) for count in counts})
