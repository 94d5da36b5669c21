"""Data sets of the hub, with a ablation for the `datasets` library: there is no network here."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from headcount import HeadcountError
from headcount.tasks import Task
from headcount.tasks.hub import HubSettings, hub

ROWS = [
    {"question": "1 + 1?", "answer": "2", "wrong": ["3", "2", "4"], "topic": "sums"},
    {"question": "2 {x} 2?", "answer": "4", "wrong": [], "topic": "sums"},
    {"question": "3 + 3?", "answer": "6", "wrong": ["7"], "topic": "more sums"},
]


class Rows(list[dict[str, Any]]):
    column_names = ("question", "answer", "wrong", "topic")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []

    def load_dataset(*args: Any, **kwargs: Any) -> Rows:
        asked.append((args, kwargs))
        if args[0] == "nobody/nothing":
            raise FileNotFoundError("Dataset 'nobody/nothing' doesn't exist\nand more")
        return Rows(ROWS)

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


def make(**settings: Any) -> Task:
    return hub(settings=HubSettings(**{"path": "me/sums", **settings}))


def test_rows_fill_the_patterns(library: list[Any]) -> None:
    task = make(config="main", split="train", foils="wrong", content="{topic}")
    assert library == [(("me/sums", "main"), {"split": "train", "revision": None})]
    assert task.name == "sums"
    first, second, _ = task.examples
    assert first.prompt == "Question: 1 + 1?\nAnswer:"
    assert (first.target, first.foils) == (" 2", (" 3", " 4"))
    assert first.content == "sums"
    assert second.prompt == "Question: 2 {x} 2?\nAnswer:"  # what is filled in is not read again
    assert len(make(n=2)) == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"path": ""}, "Name the data set"),
        ({"path": "nobody/nothing"}, "doesn't exist"),
        ({"prompt": "{questoin}"}, "Did you mean"),
        ({"prompt": "{question.__class__}"}, "no column"),
        ({"prompt": "{question"}, "cannot be read"),
        ({"foils": "wrongs"}, "no column"),
        ({"n": 4}, "has 3 rows"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    library: list[Any], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(HeadcountError, match=words):
        make(**settings)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(HeadcountError, match=r"headcount\[hub\]"):
        make()
