"""Damage, foreign files, full disks: each is brought about for real, by way of the store."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable
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


def set_format(number: int) -> Callable[[Path], None]:
    return lambda path: change(path, f"PRAGMA user_version = {number}")


def change(path: Path, *statements: str) -> None:
    """Change a store behind its back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    "damage",
    [
        damage_header,
        damage_page,
        damage_by_cutting,
        *map(set_format, (-5, 0, 1)),
        lambda path: overwrite(path, 44, bytes([0, 0, 0, 68])),  # a format of SQLite to come
        lambda path: overwrite(path, path.read_bytes().index(b"index_head_sets_1"), b"\xf5"),
        lambda path: change(path, "DROP TABLE texts"),
        lambda path: change(path, "DROP TABLE contexts"),
        lambda path: change(path, "ALTER TABLE examples DROP COLUMN name"),
        lambda path: change(path, "ALTER TABLE head_sets ADD COLUMN more"),
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
    assert list(tmp_path.iterdir()) == [path]


def test_a_database_that_another_program_has_open_is_left_alone(tmp_path: Path) -> None:
    """Opened by SQLite as usual, its log would be merged."""
    path, copy = tmp_path / "theirs.sqlite", tmp_path / "copy"
    copy.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO theirs VALUES (1)")
        for ending in ("", "-wal"):  # as after a crash
            (copy / f"s.sqlite{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    with pytest.raises(HeadcountError, match="another program"):
        Store(copy / "s.sqlite")
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before


def test_a_store_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    set_format(database.VERSION + 1)(path)
    Path(f"{path}.lock").unlink(missing_ok=True)
    before = path.read_bytes()
    with pytest.raises(HeadcountError, match=r"newer version of headcount .*HEADCOUNT_STORE"):
        Store(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_store_whose_tables_are_still_in_its_log_is_opened(path: Path, tmp_path: Path) -> None:
    """As after a process that was killed at once: the file itself is that of nobody."""
    killed = tmp_path / "killed"
    killed.mkdir()
    with Store(tmp_path / "new.sqlite"):
        for ending in ("", "-wal"):
            file = Path(f"{tmp_path / 'new.sqlite'}{ending}")
            (killed / f"s.sqlite{ending}").write_bytes(file.read_bytes())
    assert b"HEAD" not in (killed / "s.sqlite").read_bytes()
    with Store(killed / "s.sqlite") as store:
        fill(store)
    assert not list(killed.glob("*.damaged-*"))


@pytest.mark.parametrize(
    "content",
    [
        b"notes that nobody wants to lose\n",
        np.random.default_rng(0).bytes(50_000),
        b"SQLite format 3\0 but nothing of ours",
        Path(database.__file__).read_bytes(),
    ],
)
def test_a_file_that_never_was_a_store_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(HeadcountError, match=r"notes.txt is not a store, and .*left as it is"):
            Store(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_no_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(HeadcountError, match="is not a store"):
            Store(path)
    with pytest.raises(HeadcountError, match="NUL character"):
        Store("a\0b")


def test_a_store_overwritten_in_use_is_set_aside(path: Path) -> None:
    """Whatever the file holds now: it was a store when it was opened."""
    with Store(path) as store:
        damage_all(path)
        Path(f"{path}-wal").unlink()
        fill(store)
        np.testing.assert_array_equal(store.context(CONTEXT).read(GATES, KEYS), VALUES)
    assert len(list(path.parent.glob("*.damaged-*Z"))) == 1


# -- rows that were changed on disk


def dropped(store: Store, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence told that rows were removed."""
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"The store at {store.path} held {what}" in told
    assert "measured again" in told


@pytest.mark.parametrize(
    ("change_row", "rows"),
    [
        ("value = value + 1e-9", 1),
        ("value = 'many'", 1),
        ("value = x'00ff'", 1),
        ("sum = sum + 1", 1),
        ("sum = 'some'", 1),
        ("head_set = 1000 + head_set", 0),
    ],
)
def test_a_value_that_was_changed_is_measured_again(
    path: Path, change_row: str, rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    change(path, f"UPDATE measurements SET {change_row} WHERE head_set = 3 AND example = 5")
    with Store(path) as store:
        here = store.context(CONTEXT)
        found = here.read(GATES, KEYS)
        if rows:
            dropped(store, "1 damaged value:", capsys)
        wanted = VALUES.copy()
        wanted[2, 4] = np.nan
        np.testing.assert_array_equal(found, wanted)
        fill(store)
        np.testing.assert_array_equal(here.read(GATES, KEYS), VALUES)
    assert capsys.readouterr().err == ""


def test_values_are_not_taken_for_those_of_other_keys(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(path, "UPDATE examples SET id = 1000 - id")  # all ids exist, and are another example's
    change(path, "UPDATE examples SET id = id - 959")
    with Store(path) as store:
        assert np.isnan(store.context(CONTEXT).read(GATES, KEYS)).all()
        dropped(store, "1,200 damaged values", capsys)


@pytest.mark.parametrize("kind", ["bytes", "number", "text"])
def test_a_text_that_was_changed_is_written_again(
    path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    new = {"bytes": "CAST(x'ff80' AS TEXT)", "number": "x'01'", "text": "'Rom'"}[kind]
    texts = np.array([["Paris", "Rome"]], dtype=object)
    with Store(path) as store:
        here = store.context({"metric": "text"})
        here.write(GATES[:1], KEYS[:2], KEYS[:2], texts)
        change(path, f"UPDATE texts SET value = {new} WHERE value = 'Rome'")
        assert here.read(GATES[:1], KEYS[:2], texts=True).tolist() == [["Paris", None]]
        dropped(store, "1 damaged text:", capsys)
        assert here.write(GATES[:1], KEYS[:2], KEYS[:2], texts) == 1


@pytest.mark.parametrize("new", ["'{'", "x'ff'", "CAST(x'ff' AS TEXT)", "'[2]'", "5"])
@pytest.mark.parametrize("checked", [True, False])
def test_a_document_that_was_changed_is_made_again(
    path: Path, new: str, checked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(path) as store:
        store.put_document("scores", CONTEXT, [1])
        change(path, f"UPDATE documents SET json = {new}")
        if not checked:  # as in a store of version 2, where only broken JSON shows
            change(path, "UPDATE documents SET sum = NULL")
            if new in ("'[2]'", "5"):
                return
        assert store.get_document("scores", CONTEXT) is None
        dropped(store, "1 damaged document:", capsys)
        store.put_document("scores", CONTEXT, [1])
        assert store.get_document("scores", CONTEXT) == [1]


@pytest.mark.parametrize(
    "new", ["json = '{'", "json = CAST(x'ff80' AS TEXT)", "json = '5'", "json = x'00'", "key = 'k'"]
)
def test_a_context_that_was_changed_is_dropped_when_the_store_is_opened(
    path: Path, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(path) as store:
        store.put_document("scores", {"model": "other"}, 1)
    change(path, f"UPDATE contexts SET {new} WHERE id = 1")
    with Store(path) as store:
        dropped(store, "1 damaged context:", capsys)
        (row,) = store.summary()
        assert (row.model, row.documents) == ("other", 1)
        assert store.export(path.with_suffix(".csv")) == 0
        fill(store)
        assert len(store.summary()) == 2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("new", ["'yesterday'", "1e30", "-1e30", "x'00'"])
def test_damage_in_use_does_not_end_a_listing(path: Path, new: str) -> None:
    with Store(path) as store:
        change(path, f"UPDATE measurements SET created = {new}", "UPDATE contexts SET json = '{'")
        (row,) = store.summary()
        assert (row.model, row.values) == ("", VALUES.size)


@pytest.mark.parametrize("checked", [True, False])
def test_an_index_that_names_another_row(
    path: Path, checked: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small store gets a new index; the index of a large one is not checked when it is opened."""
    key = KEYS[3].encode()
    data = path.read_bytes()
    at = next(m.end() for m in re.finditer(re.escape(key), data) if data[m.end()] == 4)
    overwrite(path, at, bytes([5]))  # the id of another example
    if not checked:
        monkeypatch.setattr(database, "CHECKED_BYTES", 0)
    with Store(path) as store:
        found = store.context(CONTEXT).read(GATES, KEYS)
        told = capsys.readouterr().err
        if checked:
            np.testing.assert_array_equal(found, VALUES)
            assert told == ""
        else:
            assert np.isnan(found).all()
            assert "the index of its table examples is wrong" in told


def test_an_export_leaves_changed_values_out(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(path) as store:
        change(path, "UPDATE measurements SET value = 2.5 WHERE head_set = 3")
        change(path, "UPDATE measurements SET value = 'x' WHERE head_set = 4 AND example < 4")
        assert store.export(path.with_suffix(".csv")) == VALUES.size - 43
        dropped(store, "43 damaged values", capsys)
        assert store.export(path.with_suffix(".csv")) == VALUES.size - 43
    assert capsys.readouterr().err == ""


def test_a_store_of_the_version_before_check_sums_is_read_on(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for table in ("measurements", "texts", "documents"):
        change(path, f"ALTER TABLE {table} DROP COLUMN sum")
    set_format(2)(path)
    with Store(path) as store:
        np.testing.assert_array_equal(store.context(CONTEXT).read(GATES, KEYS), VALUES)
        assert store.export(path.with_suffix(".csv")) == VALUES.size
        store.context(CONTEXT).write(GATES[:1], ["new"], ["new"], np.ones((1, 1)))
        change(path, "UPDATE measurements SET value = 2 WHERE value = 1")
        assert np.isnan(store.context(CONTEXT).read(GATES[:1], ["new"])).all()
        dropped(store, "1 damaged value:", capsys)
    assert not list(path.parent.glob("*.damaged-*"))


def test_no_flipped_bit_changes_a_value(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One bit anywhere in the pages of measurements: values are right, or they are unknown."""
    sound, rng = path.read_bytes(), np.random.default_rng(5)
    unknown = 0
    for at in rng.integers(0, len(sound), 60):
        flipped = bytearray(sound)
        flipped[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            with Store(path) as store:
                found = store.context(CONTEXT).read(GATES, KEYS)
                store.summary()
        except HeadcountError:  # the name of the program in the header, or its version
            assert at < 100
            continue
        finally:
            for ending in ("-wal", "-shm"):
                Path(f"{path}{ending}").unlink(missing_ok=True)
        known = ~np.isnan(found)
        np.testing.assert_array_equal(found[known], VALUES[known])
        unknown += not known.all()
    assert unknown > 10


def test_the_file_says_what_it_is(path: Path) -> None:
    assert path.read_bytes()[68:72] == b"HEAD"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (database.VERSION,)
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
