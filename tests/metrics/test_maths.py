"""Grading: two hundred pairs of answers, and the published rule beside it."""

from __future__ import annotations

import sys
import threading

import pytest
from answer_pairs import pairs

from headcount import HeadcountError
from headcount.metrics import Written, get_metric, maths
from headcount.metrics.maths import is_right, same

PAIRS = pairs()


def test_there_are_two_hundred() -> None:
    assert len(PAIRS) >= 200
    assert 60 <= sum(verdict for *_, verdict in PAIRS) <= 140


@pytest.mark.parametrize(("answer", "gold", "verdict"), PAIRS)
def test_pairs(answer: str, gold: str, verdict: bool) -> None:
    assert same(answer, gold) == verdict


def test_only_the_last_box_counts() -> None:
    assert is_right(r"\boxed{3}, no: \boxed{\frac{8}{2}}", r"\boxed{4}")
    assert not is_right("It is 4.", r"\boxed{4}")
    assert not is_right(r"\boxed{}", r"\boxed{4}")
    assert not is_right(r"\boxed{4", r"\boxed{4}")


def test_the_published_rule_goes_by_its_own_name() -> None:
    texts, golds = [r"\boxed{1}", r"\boxed{15}", r"\boxed{14}", "14"], [r"\boxed{14}"] * 4
    written = Written(texts, golds, texts, ["?"] * 4)
    ours, theirs = get_metric("maths"), get_metric("published_maths")
    assert ours.function(written).tolist() == [0, 0, 1, 0]  # type: ignore[arg-type]
    assert theirs.function(written).tolist() == [1, 0, 1, 0]  # type: ignore[arg-type]
    assert "published rule" in theirs.name


def test_what_cannot_be_computed_is_wrong_at_once() -> None:
    assert not same("9^{9^{9^{9}}}", "12")
    assert not same("7" * 500, "12")
    assert not same("99999!", "12")


def test_other_threads_can_grade() -> None:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(same(r"\frac{3}{6}", "0.50")))
    thread.start()
    thread.join()
    assert found == [True]


def test_without_the_library_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    maths._math_verify.cache_clear()
    maths.same.cache_clear()
    try:
        with pytest.raises(HeadcountError, match=r"pip install 'headcount\[math\]'"):
            same("1", "1")
    finally:
        maths._math_verify.cache_clear()
