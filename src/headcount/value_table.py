"""The value of every example: what each interval of a result is computed from.

In a result folder the table is two files. `values.csv.gz` has one row for each head set and draw,
with its facts and the values of all examples, separated by spaces; `examples.csv.gz` has the id,
the template and the content of each example, in the order of the values. Values have five digits,
and estimates are made from these very numbers, so that a reader can recompute them all.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from headcount.errors import HeadcountError
from headcount.system.files import read_limited, write_csv

DIGITS = 5
VALUES, EXAMPLES = "values.csv.gz", "examples.csv.gz"
OWN = ("example", "template", "content")  # columns of the examples
WHOLE_NUMBERS = ("count", "draw")
Key = tuple[str | int, ...]


class MisfitError(HeadcountError):
    """The files of a result do not fit together."""


class ValueTable:
    """Values of shape (draws, examples) by their facts, and the examples that they belong to.

    `columns` are the names of the facts, such as model, task, series and count; `shared` are those
    of them that decide which examples there are.

    >>> table = ValueTable(("task", "series", "count"), shared=("task",))
    >>> table.name_examples([("a", "went", "lamp"), ("b", "gave", "lamp")], task="ioi")
    >>> table.put([0.25, 1.0], task="ioi", series="top", count=8)
    >>> table.get(task="ioi", series="top", count=8), table.clusters(task="ioi").tolist()
    (array([[0.25, 1.  ]]), [[0, 0], [1, 0]])
    """

    def __init__(self, columns: Sequence[str], shared: Sequence[str]) -> None:
        self.columns, self.shared = tuple(columns), tuple(shared)
        self._values: dict[Key, Float[np.ndarray, "draws examples"]] = {}
        self._examples: dict[Key, list[tuple[str, str, str]]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def name_examples(self, examples: Iterable[tuple[str, str, str]], **facts: Any) -> None:
        """Say which examples (id, template, content) the values of these facts belong to."""
        self._examples[tuple(facts[name] for name in self.shared)] = list(examples)

    def put(self, values: ArrayLike, **facts: Any) -> None:
        """Keep the values of one head set, one row for each draw, rounded to five digits."""
        table = np.atleast_2d(np.asarray(values, dtype=np.float64))
        known = self._examples[tuple(facts[name] for name in self.shared)]
        if table.shape[1] != len(known):
            raise ValueError(f"{table.shape[1]} values for {len(known)} examples")
        numbers = [float(text) for text in _texts(table.ravel())]
        self._values[tuple(facts[name] for name in self.columns)] = np.reshape(numbers, table.shape)

    def get(self, **facts: Any) -> Float[np.ndarray, "draws examples"]:
        """The values of one head set."""
        return self._values[tuple(facts[name] for name in self.columns)]

    def has(self, **facts: Any) -> bool:
        """Whether there are values of this head set."""
        return tuple(facts[name] for name in self.columns) in self._values

    def facts(self, **some: Any) -> Iterator[dict[str, Any]]:
        """The facts of all head sets, or of those that have some facts in common."""
        for key in self._values:
            facts = dict(zip(self.columns, key, strict=True))
            if some.items() <= facts.items():
                yield facts

    def names(self, column: str, **some: Any) -> list[Any]:
        """The different values of one fact, in order."""
        return list(dict.fromkeys(facts[column] for facts in self.facts(**some)))

    def examples(self, **facts: Any) -> list[tuple[str, str, str]]:
        """The id, template and content of each example."""
        return self._examples[tuple(facts[name] for name in self.shared)]

    def clusters(self, **facts: Any) -> Int[np.ndarray, "examples 2"]:
        """The numbers of each example's template and content, for resampling."""
        numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
        return np.array(
            [
                [
                    known.setdefault(name, len(known))
                    for known, name in zip(numbers, names, strict=True)
                ]
                for _, *names in self.examples(**facts)
            ]
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A tidy table: one row for each value."""
        return [
            {**facts, "draw": draw, **dict(zip(OWN, names, strict=True)), "value": value}
            for facts in self.facts()
            for draw, values in enumerate(self.get(**facts).tolist())
            for names, value in zip(self.examples(**facts), values, strict=True)
        ]

    def write(self, folder: Path) -> list[Path]:
        """Write both files; equal tables always give equal bytes."""
        values = [
            {**dict(zip(self.columns, key, strict=True)), "draw": draw, "values": _joined(row)}
            for key, table in self._values.items()
            for draw, row in enumerate(table)
        ]
        examples = [
            {**dict(zip(self.shared, key, strict=True)), **dict(zip(OWN, names, strict=True))}
            for key, named in self._examples.items()
            for names in named
        ]
        return [write_csv(folder / VALUES, values), write_csv(folder / EXAMPLES, examples)]

    @classmethod
    def read(cls, folder: Path) -> ValueTable:
        """Read both files; refuses those that do not fit together."""
        values, examples = _rows(folder / VALUES), _rows(folder / EXAMPLES)
        columns = [name for name in _names(values) if name not in ("draw", "values")]
        shared = [name for name in _names(examples) if name not in OWN]
        lacking = {"draw", "values"} - {*_names(values)} or {*OWN} - {*_names(examples)}
        if lacking or not set(shared) <= set(columns):
            raise MisfitError(f"{VALUES} and {EXAMPLES} in {folder} lack columns that they need.")
        table = cls(columns, shared)
        for row in examples:
            own: Key = tuple(row[name] for name in shared)
            table._examples.setdefault(own, []).append((row[OWN[0]], row[OWN[1]], row[OWN[2]]))
        draws: dict[Key, list[list[float]]] = defaultdict(list)
        for row in values:
            key = tuple(_fact(name, row[name]) for name in columns)
            expected = len(table._examples.get(tuple(row[name] for name in shared), ()))
            draws[key].append(_numbers(row["values"], expected, f"{folder / VALUES}, {key}"))
        table._values.update({key: np.array(rows) for key, rows in draws.items()})
        return table


def _names(rows: Sequence[Mapping[str, str]]) -> list[str]:
    return list(rows[0]) if rows else []


def _numbers(text: str, expected: int, where: str) -> list[float]:
    try:
        numbers = list(map(float, text.split()))
    except ValueError:
        raise MisfitError(f"{where}: a value is not a number.") from None
    if len(numbers) != expected:
        raise MisfitError(f"{where}: {len(numbers)} values for {expected} examples.")
    return numbers


def _joined(numbers: Iterable[float]) -> str:
    return " ".join(_texts(numbers))


def _texts(numbers: Iterable[float]) -> list[str]:
    return [f"{number:.{DIGITS}g}" for number in numbers]


def _fact(name: str, text: str) -> str | int:
    return int(text) if name in WHOLE_NUMBERS and text.lstrip("-").isdecimal() else text


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise HeadcountError(
            f"{path.parent} has no {path.name}, from which intervals are computed."
        )
    csv.field_size_limit(10_000_000)
    try:
        text = read_limited(path).decode("utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:
        raise HeadcountError(f"Cannot read {path}: it is damaged, or not a table.") from error
    if any(None in row or None in row.values() for row in rows):
        raise HeadcountError(f"Cannot read {path}: a row has too few or too many cells.")
    return rows
