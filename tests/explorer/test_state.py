"""The state of an explorer: what fits a model, what is refused, and the controls beside it."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pytest

from headcount import HeadcountError, HeadLayout, HeadScores
from headcount.cli.arguments import build_parser
from headcount.cli.common import heads_from
from headcount.explorer.state import ExplorerState, choose

LAYOUT = HeadLayout((4, 4, 4))
SCORES = HeadScores(LAYOUT, np.arange(12.0), "by hand")


def test_a_state_keeps_its_heads_in_order_and_once() -> None:
    state = ExplorerState.of({"heads": ["2.0", "0.1", "2.0"], "gate": 1}, LAYOUT)
    assert state.heads == ("0.1", "2.0")
    assert state.gates(LAYOUT).tolist() == [1] * 12
    kept = ExplorerState.of({"heads": ["0.1"], "keep": True, "gate": 0.5}, LAYOUT)
    assert kept.gates(LAYOUT).tolist() == [0.5, 1] + [0.5] * 10


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "is a mapping"),
        ({"heads": ["9.0"]}, "There is no head 9.0"),
        ({"heads": ["../etc"]}, "is not a head"),
        ({"heads": "0.1"}, "heads cannot be"),
        ({"heads": [1]}, "heads cannot be"),
        ({"path": "/etc/passwd"}, 'no setting of the explorer "path"'),
        ({"gate": 3}, "from 0 to 2"),
        ({"gate": True}, "gate cannot be"),
        ({"gate": float("nan")}, "gate"),
        ({"keep": 1}, "keep cannot be"),
        ({"seed": 10**12}, "seed cannot be"),
        ({"ablation": "__import__"}, "There is no ablation"),
        ({"prompt": None}, "prompt cannot be"),
        ({"selected": "0.9"}, "There is no head 0.9"),
    ],
)
def test_what_is_no_state_is_refused(given: Any, said: str) -> None:
    with pytest.raises(HeadcountError, match=said):
        ExplorerState.of(given, LAYOUT)


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("top 2", "2.2 2.3"),
        ("bottom 1", "0.0"),
        ("layer 1", "1.0 1.1 1.2 1.3"),
        ("0.1 2.3", "0.1 2.3"),
        ("0.1, layer 2; TOP 1", "0.1 2.0 2.1 2.2 2.3"),
        ("none", ""),
        ("", ""),
    ],
)
def test_heads_are_chosen_in_words(text: str, heads: str) -> None:
    assert choose(text, LAYOUT, SCORES) == heads.split()


def test_random_heads_in_words_depend_on_the_seed_alone() -> None:
    assert choose("random 5", LAYOUT, seed=1) == choose("random 5", LAYOUT, seed=1)
    assert len(choose("random 5", LAYOUT, seed=1)) == 5
    assert choose("random 5", LAYOUT, seed=(1, 2)) != choose("random 5", LAYOUT, seed=(1, 3))
    assert choose("all", LAYOUT) == [str(head) for head in LAYOUT]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("top", "number after"),
        ("top x", "number after"),
        ("top 99", "has 12 heads"),
        ("random 13", "has 12 heads"),
        ("layer 3", "no layer 3"),
        ("7.7", "no head 7.7"),
        ("import os", "is not a head"),
    ],
)
def test_words_that_name_no_heads_are_refused(text: str, said: str) -> None:
    with pytest.raises(HeadcountError, match=said):
        choose(text, LAYOUT, SCORES)


def test_top_needs_a_ranking() -> None:
    with pytest.raises(HeadcountError, match="Choose a ranking"):
        choose("top 2", LAYOUT)


def test_controls_are_other_heads_of_the_same_layers() -> None:
    state = ExplorerState(heads=("0.0", "0.1", "2.3"))
    gates, note = state.controls(LAYOUT, 20)
    assert note == ""
    by_layer = (gates == 0).reshape(20, 3, 4).sum(2)
    assert (by_layer == [2, 0, 1]).all()
    assert not (gates[:, state.chosen(LAYOUT)] == 0).any()
    other, _ = ExplorerState(heads=state.heads, seed=1).controls(LAYOUT, 20)
    assert (other != gates).any()


def test_controls_of_a_whole_layer_come_from_the_nearest_and_say_so() -> None:
    _, note = ExplorerState(heads=("0.0", "0.1", "0.2")).controls(LAYOUT, 1)
    assert note == "2 random heads from the nearest other layers"


def test_controls_of_most_heads_are_drawn_from_all_heads_of_each_layer() -> None:
    heads = tuple(str(head) for head in LAYOUT if head.index < 3)
    gates, note = ExplorerState(heads=heads, keep=True).controls(LAYOUT, 3)
    assert "more than half" in note
    assert ((gates == 1).reshape(3, 3, 4).sum(2) == 3).all()


def test_the_same_as_a_command_and_as_python() -> None:
    state = ExplorerState(heads=("0.1", "2.3"), keep=True, prompt="say 'hi'", ablation="mean")
    command = state.command("my model", "ioi", "logprob", {"n": 64})
    assert command == (
        "headcount ablate --model 'my model' --task ioi --heads 0.1 2.3 --keep --metric logprob "
        "--ablation mean --set n=64"
    )
    for one in (state, ExplorerState(heads=("0.1",), prompt='"""\n\\', gate=0.5)):
        compile(one.python("m'odel", "ioi", "logprob", {"n": 64, "s": "x"}), "copied", "exec")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ExplorerState(heads=("0.1",), gate=0.5), "--heads 0.1 --gate 0.5 --metric"),
        (ExplorerState(keep=True), "--heads --keep --metric"),
    ],
)
def test_the_command_line_says_every_head_set(state: ExplorerState, words: str) -> None:
    command = state.command("m", "ioi", "logprob", {})
    assert words in command
    arguments = build_parser().parse_args(shlex.split(command)[1:])
    assert heads_from(arguments, needed=True) == state.head_set


def test_without_a_task_the_command_writes() -> None:
    state = ExplorerState(heads=("0.1",), keep=True, prompt="-pe")
    command = state.command("m", "", "logprob", {})
    assert command == "headcount generate --model m --prompt=-pe --heads 0.1 --keep"
    assert build_parser().parse_args(shlex.split(command)[1:]).prompt == ["-pe"]
    assert "make_task(" not in state.python("m", "", "logprob", {})
    assert ExplorerState().command("m", "ioi", "logprob", {}).startswith("# This is the whole")
