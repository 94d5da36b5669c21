"""The store's SQLite file, which survives crashes, concurrent processes and damage.

Crashes: each `Database.run` is one transaction, which a killed process leaves either complete or
undone. Concurrency: any number of processes on one machine may use the file; they wait for each
other. Damage: a file that SQLite cannot read is renamed to NAME.damaged-TIME, reported on standard
error, and replaced by an empty file. An intact file of another program is refused, not renamed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TypeVar

from filelock import FileLock, Timeout

from headcount.errors import HeadcountError

T = TypeVar("T")

APPLICATION = int.from_bytes(b"HEAD", "big")
VERSION = 2
"""Both stand in SQLite's header: the program that owns the file, and the version of its tables."""

# Keys are sha256 in hex. Measurements are many and small, so they have integer ids and no row ids,
# and the examples of one head set are neighbours, as they are written and read. Documents are few
# and large. Times are whole seconds since 1970.
_CELLS = """
    CREATE TABLE {} (
        context INTEGER NOT NULL, head_set INTEGER NOT NULL, example INTEGER NOT NULL,
        value {} NOT NULL, created INTEGER NOT NULL,
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
        created INTEGER NOT NULL, UNIQUE (context, kind)
    );
    {_CELLS.format("measurements", "REAL")}
    {_CELLS.format("texts", "TEXT")}
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


class _Damaged(sqlite3.DatabaseError):
    """The integrity check found damage."""


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code: the low byte of the extended code."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_damage(error: sqlite3.Error) -> bool:
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, _Damaged) or _code(error) in damage


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

    def _open(self) -> sqlite3.Connection:
        if self.path.is_dir():
            raise HeadcountError(
                f"{self.path} is a folder, and a store is a file: give a file in it, such as "
                f"{self.path / 'store.sqlite'}."
            )
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
                    self._rename_damaged(error)
                    return self._connect()
        except (OSError, sqlite3.DatabaseError) as error:
            self._fail(error)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
        try:
            self._check(connection)
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
        except BaseException:
            connection.close()
            raise
        self._opened = self._identity()
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file of another program or version, and raise `_Damaged` for a damaged file.

        The header is read through SQLite, because opening and closing the file ourselves would drop
        the locks that other connections of this process hold on it (POSIX).
        """

        def pragma(name: str) -> int | str:
            value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
            return value

        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application, version = pragma("application_id"), pragma("user_version")
        if application == 0 and not tables:
            return  # a new file
        if application != APPLICATION:
            raise HeadcountError(
                f"{self.path} is a database of another program, not a store: {_ELSEWHERE}."
            )
        if version != VERSION:
            raise HeadcountError(
                f"The store at {self.path} was written by another version of headcount (format "
                f"{version}, this one knows {VERSION}): use that version, or {_ELSEWHERE}."
            )
        if int(pragma("page_count")) * int(pragma("page_size")) <= CHECKED_BYTES:
            state = str(pragma("quick_check(1)"))
            if state != "ok":
                raise _Damaged(" ".join(state.split()))

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
