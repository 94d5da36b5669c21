"""Damage, foreign files, full disks: each is brought about for real, by way of the store."""

from __future__ import annotations

import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headcount.errors import HeadcountError
from headcount.store import Store, database
from headcount.store.database import Database

CONTEXT = {"model": "tiny"}
GATES = np.random.default_rng(0).random((30, 20)).astype(np.float32)
KEYS = [f"key {i}" for i in range(40)]
VALUES = np.random.default_rng(1).normal(size=(30, 40))


def fill(store: Store) -> None:
    store.context(CONTEXT).write(GATES, KEYS, KEYS, VALUES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sound store with some pages of measurements."""
    with Store(tmp_path / "store.sqlite") as store:
        fill(store)
    return tmp_path / "store.sqlite"


def measurement_page(path: Path) -> int:
    """Where in the file the measurements' root page begins."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'measurements'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    return (page - 1) * size


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def damage_header(path: Path) -> None:
    overwrite(path, 0, b"\xff" * 100)


def damage_all(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(50_000))


def damage_page(path: Path) -> None:
    overwrite(path, measurement_page(path), np.random.default_rng(0).bytes(4096))


def damage_by_cutting(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def damage_by_cutting_to_nearly_nothing(path: Path) -> None:
    os.truncate(path, 60)


@pytest.mark.parametrize(
    "damage",
    [
        damage_header,
        damage_all,
        damage_page,
        damage_by_cutting,
        damage_by_cutting_to_nearly_nothing,
    ],
)
def test_a_damaged_file_is_set_aside_when_opened(
    path: Path, damage: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(damage)
    damage(path)
    broken = path.read_bytes()
    with Store(path) as store:
        message = capsys.readouterr().err
        (aside,) = path.parent.glob("store.sqlite.damaged-*Z")
        assert aside.read_bytes() == broken
        assert message.count("\n") == 1
        assert f"The store at {path} is damaged" in message
        assert str(aside) in message
        assert store.summary() == []
        fill(store)
    with Store(path) as store:
        np.testing.assert_array_equal(store.context(CONTEXT).read(GATES, KEYS), VALUES)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("first", ["read", "write"])
def test_damage_that_shows_only_in_use(
    path: Path, first: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(database, "CHECKED_BYTES", 0)  # as for a file too large to check whole
    damage_page(path)
    with Store(path) as store:
        here = store.context(CONTEXT)
        assert capsys.readouterr().err == ""
        if first == "read":
            assert np.isnan(here.read(GATES, KEYS)).all()
        else:
            fill(store)
        assert "is damaged" in capsys.readouterr().err
        fill(store)
        np.testing.assert_array_equal(here.read(GATES, KEYS), VALUES)
    assert len(list(path.parent.glob("*.damaged-*Z"))) == 1


def test_two_users_of_a_damaged_file_share_the_fresh_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CHECKED_BYTES", 0)
    damage_page(path)
    with Store(path) as one, Store(path) as two:
        fill(one)
        # `two` still has the damaged file open; it must neither use it nor set the fresh one aside.
        np.testing.assert_array_equal(two.context(CONTEXT).read(GATES, KEYS), VALUES)
        two.put_document("scores", CONTEXT, 1)
        assert one.get_document("scores", CONTEXT) == 1
        assert len(list(path.parent.glob("*.damaged-*Z-wal"))) == 1
    assert len(list(path.parent.glob("*.damaged-*Z"))) == 1
    with Store(path) as store:  # closing `two` did not take the fresh file's log away
        assert store.get_document("scores", CONTEXT) == 1


def test_damage_that_another_process_has_already_dealt_with(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CHECKED_BYTES", 0)
    damage_page(path)
    with Store(path) as one, Store(path) as two:
        transaction = two.database._transaction

        def late(operation: Any, write: bool) -> Any:
            fill(one)  # sets the file aside after `two` has last looked, and before it meets damage
            return transaction(operation, write)

        monkeypatch.setattr(two.database, "_transaction", late)
        np.testing.assert_array_equal(two.context(CONTEXT).read(GATES, KEYS), VALUES)
    assert len(list(path.parent.glob("*.damaged-*Z"))) == 1


def test_of_two_that_find_damage_together_one_sets_it_aside(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage_header(path)
    set_aside = Database._rename_damaged

    def slowly(self: Database, error: sqlite3.Error) -> None:
        time.sleep(0.2)  # time enough for the other to find the damage too, were it not locked out
        set_aside(self, error)

    monkeypatch.setattr(Database, "_rename_damaged", slowly)

    def use(name: str) -> None:
        with Store(path) as store:
            store.put_document(name, CONTEXT, 1)

    with ThreadPoolExecutor() as pool:
        list(pool.map(use, "ab"))
    assert len(list(path.parent.glob("*.damaged-*Z"))) == 1
    with Store(path) as store:
        assert store.summary()[0].documents == 2


def test_a_store_deleted_in_use_is_made_anew(path: Path) -> None:
    with Store(path) as store:
        for ending in ("", "-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
        fill(store)
    with Store(path) as store:
        assert store.summary()[0].values == VALUES.size


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "s.sqlite").touch()
    with Store(tmp_path / "s.sqlite") as store:
        fill(store)
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_sound_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(HeadcountError, match=r"another program.*set HEADCOUNT_STORE"):
        Store(path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.damaged-*"))


@pytest.mark.parametrize("version", [-5, 0, 1, database.VERSION + 1])
def test_a_store_of_another_version_is_refused_and_left_alone(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(HeadcountError, match=r"another version of headcount .*HEADCOUNT_STORE"):
        Store(path)
    assert path.read_bytes() == before


def test_the_file_says_what_it_is(path: Path) -> None:
    assert path.read_bytes()[68:72] == b"HEAD"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_full_disk_loses_nothing_that_was_stored(path: Path) -> None:
    with Store(path) as store:
        connection = store.database._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        more = store.context({"model": "other"})
        with pytest.raises(HeadcountError, match=r"disk is full: free some space.*HEADCOUNT_STORE"):
            more.write(GATES, KEYS, KEYS, VALUES)
        np.testing.assert_array_equal(store.context(CONTEXT).read(GATES, KEYS), VALUES)
        assert np.isnan(more.read(GATES, KEYS)).all()
        connection.execute("PRAGMA max_page_count = 1000000")
        assert more.write(GATES, KEYS, KEYS, VALUES) == VALUES.size
    with Store(path) as store:
        assert [row.values for row in store.summary()] == [VALUES.size] * 2


def test_a_store_that_cannot_be_written(path: Path, tmp_path: Path) -> None:
    with Store(path) as store:
        store.database._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(HeadcountError, match="make the file and its folder writable"):
            store.put_document("scores", CONTEXT, 1)
    (tmp_path / "folder").mkdir()
    with pytest.raises(HeadcountError, match="folder is a folder, and a store is a file"):
        Store(tmp_path / "folder")
    assert not (tmp_path / "folder.lock").exists()
    with pytest.raises(HeadcountError, match="its folder cannot be written"):
        Store(path / "store.sqlite")


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        with pytest.raises(HeadcountError, match="writable"):
            Store(path)
    finally:
        path.parent.chmod(0o700)


def test_a_store_that_another_process_keeps_locked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT", 0.05)
    with Store(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HeadcountError, match="another process has kept it locked"):
            fill(store)
        assert store.summary()[0].values == VALUES.size  # reading goes on
        other.execute("ROLLBACK")
        with database.FileLock(f"{path}.lock"), pytest.raises(HeadcountError, match="locked"):
            Store(path)


def test_a_write_that_reads_first_is_not_overtaken(path: Path) -> None:
    def read_then_write(connection: sqlite3.Connection) -> None:
        connection.execute("SELECT count(*) FROM contexts").fetchone()
        with (
            closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM contexts")

    with Store(path) as store:
        store.database.run(read_then_write, write=True)
        assert store.summary() == []


def test_a_mistake_in_our_own_sql_is_not_explained_away(path: Path) -> None:
    with Store(path) as store, pytest.raises(sqlite3.OperationalError, match="no such table"):
        store.database.run(lambda connection: connection.execute("SELECT * FROM nowhere"))
