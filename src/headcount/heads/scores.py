"""The scores that a ranking gives to the heads of a model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.errors import HeadcountError
from headcount.figures.head_map import draw_head_map
from headcount.figures.html import decimals, frame, picture, side_by_side, table
from headcount.figures.style import figure_of, shown
from headcount.heads.head import FORMAT as HEAD_SET
from headcount.heads.head import UNITS, Head, HeadLayout
from headcount.stats import Clusters, Resampling
from headcount.system.files import read_json, replacing, write_json_rows
from headcount.system.frames import data_frame

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


Goal = Literal["keep", "mask", "both", "neither", ""]
GOALS: tuple[Goal, ...] = ("keep", "mask")  # the questions that heads are ranked for
FORMAT = "headcount scores 1"  # of the file of scores


@dataclass(frozen=True, eq=False)
class HeadScores:
    """One score per head, higher meaning more important, and where the scores come from.

    `samples` holds the values whose mean the scores are, one row per example or seed; None if the
    ranking has no such values. `sets` holds head sets that were each made for their own size, one
    row of truth values for each: they need not be nested. `ends` are those of 95 % intervals, for
    scores that were read without their samples.

    >>> scores = HeadScores(HeadLayout((2, 2)), np.array([0.1, 0.9, 0.0, 0.5]), ranking="by hand")
    >>> [str(head) for head in scores.top(2)]
    ['0.1', '1.1']
    """

    layout: HeadLayout
    values: Float[np.ndarray, "heads"]
    ranking: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    samples: Float[np.ndarray, "samples heads"] | None = None
    sets: Bool[np.ndarray, "sets heads"] | None = None
    ends: Float[np.ndarray, "heads 2"] | None = None

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

    @property
    def goal(self) -> Goal:
        """What the heads were ranked for: to be kept alone ("keep"), or to be masked ("mask").

        "both" if one order serves both questions, "neither" if the ranking asks none of the two,
        and an empty text if it does not say.

        >>> HeadScores(HeadLayout((1,)), np.ones(1), "by hand", {"goal": "keep"}).goal
        'keep'
        """
        goal: Goal = self.parameters.get("goal", "")
        return goal

    @property
    def listed(self) -> int:
        """How many heads are told apart from the others: all, unless a list names only some."""
        return int(self.parameters.get("listed", self.layout.total))

    @property
    def ordered(self) -> bool:
        """Whether the best heads have an order: a list may name heads without one."""
        return bool(self.parameters.get("ordered", True))

    def order(self) -> Int[np.ndarray, "heads"]:
        """Head numbers from the highest score to the lowest; equal scores in head order."""
        return np.argsort(-self.values, kind="stable")

    def best(self, count: int) -> Int[np.ndarray, "count"]:
        """The numbers of the best `count` heads: of the set made for that count, if there is one.

        Other counts take the set of the next smaller count and fill it up in the order of scores;
        without sets, that order alone decides.

        >>> values, sets = np.array([3.0, 2.0, 1.0]), np.array([[False, False, True]])
        >>> HeadScores(HeadLayout((3,)), values, "by hand", sets=sets).best(2).tolist()
        [2, 0]
        """
        order = self.order()
        if self.sets is None:
            return order[:count]
        sizes = self.sets.sum(1)
        smaller = self.sets[sizes <= count]
        if not len(smaller):
            return order[:count]
        first = smaller[sizes[sizes <= count].argmax()][order]
        return np.concatenate([order[first], order[~first]])[:count]

    def top(self, count: int) -> list[Head]:
        """The best `count` heads, best first: those with the highest scores, unless sets say."""
        if not 0 <= count <= self.layout.total:
            raise HeadcountError(
                f"Cannot take the top {count} of {self.layout.total} heads: ask for a number from "
                f"0 to {self.layout.total}."
            )
        return [self.layout.head(number) for number in self.best(count)]

    def intervals(self, clusters: Clusters | None = None) -> Float[np.ndarray, "heads 2"]:
        """The ends of each head's 95 % interval, over samples; NaN if there are neither.

        `clusters` has each sample's template and content, as in `stats`.
        """
        if self.samples is None and self.ends is not None:
            return self.ends
        rows = 0 if self.samples is None else len(self.samples)
        labels = np.arange(rows) if clusters is None else np.asarray(clusters)
        if self.samples is not None and len(labels) != rows:
            raise ValueError(f"{len(labels)} clusters for {rows} samples")
        if self.samples is None or rows < 2:
            return np.full((self.layout.total, 2), np.nan)
        found = Resampling(labels).columns(np.asarray(self.samples, dtype=np.float64))
        return np.stack(found.ends(), 1)

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
        lines += [f"… and {rest} others"] * bool(rest)
        return "\n".join([*lines, *filter(None, [self.parameters.get("note")])])

    def with_note(self, note: str) -> HeadScores:
        """The scores with a sentence that a reader must know; the same scores if it is empty."""
        return replace(self, parameters={**self.parameters, "note": note}) if note else self

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
            "format": FORMAT,
            "ranking": self.ranking,
            "parameters": dict(self.parameters),
            "heads_per_layer": list(self.layout.counts),
            **({} if self.layout.unit == "head" else {"unit": self.layout.unit}),
            "values": [float(v) for v in self.values],
            "samples": None if self.samples is None else self.samples.tolist(),
            **({} if self.sets is None else {"sets": list(map(_numbers, self.sets))}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HeadScores:
        """Read what `to_json` wrote; refuses anything else, with the first thing that is wrong."""
        if not isinstance(data, Mapping):
            raise _no_scores("it is no JSON object")
        if data.get("format") == HEAD_SET:
            raise _no_scores("it is a head set, which --heads and HeadSet.load take")
        counts, samples = data.get("heads_per_layer"), data.get("samples")
        if not _are(counts, int) or not counts or min(counts) < 1:
            raise _no_scores("heads_per_layer must be a list of numbers of heads")
        if not isinstance(data.get("ranking"), str) or not isinstance(data.get("parameters"), dict):
            raise _no_scores("it needs the name of a ranking, and parameters")
        if (unit := data.get("unit", "head")) not in list(UNITS):
            raise _no_scores(f"its unit must be one of {', '.join(UNITS)}")
        layout = HeadLayout(tuple(counts), unit)
        values = _matrix([data.get("values")], layout.total, "values")[0]
        if samples is not None:
            samples = _matrix(samples, layout.total, "samples")
        sets = data.get("sets")
        sets = None if sets is None else _read_sets(sets, layout.total)
        ends = data.get("intervals")
        if ends is not None:
            if not _are(ends, list) or len(ends) != layout.total:
                raise _no_scores(f"its intervals must be of each of {layout.total} heads")
            ends = _matrix(ends, 2, "intervals", "ends of each interval")
        _check_listed(data["parameters"], layout.total)
        return cls(layout, values, data["ranking"], data["parameters"], samples, sets, ends)

    def save(self, path: str | Path, clusters: Clusters | None = None) -> None:
        """Write the scores as `NAME.json`, and their samples as `NAME.npz` in the same folder.

        The samples are kept in float32, which is more than their intervals need; the scores
        themselves are read back bit for bit. `NAME.json` can also be read alone: if `clusters` are
        given, it has the intervals, too.
        """
        samples = _samples_path(path)
        # Delete old samples first: after a crash, no folder holds new scores with old samples.
        samples.unlink(missing_ok=True)
        document = {k: v for k, v in self.to_json().items() if k != "samples"}
        ends = self.intervals(clusters) if clusters is not None else self.ends
        if ends is not None and np.isfinite(ends).all():
            document["intervals"] = ends.tolist()
        write_json_rows(path, document)
        if self.samples is not None:
            with replacing(samples) as new, new.open("wb") as file:
                np.savez_compressed(file, samples=self.samples.astype(np.float32))

    @classmethod
    def load(cls, path: str | Path) -> HeadScores:
        """Read scores that `save` wrote, with their samples if `NAME.npz` exists."""
        try:
            scores = cls.from_json(read_json(path, "head scores"))
        except HeadcountError as error:
            raise HeadcountError(str(error).replace("This is", f"{path} is", 1)) from error
        samples = _samples_path(path)
        if not samples.exists():
            return scores
        return replace(scores, samples=_read_samples(samples, scores.layout))


def _are(items: Any, *kinds: type) -> bool:
    """Whether this is a list of such items; Python counts truth values among the numbers."""
    return isinstance(items, list) and all(type(item) in kinds for item in items)


def _matrix(
    rows: Any, wide: int, name: str, of: str = "heads"
) -> Float[np.ndarray, "rows columns"]:
    """Rows of finite numbers, one for each head."""
    if _are(rows, list) and all(len(row) == wide and _are(row, int, float) for row in rows):
        with suppress(OverflowError):  # of a whole number with hundreds of digits
            numbers = np.array(rows, dtype=np.float64).reshape(-1, wide)
            if np.isfinite(numbers).all():
                return numbers
    raise _no_scores(f"{name} must have a finite number for each of {wide:,} {of}")


def _check_listed(parameters: Mapping[str, Any], heads: int) -> None:
    listed, ordered = parameters.get("listed", heads), parameters.get("ordered", True)
    if type(listed) is not int or not 1 <= listed <= heads or type(ordered) is not bool:
        raise _no_scores(f"listed must be a number from 1 to {heads}, and ordered true or false")


def _numbers(one_set: Bool[np.ndarray, "heads"]) -> list[int]:
    return [int(number) for number in np.flatnonzero(one_set)]


def _read_sets(rows: Any, heads: int) -> Bool[np.ndarray, "sets heads"]:
    """Head sets, each as a list of different head numbers."""
    if not _are(rows, list):
        raise _no_scores("its sets must be lists of numbers of heads")
    sets = np.zeros((len(rows), heads), dtype=bool)
    for one_set, row in zip(sets, rows, strict=True):
        if not _are(row, int) or len({*row}) < len(row) or not all(0 <= n < heads for n in row):
            raise _no_scores(f"each of its sets must be a list of different numbers below {heads}")
        one_set[row] = True
    return sets


def _no_scores(reason: str) -> HeadcountError:
    return HeadcountError(f"This is not a file of head scores: {reason}.")


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
