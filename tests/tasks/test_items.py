"""Data files: sections, comments and lines that go on, and all that the package brings."""

from __future__ import annotations

from importlib.resources import files

import pytest

from headcount.tasks.items import Tables, tables

TEXT = """
# a comment
[templates]
One {thing}
    and another.
Two.

[words]
one two
three
[phrases]
an owl; a bee;
a fox
[rows]
bird: an owl; a
    robin
insect: a bee
"""


def test_sections_are_read_as_what_they_are() -> None:
    data = Tables(TEXT)
    assert data.lines("templates") == ("One {thing} and another.", "Two.")
    assert data.words("words") == ("one", "two", "three")
    assert data.phrases("phrases") == ("an owl", "a bee", "a fox")
    assert data.rows("rows") == {"bird": ("an owl", "a robin"), "insect": ("a bee",)}
    assert data.pairs("rows")["insect"] == "a bee"


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="bird comes twice in the section rows"):
        Tables("[rows]\nbird: an owl\nbird: a robin").rows("rows")


def test_every_data_file_is_clean_text() -> None:
    names = [path.name for path in (files("headcount.tasks") / "data").iterdir()]
    assert len(names) >= 13
    for name in names:
        data = tables(name.removesuffix(".txt"))
        for section in data:
            lines = data.lines(section)
            assert lines
            assert len(set(lines)) == len(lines)
            assert all("\t" not in line and ";;" not in line for line in lines)
            assert "" not in data.phrases(section)
