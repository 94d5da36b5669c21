"""Layouts, scores, and the checks of gates and counts."""

from __future__ import annotations

import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from headcount import Head, HeadcountError, HeadLayout, HeadScores
from headcount.heads import check_counts, check_gates

COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=9).map(tuple)


@given(counts=COUNTS)
def test_heads_and_numbers_are_one_to_one(counts: tuple[int, ...]) -> None:
    layout = HeadLayout(counts)
    heads = list(layout)
    assert len(heads) == len(layout) == layout.total == sum(counts)
    assert [layout.number(head) for head in heads] == list(range(layout.total))
    assert [layout.head(number) for number in range(layout.total)] == heads
    assert [head.layer for head in heads] == layout.layers.tolist()
    assert [layout.parse(str(head)) for head in heads] == heads
    assert heads == sorted(heads)


@given(counts=COUNTS, chosen=st.lists(st.integers(0, 80)))
def test_off_and_keep_are_opposites(counts: tuple[int, ...], chosen: list[int]) -> None:
    layout = HeadLayout(counts)
    heads = [layout.head(number % layout.total) for number in chosen]
    off, keep = layout.gates(off=heads), layout.gates(keep=heads)
    np.testing.assert_array_equal(off + keep, np.ones(layout.total, np.float32))
    assert {layout.head(int(n)) for n in np.flatnonzero(off == 0)} == set(heads)


def test_gates_take_one_of_off_and_keep() -> None:
    layout = HeadLayout((2, 2))
    for wrong in ({}, {"off": [], "keep": []}):
        choice: dict[str, Any] = wrong
        with pytest.raises(ValueError, match="either off or keep"):
            layout.gates(**choice)
    assert layout.gates(off=[]).tolist() == [1, 1, 1, 1]
    assert layout.gates(keep=[]).tolist() == [0, 0, 0, 0]
    assert layout.gates(off=["1.0"]).tolist() == [1, 1, 0, 1]
    with pytest.raises(HeadcountError, match=r"There is no head 2\.0"):
        layout.gates(keep=["2.0"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("31.4", "no head 31.4: this model has attention layers 0 to 29"),
        ("3.9", "no head 3.9: layer 3 has heads 0 to 8"),
        ("30.0", "layers 0 to 29"),
        *((text, "write LAYER.HEAD, such as 3.4") for text in ("", "3", "3.", ".4", "a.b", "-1.2")),
        *((text, "write LAYER.HEAD") for text in ("3.4.5", "3,4", "3.-4", "1e1.0", "²·¹", "²2.1")),
        ("9" * 5000 + ".1", "write LAYER.HEAD"),
    ],
)
def test_heads_that_do_not_exist(text: str, words: str) -> None:
    with pytest.raises(HeadcountError) as caught:
        HeadLayout((9,) * 30).parse(text)
    assert words in str(caught.value)


def test_heads_are_read_with_space_around_them() -> None:
    assert HeadLayout((9,) * 30).parse(" 29.8 ") == Head(29, 8)


def test_a_site_without_heads_is_no_site() -> None:
    with pytest.raises(ValueError, match="at least one head"):
        HeadLayout((2, 0))


# Scores


@given(
    values=arrays(np.float64, 6, elements=st.floats(-10, 10) | st.sampled_from([0.0, -0.0, 1.0]))
)
def test_the_order_is_from_high_to_low_and_ties_keep_head_order(values: np.ndarray) -> None:
    scores = HeadScores(HeadLayout((4, 2)), values, ranking="m")
    order = scores.order().tolist()
    assert sorted(order) == list(range(6))
    for before, after in itertools.pairwise(order):
        assert (values[before], -before) > (values[after], -after)
    assert scores.top(3) == [scores.layout.head(number) for number in order[:3]]
    assert scores.top(0) == []
    assert len(scores.top(6)) == 6


@given(
    values=arrays(np.float64, 5, elements=st.floats(allow_nan=False, allow_infinity=False)),
    samples=st.none() | arrays(np.float64, (3, 5), elements=st.floats(-1e9, 1e9)),
)
def test_scores_survive_json_bit_for_bit(values: np.ndarray, samples: np.ndarray | None) -> None:
    scores = HeadScores(HeadLayout((2, 3)), values, "m", {"steps": 3}, samples)
    again = HeadScores.from_json(json.loads(json.dumps(scores.to_json())))
    assert again.layout == scores.layout
    assert again.values.tobytes() == values.tobytes()
    assert (again.ranking, again.parameters) == ("m", {"steps": 3})
    assert (again.samples is None) == (samples is None)
    if samples is not None and again.samples is not None:
        assert again.samples.tobytes() == samples.tobytes()


def scored(rows: int = 4) -> HeadScores:
    samples = np.random.default_rng(0).normal(size=(rows, 3))
    values = np.array([0.1, 0.2, 1 / 3])
    return HeadScores(HeadLayout((2, 1)), values, "m", {"steps": 3}, samples if rows else None)


def test_scores_survive_a_file_and_their_samples_one_beside_it(tmp_path: Path) -> None:
    scores, path = scored(), tmp_path / "new" / "scores.json"
    scores.save(path)
    assert {file.name for file in path.parent.iterdir()} == {"scores.json", "scores.npz"}
    assert "samples" not in json.loads(path.read_text())
    again = HeadScores.load(path)
    assert again.values.tobytes() == scores.values.tobytes()
    assert (again.layout, again.ranking, again.parameters) == (scores.layout, "m", {"steps": 3})
    assert again.samples is not None
    assert again.samples.dtype == np.float64
    np.testing.assert_allclose(again.samples, scores.samples, rtol=1e-7)
    np.testing.assert_allclose(again.intervals(), scores.intervals(), rtol=1e-6)


def test_scores_are_read_without_their_samples_and_with_those_of_older_files(
    tmp_path: Path,
) -> None:
    path = tmp_path / "scores.json"
    scored().save(path)
    (tmp_path / "scores.npz").unlink()
    assert HeadScores.load(path).samples is None
    path.write_text(json.dumps(scored().to_json()))  # all in one, as it once was
    older = HeadScores.load(path).samples
    assert older is not None
    np.testing.assert_array_equal(older, scored().samples)


def test_no_samples_of_other_scores_are_left_beside_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "scores.json"
    scored().save(path)
    scored(rows=0).save(path)
    assert HeadScores.load(path).samples is None
    assert [file.name for file in tmp_path.iterdir()] == ["scores.json"]

    def fail(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    scored().save(path)
    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="No space left"):
        scored(rows=7).save(path)
    assert HeadScores.load(path).samples is None
    assert [file.name for file in tmp_path.iterdir()] == ["scores.json"]


@pytest.mark.parametrize("name", ["scores", "model-1.7b", "scores.npz", "1.5.json"])
def test_any_name_serves_for_scores_and_samples(tmp_path: Path, name: str) -> None:
    scored().save(tmp_path / name)
    again = HeadScores.load(tmp_path / name)
    assert again.samples is not None
    assert len(list(tmp_path.iterdir())) == 2


def broken_samples() -> dict[str, bytes]:
    """Files that are no samples of three heads."""

    def packed(**arrays: np.ndarray) -> bytes:
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        return file.getvalue()

    array = io.BytesIO()
    np.save(array, np.ones((2, 3)))
    whole = packed(samples=np.ones((2, 3)))
    return {
        "empty": b"",
        "text": b"no archive",
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:60] + bytes(255 - byte for byte in whole[60:80]) + whole[80:],
        "not packed": array.getvalue(),
        "another name": packed(values=np.ones((2, 3))),
        "words": packed(samples=np.array([["a", "b", "c"]])),
        "objects": packed(samples=np.array([[{}, {}, {}]])),
        "other heads": packed(samples=np.ones((2, 4))),
        "one row": packed(samples=np.ones(3)),
    }


@pytest.mark.parametrize("kind", broken_samples())
def test_samples_that_are_damaged_are_refused_in_a_sentence(tmp_path: Path, kind: str) -> None:
    scored().save(tmp_path / "scores.json")
    (tmp_path / "scores.npz").write_bytes(broken_samples()[kind])
    with pytest.raises(HeadcountError, match=r"scores\.npz.*delete it") as caught:
        HeadScores.load(tmp_path / "scores.json")
    assert "\n" not in str(caught.value)


GOOD = {"heads_per_layer": [2, 1], "values": [1, 2.5, 3], "ranking": "m", "parameters": {}}
LONG, UNENDING = 10**400, float("nan")
WRONG: dict[str, list[Any]] = {
    "heads_per_layer": [
        *(3, "21", None, {}, [], [0, 3], [-1, 4], [3.0], [True, True, True], [[2], 1]),
        *(["2", 1], [10**9], [10**30]),
    ],
    "values": [
        *(1, "abc", None, {}, [], [1, 2], [1, 2, 3, 4], [1, 2, "3"], [1, 2, None], [1, 2, True]),
        *([1, 2, []], [[1, 2, 3]], [1, 2, LONG], [1, 2, UNENDING], [1, 2, -UNENDING], {"0": 1}),
    ],
    "ranking": [None, 3, ["m"], {}],
    "parameters": [None, 3, "m", []],
    "samples": [
        *(3, "abc", {}, [1, 2, 3], [[1, 2]], [[1, 2, 3], [1]], [[1, 2, "3"]], [[1, 2, LONG]]),
        *([None], [[1, 2, [3]]]),
    ],
}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "3",
        "null",
        "{}",
        "{",
        "",
        "\xff",
        "[" * 200_000,
        '{"a":' * 200_000,
        "9" * 5_000,
        *(json.dumps({**GOOD, name: wrong}) for name, some in WRONG.items() for wrong in some),
        *(json.dumps({n: GOOD[n] for n in GOOD if n != name}) for name in GOOD),
    ],
    ids=lambda text: text[:40],
)
def test_files_that_hold_no_scores_are_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scores.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(HeadcountError) as caught:
        HeadScores.load(path)
    assert re.match(f"{path} is not a file of head scores: |Cannot read head", str(caught.value))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))
    assert not re.search(r"Expecting|set_int_max|codec|char \d", str(caught.value))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="Cannot read head scores from"):
        HeadScores.load(tmp_path / "none.json")


def test_scores_that_are_not_numbers_are_refused() -> None:
    for wrong in (np.nan, np.inf):
        with pytest.raises(HeadcountError, match=r'"m" gave scores that are not numbers'):
            HeadScores(HeadLayout((2,)), np.array([0.0, wrong]), ranking="m")


# Gates and counts


@pytest.mark.parametrize(
    "gates",
    [np.ones(3), np.ones((2, 5)), np.ones((1, 1, 4)), [], 1.0, [[1, 1, 1, 1], [1]], "off", [None]],
)
def test_gates_of_another_shape(gates: Any) -> None:
    with pytest.raises(HeadcountError) as caught:
        check_gates(gates, HeadLayout((2, 2)))
    assert "(head sets, 4)" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e39])
def test_gates_that_are_not_finite(wrong: float) -> None:
    with pytest.raises(HeadcountError, match="finite"), np.errstate(over="ignore"):
        check_gates([1, 1, wrong, 1], HeadLayout((2, 2)))


def test_one_head_set_is_a_row() -> None:
    assert check_gates([1, 0, 0.5, 2], HeadLayout((2, 2))).tolist() == [[1, 0, 0.5, 2]]
    assert check_gates(np.ones((0, 4)), HeadLayout((2, 2))).shape == (0, 4)


def test_counts_are_sorted_once_each_and_within_the_model() -> None:
    layout = HeadLayout((2, 2))
    assert check_counts([4, 0, 2, 2], layout) == [0, 2, 4]
    for wrong in (5, -1):
        with pytest.raises(HeadcountError, match=f"Cannot choose {wrong} heads: this model has 4"):
            check_counts([0, wrong], layout)
