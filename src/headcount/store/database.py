"""The store's SQLite file, which survives crashes, concurrent processes and damage.

Crashes: each `Database.run` is one transaction, which a killed process leaves either complete or
undone. Concurrency: any number of processes on one machine may use the file; they wait for each
other. Damage: a store that cannot be read is renamed to NAME.damaged-TIME, reported on standard
error, and replaced by an empty one; single rows that were changed on disk are deleted, and reported
too. A file that never was a store is refused, and left as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from filelock import FileLock, Timeout

from headcount.errors import HeadcountError, counted
from headcount.system.files import checked_path, digest

T = TypeVar("T")

APPLICATION = int.from_bytes(b"HEAD", "big")
VERSION = 3
"""Both stand in SQLite's header: the program that owns the file, and the version of its tables."""
UNCHECKED = 2  # the version before rows had check sums; it is brought up to date when opened
# What every store holds in its first page: the entry of a table in SQLite's list of tables.
SIGN = b"table" + 2 * b"head_sets"

# Keys are sha256 in hex. Measurements are many and small, so they have integer ids and no row ids,
# and the examples of one head set are neighbours, as they are written and read. Documents are few
# and large. Times are whole seconds since 1970. A sum is a check sum (checks.py); rows of version 2
# have none.
_CELLS = """
    CREATE TABLE {} (
        context INTEGER NOT NULL, head_set INTEGER NOT NULL, example INTEGER NOT NULL,
        value {} NOT NULL, created INTEGER NOT NULL, sum INTEGER,
        PRIMARY KEY (context, head_set, example)
    ) WITHOUT ROWID;
"""
SCHEMA = f"""
    CREATE TABLE contexts (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, json TEXT NOT NULL
    );
    CREATE TABLE head_sets (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE,
        description TEXT NOT NULL, gates BLOB NOT NULL -- float32, little-endian, zlib
    );
    CREATE TABLE examples (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL
    );
    CREATE TABLE documents (
        context INTEGER NOT NULL, kind TEXT NOT NULL, json TEXT NOT NULL,
        created INTEGER NOT NULL, sum TEXT, UNIQUE (context, kind)
    );
    {_CELLS.format("measurements", "REAL")}
    {_CELLS.format("texts", "TEXT")}
"""

UPDATE = f"""
    BEGIN IMMEDIATE;
    ALTER TABLE measurements ADD COLUMN sum INTEGER;
    ALTER TABLE texts ADD COLUMN sum INTEGER;
    ALTER TABLE documents ADD COLUMN sum TEXT;
    PRAGMA user_version = {VERSION};
    COMMIT;
"""

WAIT = 60.0
"""Seconds to wait for other processes before giving up."""

CHECKED_BYTES = 256 * 2**20
"""Files up to this size are checked completely when they are opened (some 4 ms per MiB); damage in
a larger file is noticed when SQLite reads the damaged page."""

_ELSEWHERE = "set HEADCOUNT_STORE to another path"
_FULL = "the disk is full: free some space"
_READ_ONLY = "it cannot be written: make the file and its folder writable"
_BUSY = f"another process has kept it locked for {WAIT:.0f} seconds: wait until it has finished"
_ADVICE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_PROTOCOL: _BUSY,
    sqlite3.SQLITE_IOERR: "its disk cannot be read or written: check the disk's health and quota",
}


class Damaged(sqlite3.DatabaseError):
    """A check found damage that SQLite itself has not noticed."""


def _code(error: Exception) -> int:
    """SQLite's primary result code: the low byte of the extended code."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_damage(error: sqlite3.Error) -> bool:
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, Damaged) or _code(error) in damage


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """The columns of each table."""
    tables: dict[str, set[str]] = {}
    for table, column in connection.execute(
        "SELECT m.name, p.name FROM sqlite_master AS m, pragma_table_info(m.name) AS p "
        "WHERE m.type = 'table'"
    ):
        tables.setdefault(table, set()).add(column)
    return tables


@cache
def _own_columns() -> dict[str, set[str]]:
    """The columns that a store has."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return _columns(connection)


def delete_contexts(connection: sqlite3.Connection, chosen: Sequence[tuple[int]]) -> int:
    """Delete the rows of these contexts, and what belongs to no row any more; returns how many."""
    before = connection.total_changes
    for table in ("measurements", "texts"):
        connection.executemany(f"DELETE FROM {table} WHERE context = ?", chosen)
    count = connection.total_changes - before
    connection.executemany("DELETE FROM documents WHERE context = ?", chosen)
    connection.executemany("DELETE FROM contexts WHERE id = ?", chosen)
    for table, column in (("head_sets", "head_set"), ("examples", "example")):
        connection.execute(
            f"DELETE FROM {table} WHERE id NOT IN (SELECT {column} FROM measurements "
            f"UNION SELECT {column} FROM texts)"
        )
    return count


class Database:
    """One open file. Each process, and each thread, opens its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = self._open()
        self._thread = threading.get_ident()  # SQLite serves one thread per connection

    def close(self) -> None:
        """Close the file; SQLite then merges its log, if no other process has the file open."""
        self._connection.close()

    def run(self, operation: Callable[[sqlite3.Connection], T], *, write: bool = False) -> T:
        """Run `operation` as one transaction.

        If the file turns out to be damaged, it is renamed, and the operation runs once more, on the
        empty file that replaces it.
        """
        if threading.get_ident() != self._thread:
            raise HeadcountError(
                f"The store {self.path} was opened in another thread: make a Lab in this one."
            )
        try:
            if self._identity() != self._opened:
                # Another process renamed the file, or somebody deleted it: writing to the open file
                # would lose the data, so open the new one.
                self._connection.close()
                self._connection = self._open()
            return self._transaction(operation, write)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                self._fail(error)
            self._replace(error)
        try:
            return self._transaction(operation, write)
        except sqlite3.DatabaseError as error:
            self._fail(error)

    def shrink(self) -> None:
        """Return the space of deleted rows to the disk, if possible."""
        # VACUUM needs space for a copy of the file. If it fails, the rows are deleted all the same,
        # and later rows reuse their space.
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _transaction(self, operation: Callable[[sqlite3.Connection], T], write: bool) -> T:
        with self._connection as connection:  # commits at the end, rolls back after an exception
            # A transaction that reads first and writes later fails if another process wrote in
            # between; a transaction that takes the write lock first only has to wait.
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            return operation(connection)

    def drop(self, table: str, rows: Sequence[tuple[int, int, int]]) -> None:
        """Delete rows that were changed on disk (context, head set, example), and say so."""
        where = "context = ? AND head_set = ? AND example = ?"

        def delete(connection: sqlite3.Connection) -> None:
            connection.executemany(f"DELETE FROM {table} WHERE {where}", rows)

        if rows:
            self.run(delete, write=True)
            self.report_dropped(len(rows), "text" if table == "texts" else "value")

    def report_dropped(self, count: int, what: str) -> None:
        """Say that rows which were changed on disk have been deleted."""
        print(
            f"The store at {self.path} held {counted(count, f'damaged {what}')}: what was damaged "
            "is removed, and measured again when it is needed.",
            file=sys.stderr,
        )

    def _open(self) -> sqlite3.Connection:
        checked_path(self.path)
        if self.path.is_dir():
            raise HeadcountError(
                f"{self.path} is a folder, and a store is a file: give a file in it, such as "
                f"{self.path / 'store.sqlite'}."
            )
        if self.path.exists() and not self.path.is_file():
            raise self._no_store()  # a device or a pipe, which SQLite would wait for
        self._refuse_foreign()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Only one process at a time may check the file and replace it. If two processes meet a
            # damaged file, the second one then finds the new file and does not rename that.
            with self._lock():
                try:
                    return self._connect()
                except sqlite3.DatabaseError as error:
                    if not _is_damage(error):
                        raise
                    if not self._was_store():
                        raise self._no_store() from error
                    self._rename_damaged(error)
                    return self._connect()
        except (OSError, sqlite3.DatabaseError) as error:
            self._fail(error)

    def _refuse_foreign(self) -> None:
        """Refuse a file of another program before a lock file or SQLite's log is put beside it.

        SQLite reads an immutable file without locks and without its log, so an error in a store may
        come from its being in use: it counts when the store is opened.
        """
        if not self.path.exists():
            return
        address = f"{self.path.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
                self._check_owner(connection)
        except (UnicodeDecodeError, sqlite3.DatabaseError) as error:
            if _code(error) not in _ADVICE and not self._was_store():
                raise self._no_store() from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
        # Damaged text must not end in an error of Python: its check sum shows the damage.
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            try:
                version = self._check(connection)
            except (UnicodeDecodeError, sqlite3.OperationalError) as error:
                # What SQLite cannot parse: its list of tables, or the version of its own format.
                if _code(error) in _ADVICE:
                    raise
                raise Damaged(str(error)) from error
            # The write-ahead log makes commits atomic and lets other processes read meanwhile.
            # NORMAL syncs it at checkpoints only. After kill -9 no commit is lost; after a power
            # failure the last commits may be lost and are measured again, but the file is intact.
            # FULL would wait for the disk at every batch.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if not connection.execute("PRAGMA application_id").fetchone()[0]:
                connection.executescript(
                    f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION};"
                    f"PRAGMA user_version = {VERSION}; {SCHEMA} COMMIT;"
                )
            elif version == UNCHECKED:
                connection.executescript(UPDATE)
            self._drop_contexts(connection)
        except BaseException:
            connection.close()
            raise
        self._opened = self._identity()
        return connection

    def _check(self, connection: sqlite3.Connection) -> int:
        """The format of the file; refuses other files, and raises `Damaged` for a damaged one."""
        columns, version = self._check_owner(connection)
        if not columns and not _pragma(connection, "application_id"):
            return VERSION  # a new file
        if version < UNCHECKED:
            raise Damaged(f"its format is {version}, and this version reads {VERSION}")
        later = {"sum"} if version == UNCHECKED else set()
        for table, needed in _own_columns().items():
            if needed - later != columns.get(table):
                raise Damaged(f"its table {table} is missing or has other columns")
        size = int(_pragma(connection, "page_count")) * int(_pragma(connection, "page_size"))
        if size <= CHECKED_BYTES:
            state = str(_pragma(connection, "integrity_check(1)"))
            if state != "ok":
                # An index that differs from its table can be made again.
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("REINDEX")
                    state = str(_pragma(connection, "integrity_check(1)"))
            if state != "ok":
                raise Damaged(" ".join(state.split()))
        return version

    def _check_owner(self, connection: sqlite3.Connection) -> tuple[dict[str, set[str]], int]:
        """The tables of the file and its format; refuses other programs and newer versions.

        The header is read through SQLite, because opening and closing the file ourselves would drop
        the locks that other connections of this process hold on it (POSIX).
        """
        columns = _columns(connection)
        application = _pragma(connection, "application_id")
        version = int(_pragma(connection, "user_version"))
        if application != APPLICATION and (application or columns):
            raise HeadcountError(
                f"{self.path} is a database of another program, not a store: {_ELSEWHERE}."
            )
        if version > VERSION and application:
            raise HeadcountError(
                f"The store at {self.path} was written by a newer version of headcount (format "
                f"{version}, this one knows {VERSION}): use that version, or {_ELSEWHERE}."
            )
        return columns, version

    def _drop_contexts(self, connection: sqlite3.Connection) -> None:
        """Delete the contexts whose text does not fit their key, and all that belongs to them."""
        rows = connection.execute("SELECT id, key, json FROM contexts")
        wrong = [
            (number,)
            for number, key, text in rows
            if not isinstance(text, str) or digest(text) != key
        ]
        if wrong:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                delete_contexts(connection, wrong)
            self.report_dropped(len(wrong), "context")

    def _was_store(self) -> bool:
        """Whether the file, which SQLite cannot read, was once a store: its first page says so."""
        with self.path.open("rb") as file:
            start = file.read(1 << 16)
        header = start.startswith(b"SQLite format 3\0") and start[68:72] == b"HEAD"
        return header or SIGN in start

    def _no_store(self) -> HeadcountError:
        return HeadcountError(
            f"{self.path} is not a store, and it was left as it is: give the file of a store, or a "
            "new name."
        )

    def _replace(self, error: sqlite3.Error) -> None:
        """Rename the damaged open file, unless another process has done so, and open a new one."""
        self._connection.close()
        try:
            with self._lock():
                if self._identity() == self._opened:
                    self._rename_damaged(error)
        except OSError as os_error:
            self._fail(os_error)
        self._connection = self._open()

    def _rename_damaged(self, error: sqlite3.Error) -> None:
        new_name = f"{self.path}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z"
        for ending in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self.path}{ending}", f"{new_name}{ending}")
        print(
            f"The store at {self.path} is damaged ({error}): it was renamed to {new_name}, "
            "and an empty store takes its place.",
            file=sys.stderr,
        )

    def _lock(self) -> FileLock:
        return FileLock(f"{self.path}.lock", timeout=WAIT)

    def _identity(self) -> tuple[int, int] | None:
        """The device and inode of the file that has our path now."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _fail(self, error: OSError | sqlite3.Error) -> NoReturn:
        """Raise one sentence if the user can fix the error, or else the error itself: a bug."""
        if isinstance(error, sqlite3.Error):
            advice = _ADVICE.get(_code(error))
        elif isinstance(error, Timeout):
            advice = _BUSY
        elif error.errno == errno.ENOSPC:
            advice = _FULL
        else:
            advice = f"its folder cannot be written ({error.strerror}): make it writable"
        if advice is None:
            raise error
        raise HeadcountError(
            f"Cannot use the store at {self.path}, because {advice}, or "
            f"{_ELSEWHERE}; the stored measurements are kept."
        ) from error
