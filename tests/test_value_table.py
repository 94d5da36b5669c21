"""The table of single values: what is written is read again, and what is damaged is refused."""

from __future__ import annotations

import gzip
import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headcount.errors import HeadcountError
from headcount.value_table import MisfitError, ValueTable

COLUMNS, SHARED = ("model", "task", "series", "count"), ("model", "task")
ABOUT = {"model": "m", "task": "ioi"}
name = st.text([*string.ascii_letters, *' ,"\n$é–'], max_size=8)


def made() -> ValueTable:
    table = ValueTable(COLUMNS, SHARED)
    table.name_examples([("a", "t0", "x"), ("b", "t0", "y"), ("c", "t1", "x")], **ABOUT)
    table.name_examples([("a", "", "")], model="m", task="math")
    table.put([0.25, 1.0, -3.5], **ABOUT, series="top", count=0)
    table.put([[1, 2, 3], [4, 5, 6]], **ABOUT, series="random", count=8)
    table.put([7], model="m", task="math", series="top", count=0)
    return table


def same(one: ValueTable, other: ValueTable) -> None:
    assert (one.columns, one.shared) == (other.columns, other.shared)
    assert list(one.facts()) == list(other.facts())
    for facts in one.facts():
        np.testing.assert_array_equal(one.get(**facts), other.get(**facts))
        assert one.examples(**facts) == other.examples(**facts)
    assert one.rows == other.rows


# Round trips


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    table = made()
    paths = table.write(tmp_path)
    assert [path.name for path in paths] == ["values.csv.gz", "examples.csv.gz"]
    same(table, ValueTable.read(tmp_path))
    assert len(ValueTable.read(tmp_path)) == 3
    assert isinstance(next(ValueTable.read(tmp_path).facts(count=8))["count"], int)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 3), st.integers(1, 5)),
        elements=st.floats(-1e30, 1e30, allow_subnormal=False),
    ),
    st.lists(st.tuples(name, name, name), min_size=5, max_size=5),
    name,
)
def test_any_values_and_names_come_back(
    tmp_path: Path, values: np.ndarray, names: list[tuple[str, str, str]], model: str
) -> None:
    table = ValueTable(COLUMNS, SHARED)
    table.name_examples(names[: values.shape[1]], model=model, task="t")
    table.put(values, model=model, task="t", series="top", count=3)
    table.write(tmp_path)
    same(table, ValueTable.read(tmp_path))
    np.testing.assert_allclose(next_values(table), values, rtol=1e-4)


def next_values(table: ValueTable) -> np.ndarray:
    return table.get(**next(table.facts()))


def test_estimates_are_made_from_the_very_numbers_that_a_reader_gets() -> None:
    """Values are rounded when they are put in, not when they are written."""
    table = ValueTable(COLUMNS, SHARED)
    table.name_examples([("a", "", "")], **ABOUT)
    table.put([1 / 3], **ABOUT, series="top", count=0)
    assert next_values(table)[0, 0] == 0.33333


def test_equal_tables_give_equal_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        made().write(tmp_path / folder)
    for file in ("values.csv.gz", "examples.csv.gz"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


# What a table answers


def test_clusters_are_templates_and_contents() -> None:
    assert made().clusters(**ABOUT).tolist() == [[0, 0], [0, 1], [1, 0]]


def test_rows_are_tidy() -> None:
    rows = made().rows
    assert len(rows) == 3 + 2 * 3 + 1
    assert rows[6] == {
        **ABOUT,
        "series": "random",
        "count": 8,
        "draw": 1,
        "example": "a",
        "template": "t0",
        "content": "x",
        "value": 4.0,
    }


def test_facts_and_names_are_found_by_what_they_share() -> None:
    table = made()
    assert table.names("task") == ["ioi", "math"]
    assert table.names("count", task="ioi") == [0, 8]
    assert [facts["task"] for facts in table.facts(series="top")] == ["ioi", "math"]
    assert table.has(**ABOUT, series="random", count=8)
    assert not table.has(**ABOUT, series="random", count=0)


def test_values_need_their_examples() -> None:
    with pytest.raises(ValueError, match="2 values for 3 examples"):
        made().put([1, 2], **ABOUT, series="top", count=1)


# Damage


def altered(folder: Path, file: str, change: Callable[[str], str]) -> None:
    path = folder / file
    text = gzip.decompress(path.read_bytes()).decode()
    changed = change(text)
    assert changed != text
    path.write_bytes(gzip.compress(changed.encode()))


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("values.csv.gz", "0.25 1 -3.5", "0.25 1", "2 values for 3 examples"),
        ("values.csv.gz", "0.25 1 -3.5", "0.25 1 -3.5 2", "4 values for 3 examples"),
        ("values.csv.gz", "0.25 1 -3.5", "0.25 one -3.5", "is not a number"),
        ("values.csv.gz", "m,ioi,random", "m,ioj,random", "3 values for 0 examples"),
        ("values.csv.gz", ",draw,", ",drew,", "lack columns"),
        ("values.csv.gz", "model,task,", "model,tusk,", "lack columns"),
        ("examples.csv.gz", ",template,", ",pattern,", "lack columns"),
        ("examples.csv.gz", "m,ioi,c,t1,x\n", "", "3 values for 2 examples"),
        ("examples.csv.gz", "m,ioi,c,t1,x\n", "m,ioi,c,t1,x\nm,ioi,d,,\n", "3 values for 4"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(
    tmp_path: Path, file: str, old: str, new: str, words: str
) -> None:
    made().write(tmp_path)
    altered(tmp_path, file, lambda text: text.replace(old, new, 1))
    with pytest.raises(MisfitError, match=words):
        ValueTable.read(tmp_path)


@pytest.mark.parametrize("file", ["values.csv.gz", "examples.csv.gz"])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: b"no gzip", "damaged"),
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: data[:20] + b"\xff" * 8 + data[28:], "damaged"),
        (lambda data: gzip.compress(b"model,task\n\xff\xfe,x\n"), "damaged"),
        (lambda data: gzip.compress(gzip.decompress(data) + b"a,b\n"), "too few or too many"),
        (lambda data: gzip.compress(b"a,b\n1,2,3\n"), "too few or too many"),
    ],
)
def test_files_that_cannot_be_read_are_refused_by_name(
    tmp_path: Path, file: str, spoil: Callable[[bytes], bytes], words: str
) -> None:
    made().write(tmp_path)
    path = tmp_path / file
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(HeadcountError, match=words) as error:
        ValueTable.read(tmp_path)
    assert str(path) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    made().write(tmp_path)
    (tmp_path / "examples.csv.gz").unlink()
    with pytest.raises(HeadcountError, match=r"has no examples\.csv\.gz"):
        ValueTable.read(tmp_path)


def test_empty_files_hold_no_result(tmp_path: Path) -> None:
    for file in ("values.csv.gz", "examples.csv.gz"):
        (tmp_path / file).write_bytes(gzip.compress(b""))
    with pytest.raises(MisfitError, match="lack columns"):
        ValueTable.read(tmp_path)
