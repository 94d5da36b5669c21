"""List, export and clean a store, as `headcount store` does."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headcount.errors import HeadcountError, did_you_mean
from headcount.store.checks import NO_SUM, checksums, key_codes
from headcount.store.database import Database, delete_contexts
from headcount.system.files import replacing

NAMED = ("model", "task", "metric", "ablation")
"""The entries of a context that listings and exports show first."""

COLUMNS = ("head_set", "head_set_key", "example", "example_key", "value", "created")
"""The columns of an export that follow the entries of the contexts."""

BATCH = 50_000  # rows of an export that are handled at once
Rows = Iterable[list[Any]]


@dataclass(frozen=True)
class Summary:
    """How much the store holds of one context."""

    model: str
    task: str
    metric: str
    ablation: str
    head_sets: int
    examples: int
    values: int
    documents: int
    last_written: datetime
    context: Mapping[str, Any]


class Inventory:
    """The part of an open store that lists, exports and deletes."""

    database: Database

    def summary(self) -> list[Summary]:
        """One row per context, sorted by model, task, metric and ablation."""
        rows = self.database.run(
            lambda connection: connection.execute(
                """
                SELECT json, ifnull(sets, 0), ifnull(examples, 0), ifnull(cells, 0),
                    ifnull(documents, 0), max(ifnull(m.last, 0), ifnull(d.last, 0))
                FROM contexts
                LEFT JOIN (
                    SELECT context, count(DISTINCT head_set) AS sets,
                        count(DISTINCT example) AS examples, count(*) AS cells, max(created) AS last
                    FROM (
                        SELECT context, head_set, example, created FROM measurements
                        UNION ALL SELECT context, head_set, example, created FROM texts
                    ) GROUP BY context
                ) AS m ON m.context = id
                LEFT JOIN (
                    SELECT context, count(*) AS documents, max(created) AS last
                    FROM documents GROUP BY context
                ) AS d ON d.context = id
                """
            ).fetchall()
        )
        summaries = []
        for text, sets, examples, cells, documents, last in rows:
            context = _context(text)
            model, task, metric, ablation = (_cell(context.get(name)) or "" for name in NAMED)
            rest = (sets, examples, cells, documents, _time(last), context)
            summaries.append(Summary(model, task, metric, ablation, *rest))
        return sorted(summaries, key=lambda row: (row.model, row.task, row.metric, row.ablation))

    def export(self, path: str | Path, format: str | None = None) -> int:
        """Write all measurements to a file, one row each, and return how many there are.

        The rows are streamed, not held in memory. The columns are the entries of the contexts, then
        `COLUMNS`. The format is "csv" or "parquet", by default the ending of the file's name. The
        file appears when it is complete.
        """
        path = Path(path)
        name = format or path.suffix.lstrip(".").lower()
        if name not in _WRITERS:
            raise HeadcountError(
                f'Cannot export as "{name}": choose the format csv or parquet, or a file name '
                f"with one of these endings.{did_you_mean(name, _WRITERS)}"
            )

        damaged: list[tuple[int, int, int]] = []

        def run(connection: sqlite3.Connection) -> int:
            contexts = _contexts(connection, "id IN (SELECT context FROM measurements)")
            entries = {name for context in contexts.values() for name in context}
            names = [*NAMED, *sorted(entries - {*NAMED})]
            cells = {
                number: [_cell(context.get(name)) for name in names]
                for number, context in contexts.items()
            }
            rows = connection.execute(
                """
                SELECT context, head_set, e.id, ifnull(sum, ?), c.key,
                    description, h.key, name, e.key, value,
                    strftime('%Y-%m-%dT%H:%M:%SZ', created, 'unixepoch')
                FROM measurements JOIN contexts AS c ON c.id = context
                JOIN head_sets AS h ON h.id = head_set JOIN examples AS e ON e.id = example
                ORDER BY context, head_set, example
                """,
                (NO_SUM,),
            )
            lines = ([*cells[row[0]], *row[5:]] for row in _undamaged(rows, damaged))
            with replacing(path) as temporary:
                return _WRITERS[name](temporary, [*names, *COLUMNS], lines)

        try:
            count = self.database.run(run)
            self.database.drop("measurements", damaged)
            return count
        except OSError as error:
            raise HeadcountError(
                f"Cannot write {path} ({error.strerror}): choose another path, or free some space."
            ) from error

    def clean(
        self, *, model: str | None = None, task: str | None = None, everything: bool = False
    ) -> int:
        """Delete measurements and documents of a model or a task, or all; return how many values.

        If both a model and a task are given, only contexts with both are deleted.
        """
        if everything == (model is not None or task is not None):
            raise ValueError("give a model, a task or both, or everything")
        given = {"model": model, "task": task}
        wanted = {name: value for name, value in given.items() if value is not None}

        def run(connection: sqlite3.Connection) -> int:
            contexts = _contexts(connection)
            for name, value in wanted.items():
                known = sorted({_cell(context.get(name)) or "" for context in contexts.values()})
                if value not in known:
                    raise HeadcountError(
                        f'The store holds nothing of the {name} "{value}" (it has: '
                        f"{', '.join(known) or 'none'}).{did_you_mean(value, known)}"
                    )
            chosen = [
                (number,)
                for number, context in contexts.items()
                if all(_cell(context.get(name)) == value for name, value in wanted.items())
            ]
            return delete_contexts(connection, chosen)

        count = self.database.run(run, write=True)
        self.database.shrink()
        return count


def _undamaged(
    rows: Iterable[tuple[Any, ...]], damaged: list[tuple[int, int, int]]
) -> Iterator[tuple[Any, ...]]:
    """The rows of an export; the ids of those that were changed on disk go to `damaged`."""
    code = cache(lambda key: key_codes([key])[0])
    iterator = iter(rows)
    while batch := list(islice(iterator, BATCH)):
        right = [row for row in batch if _has_right_types(row)]
        damaged += [row[:3] for row in batch if not _has_right_types(row)]
        contexts, sets, examples = (
            np.array([code(row[n]) for row in right], np.uint64) for n in (4, 6, 8)
        )
        values = np.array([row[9] for row in right], np.float64)
        for row, known in zip(
            right, checksums(contexts, sets, examples, values).tolist(), strict=True
        ):
            if row[3] in (known, NO_SUM):
                yield row
            else:
                damaged.append(row[:3])


def _has_right_types(row: tuple[Any, ...]) -> bool:
    keys = all(type(row[n]) is str for n in (4, 6, 8))
    return keys and type(row[9]) is float and type(row[3]) is int


def _contexts(connection: sqlite3.Connection, where: str = "true") -> dict[int, dict[str, Any]]:
    rows = connection.execute(f"SELECT id, json FROM contexts WHERE {where}")
    return {number: _context(text) for number, text in rows}


def _context(text: Any) -> dict[str, Any]:
    """A context; empty if its text was damaged after the store was opened, which checks it."""
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError):
        return {}


def _time(seconds: Any) -> datetime:
    """A time of the store; 1970 if it was damaged."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _cell(value: Any) -> str | None:
    """An entry of a context as text: strings as they are, anything else as JSON."""
    return value if isinstance(value, str) or value is None else json.dumps(value)


def _write_csv(path: Path, columns: list[str], rows: Rows) -> int:
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for count, row in enumerate(rows, 1):  # noqa: B007
            writer.writerow(row)
    return count


def _write_parquet(path: Path, columns: list[str], rows: Rows) -> int:
    # pyarrow is an optional dependency, and slow to import.
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise HeadcountError(
            "Parquet files need pyarrow: run pip install 'headcount[parquet]', or export as csv."
        ) from error
    types = [pyarrow.float64() if name == "value" else pyarrow.string() for name in columns]
    schema = pyarrow.schema(list(zip(columns, types, strict=True)))
    iterator, count = iter(rows), 0
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while batch := list(islice(iterator, BATCH)):
            arrays = [
                pyarrow.array(column, type_)
                for column, type_ in zip(zip(*batch, strict=True), types, strict=True)
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            count += len(batch)
    return count


_WRITERS = {"csv": _write_csv, "parquet": _write_parquet}
