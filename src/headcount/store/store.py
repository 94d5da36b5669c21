"""The measurement store, which keeps every finished measurement once.

A measurement is one number, or one text that the model wrote, for one context, head set and
example. The *context* is a dict of JSON values with everything else that determines the
measurement: model fingerprint, tokenizer, dtype, kernel, task and its version, ablation, metric,
measurement version. A *head set* is one gate per head. An *example* is identified by a key that the
caller derives from its token ids.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> store = Store(Path(folder.name, "store.sqlite"))
>>> here = store.context({"model": "tiny", "task": "ioi", "metric": "accuracy", "ablation": "zero"})
>>> gates = np.array([[1, 1, 1], [1, 0, 1]], dtype=np.float32)  # (sets, heads)
>>> here.write(gates[:1], ["key a", "key b"], ["a", "b"], np.array([[0.5, 1.0]]))
2
>>> here.read(gates, ["key b", "key c"])  # (sets, examples), NaN where nothing is known
array([[ 1., nan],
       [nan, nan]])
>>> store.close(); folder.cleanup()
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from headcount.errors import HeadcountError
from headcount.heads import HeadLayout
from headcount.store.checks import NO_SUM, by_type, checksums, document_sum, key_codes
from headcount.store.database import Damaged, Database
from headcount.store.inventory import COLUMNS, Inventory
from headcount.system.files import canonical, digest
from headcount.system.paths import cache_dir

Gates = Float[np.ndarray, "sets heads"]


def describe(gates: Float[np.ndarray, " heads"], layout: HeadLayout | None = None) -> str:
    """A head set in a few words; without a layout, heads are numbered.

    >>> describe(np.array([1.0, 0, 1, 1, 0]), HeadLayout((2, 3)))
    'off: 0.1 1.2 (2)'
    >>> describe(np.array([0.0, 0, 0, 1, 0]), HeadLayout((2, 3)))
    'keep: 1.1 (1)'
    >>> describe(np.ones(5)), describe(np.zeros(5)), describe(np.full(5, 0.5))
    ('all on', 'all off', 'soft (mean 0.5)')
    """
    on, off = np.flatnonzero(gates == 1), np.flatnonzero(gates == 0)
    if len(on) + len(off) < len(gates):
        return f"soft (mean {gates.mean():.3g})"
    if not len(off) or not len(on):
        return "all on" if len(on) else "all off"
    word, numbers = ("off", off) if len(off) <= len(on) else ("keep", on)
    names = [str(layout.head(int(n)) if layout else f"#{n}") for n in numbers[:8]]
    return f"{word}: {' '.join(names)}{' …' if len(numbers) > 8 else ''} ({len(numbers)})"


@dataclass(frozen=True)
class StoreContext:
    """The measurements of one context; see `Store.context`."""

    database: Database
    text: str
    layout: HeadLayout | None = None

    def read(self, gates: Gates, example_keys: Sequence[str], *, texts: bool = False) -> np.ndarray:
        """All known values or texts, (sets, examples); NaN or None where unknown."""
        table, kind = ("texts", np.object_) if texts else ("measurements", np.float64)
        keys = [digest(row.tobytes()) for row in _plain(gates)]

        def read(connection: sqlite3.Connection) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
            (context,) = _ids(connection, "contexts", [digest(self.text)])
            # Unknown keys have id -1, which no row has. Repeated keys have the same id.
            ids = _ids(connection, "head_sets", keys), _ids(connection, "examples", example_keys)
            sets, first_set, set_of = np.unique(ids[0], return_index=True, return_inverse=True)
            examples, first, example_of = np.unique(ids[1], return_index=True, return_inverse=True)
            unknown = None if texts else np.nan
            known = np.full((len(sets), len(examples)), unknown, dtype=kind)
            present = examples[examples >= 0]
            damaged: list[tuple[int, int]] = []
            if len(present):
                # A task's examples were written together and have neighbouring ids, so one range
                # query per head set reads few other rows, and is faster than one query per example.
                rows = connection.execute(
                    f"SELECT head_set, example, {table}.value, ifnull(sum, ?) "
                    f"FROM json_each(?) AS wanted "
                    f"CROSS JOIN {table} ON context = ? AND head_set = wanted.value "
                    "AND example BETWEEN ? AND ?",
                    (
                        *(NO_SUM, json.dumps(sets.tolist()), int(context)),
                        *(int(present[0]), int(present[-1])),
                    ),
                ).fetchall()
                cells, damaged = by_type(rows, texts=texts)
                cells = cells[np.isin(cells["example"], present)]
                row = np.searchsorted(sets, cells["head_set"])
                column = np.searchsorted(examples, cells["example"])
                sums = checksums(
                    key_codes([digest(self.text)]),
                    key_codes([keys[n] for n in first_set])[row],
                    key_codes([example_keys[n] for n in first])[column],
                    cells["value"],
                )
                sound = (cells["sum"] == sums) | (cells["sum"] == NO_SUM)
                known[row[sound], column[sound]] = cells["value"][sound]
                damaged += cells[["head_set", "example"]][~sound].tolist()
            return known[np.ix_(set_of, example_of)], [(int(context), *ids) for ids in damaged]

        known, damaged = self.database.run(read)
        self.database.drop(table, damaged)
        return known

    def write(
        self,
        gates: Gates,
        example_keys: Sequence[str],
        example_names: Sequence[str],
        values: Shaped[np.ndarray, "sets examples"],
    ) -> int:
        """Store one value per head set and example, all or none; return how many are new.

        Values are numbers, or texts as an array of objects. Measurements that the store already
        holds are not changed.
        """
        table = "texts" if values.dtype == object else "measurements"
        if table == "measurements" and np.isnan(values).any():
            raise HeadcountError(
                "A measurement is not a number (NaN) and was not stored: check the model's dtype "
                "and the task."
            )
        wanted = (len(gates), len(example_names))
        if values.shape != wanted or len(example_keys) != len(example_names):
            raise ValueError(
                f"values of shape {values.shape} for {len(gates)} head sets, {len(example_keys)} "
                f"example keys and {len(example_names)} example names"
            )
        rows = _plain(gates)
        keys = [digest(row.tobytes()) for row in rows]
        sums = checksums(
            key_codes([digest(self.text)]),
            np.repeat(key_codes(keys), len(example_keys)),
            np.tile(key_codes(example_keys), len(keys)),
            values.ravel(),
        )

        def write(connection: sqlite3.Connection) -> int:
            now = int(time.time())
            context = _add_context(connection, self.text)
            new = {
                keys[i]: rows[i] for i in np.flatnonzero(_ids(connection, "head_sets", keys) < 0)
            }
            connection.executemany(
                "INSERT INTO head_sets (key, description, gates) VALUES (?, ?, ?)",
                (
                    (key, describe(row, self.layout), zlib.compress(row.tobytes()))
                    for key, row in new.items()
                ),
            )
            connection.executemany(
                "INSERT OR IGNORE INTO examples (key, name) VALUES (?, ?)",
                zip(example_keys, example_names, strict=True),
            )
            sets = np.repeat(_ids(connection, "head_sets", keys), len(example_keys))
            examples = np.tile(_ids(connection, "examples", example_keys), len(keys))
            cells = (sets.tolist(), examples.tolist(), values.ravel().tolist())
            return connection.executemany(
                f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?, ?, ?, ?)",
                zip(repeat(context), *cells, repeat(now), sums.tolist(), strict=False),
            ).rowcount

        return self.database.run(write, write=True)


OFF = "off"


def _is_off() -> bool:
    return os.environ.get("HEADCOUNT_STORE", "").lower() == OFF


_OPENED: dict[tuple[int, int, Path], Store] = {}  # by process, thread and path


def _default_path() -> Path:
    if _is_off():
        raise HeadcountError("HEADCOUNT_STORE is off, so there is no store: let it name a file.")
    return Path(os.environ.get("HEADCOUNT_STORE") or cache_dir() / "store.sqlite").expanduser()


class Store(Inventory):
    """The measurements of all models and tasks, in one SQLite file on a local disk.

    Use it as a context manager, or close it. Each process and each thread opens its own `Store`.

    >>> with Store(getfixture("tmp_path") / "store.sqlite") as store:
    ...     store.summary()
    []
    """

    def __init__(self, path: str | Path) -> None:
        self.database = Database(Path(path).expanduser())

    def __repr__(self) -> str:
        return f"<Store {self.path}>"

    @classmethod
    def open(cls, path: str | Path | None = None) -> Store:
        """Open the store at `path`, else at HEADCOUNT_STORE, else in the cache folder."""
        return cls(path or _default_path())

    @classmethod
    def default(cls) -> Store | None:
        """The user's store, opened once per process and thread; None if HEADCOUNT_STORE is off."""
        if _is_off():
            return None
        path = _default_path()
        key = os.getpid(), threading.get_ident(), path
        if key not in _OPENED:
            _OPENED[key] = cls(path)
        return _OPENED[key]

    @property
    def path(self) -> Path:
        """The store's file."""
        return self.database.path

    def close(self) -> None:
        """Close the file."""
        self.database.close()
        for key in [key for key, store in _OPENED.items() if store is self]:
            del _OPENED[key]  # so that `default` opens it again

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def context(
        self, context: Mapping[str, Any], *, layout: HeadLayout | None = None
    ) -> StoreContext:
        """The measurements in this context, to read and write.

        With `layout`, listings name the heads that are off. `summary` and `clean` use the entries
        "model", "task", "metric" and "ablation".
        """
        if taken := set(COLUMNS) & set(context):
            raise ValueError(f"the names {taken} are columns of an export: rename these entries")
        return StoreContext(self.database, canonical(context), layout)

    def get_document(self, kind: str, context: Mapping[str, Any]) -> Any:
        """The stored document of this kind and context, such as head scores, or None."""

        key = digest(canonical(context))

        def get(connection: sqlite3.Connection) -> Any:
            return connection.execute(
                "SELECT documents.json, sum, context FROM documents "
                "JOIN contexts ON contexts.id = context WHERE kind = ? AND key = ?",
                (kind, key),
            ).fetchone()

        row = self.database.run(get)
        if row is None:
            return None
        text, known, number = row
        try:
            if known in (None, document_sum(key, kind, str(text))):
                return json.loads(text)
        except (TypeError, ValueError):
            pass  # a damaged document that was stored before documents had check sums
        self.database.run(
            lambda connection: connection.execute(
                "DELETE FROM documents WHERE kind = ? AND context = ?", (kind, number)
            ),
            write=True,
        )
        self.database.report_dropped(1, "document")
        return None

    def put_document(self, kind: str, context: Mapping[str, Any], value: Any) -> None:
        """Store a JSON value that is not one number per example: head scores, fitted gates.

        As for measurements, the context determines the value, so two writers write the same value.
        A new document replaces the old one, so that an outdated format can be overwritten.
        """
        text, named = json.dumps(value), canonical(context)
        checksum = document_sum(digest(named), kind, text)

        def put(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)",
                (_add_context(connection, named), kind, text, int(time.time()), checksum),
            )

        self.database.run(put, write=True)


def _plain(gates: Gates) -> Gates:
    """Gates as bytes that are equal on every machine; adding zero turns -0 into 0."""
    return (np.ascontiguousarray(gates, dtype=np.float32) + 0).astype("<f4")


def _ids(
    connection: sqlite3.Connection, table: str, keys: Sequence[str]
) -> Int[np.ndarray, " keys"]:
    """The row id of each key; -1 for a key that the table does not have."""
    rows = connection.execute(
        f"SELECT wanted.key, {table}.id FROM json_each(?) AS wanted "
        f"CROSS JOIN {table} ON {table}.key = wanted.value",
        (json.dumps(list(keys)),),
    )
    ids = np.full(len(keys), -1, dtype=np.int64)
    owners: dict[Any, str] = {}
    for index, number in rows:
        # A damaged index gives an id twice, or none: values would be taken for those of other keys.
        if not isinstance(number, int) or owners.setdefault(number, keys[index]) != keys[index]:
            raise Damaged(f"the index of its table {table} is wrong")
        ids[index] = number
    return ids


def _add_context(connection: sqlite3.Connection, text: str) -> int:
    connection.execute(
        "INSERT OR IGNORE INTO contexts (key, json) VALUES (?, ?)", (digest(text), text)
    )
    (number,) = _ids(connection, "contexts", [digest(text)])
    return int(number)
