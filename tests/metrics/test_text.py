from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.errors import HeadcountError
from headcount.metrics import TextMetric, Written, floor, get_metric, shuffled

ITEMS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from("uvwxyz")), min_size=2, max_size=30
)


def write(*items: tuple[str, str]) -> Written:
    golds, whole = [gold for gold, _ in items], [answer for _, answer in items]
    return Written(whole, golds, whole, [f"{place}?" for place in range(len(items))])


@given(ITEMS, st.integers(0, 5))
def test_shuffling_moves_references_together(items: list[tuple[str, str]], seed: int) -> None:
    written = write(*items)
    if len(set(items)) < 2:
        with pytest.raises(HeadcountError, match="two different answers"):
            shuffled(written, seed)
        return
    moved = shuffled(written, seed)
    assert moved.texts == written.texts
    assert moved.prompts == written.prompts
    assert Counter(zip(moved.golds, moved.whole, strict=True)) == Counter(items)
    again = shuffled(written, seed)
    assert (again.golds, again.whole) == (moved.golds, moved.whole)


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=24), st.integers(0, 5))
def test_no_answer_meets_its_like_unless_it_must(answers: list[str], seed: int) -> None:
    if len(set(answers)) < 2:
        return
    moved = shuffled(write(*zip(answers, answers, strict=True)), seed)
    same = sum(old == new for old, new in zip(answers, moved.golds, strict=True))
    # The commonest answer needs as many others to stand beside.
    most = max(Counter(answers).values())
    assert same == max(0, 2 * most - len(answers))


def test_content_decides_not_spelling() -> None:
    golds = ["Paris", "paris.", "the PARIS", "Rome", "Oslo", "Bern"]
    moved = shuffled(write(*zip(golds, golds, strict=True)))
    assert not set(moved.golds[:3]) & set(golds[:3])


def test_one_kind_of_reference_may_be_all_alike() -> None:
    golds = ["a", "b", "c", "d"]
    for written in (write(*((gold, "") for gold in golds)), write(*(("", gold) for gold in golds))):
        for seed in range(5):
            moved = shuffled(written, seed)
            kept = zip([*written.golds, *written.whole], [*moved.golds, *moved.whole], strict=True)
            assert sum(old == new for old, new in kept) == 4  # the empty ones only


def test_floor_is_a_mean_over_shuffled_pairs() -> None:
    written = write(*((gold, gold) for gold in "abcabd"))
    assert floor(get_metric("exact_match"), written) == 0.0
    mostly = write(*((gold, gold) for gold in "aaab"))
    assert floor(get_metric("exact_match"), mostly, seed=3) == 0.5

    def lengths(written: Written) -> np.ndarray:
        return np.array([float(len(gold)) for gold in written.golds])

    metric = TextMetric("length", "Length", lengths)
    assert math.isclose(floor(metric, write(("a", "x"), ("bbb", "y"))), 2.0)


@pytest.mark.parametrize("written", [write(), write(("a", "b")), write(*[("a", "b")] * 9)])
def test_floor_needs_two_answers(written: Written) -> None:
    with pytest.raises(HeadcountError, match="two different answers"):
        floor(get_metric("exact_match"), written)


def test_listing_needs_no_torch() -> None:
    code = "import sys, headcount.metrics as m; [m.get_metric(n).name for n in m.METRICS]; "
    code += "print({'torch', 'transformers'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_text_gets_the_best_value_over_its_right_answers() -> None:
    written = Written(
        ["7", "7", "x"], ["6", "7", "6"], ["", "", ""], ["?"] * 3, [["8", "7"], [], []]
    )
    assert get_metric("exact_match").score(written).tolist() == [1, 1, 0]
    assert get_metric("exact_match").function(written).tolist() == [0, 1, 0]
    seen: list[list[str]] = []

    def lengths(written: Written) -> np.ndarray:
        seen.append(list(written.golds))
        return np.array([float(len(gold)) for gold in written.golds])

    metric = TextMetric("length", "Length", lengths)
    longer = Written(["a", "b"], ["c", "dd"], ["", ""], ["?", "?"], [["eee"], ["f"]])
    assert metric.score(longer).tolist() == [3, 2]
    assert seen == [["c", "dd"], ["eee", "f"]]
    # One that reads no right answers runs once.
    blind = TextMetric("blind", "Blind", lengths, golds=False)
    assert blind.score(longer).tolist() == [1, 2]
    assert not get_metric("similarity").golds


def test_further_answers_move_with_the_right_answer() -> None:
    written = Written(["a", "b"], ["a", "b"], ["a", "b"], ["?", "?"], [["A1"], ["B1", "B2"]])
    moved = shuffled(written)
    assert (moved.golds, moved.also) == (["b", "a"], [["B1", "B2"], ["A1"]])
    assert floor(get_metric("exact_match"), replace(written, also=[["b"], ["a"]])) == 1.0
