"""Curves of planted circuits, where every point is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import INTERFERENCE, Plant, plant

from headcount import Curve, HeadcountError, HeadLayout, HeadScores, Lab, Store, curve, rank
from headcount.curves import SERIES, CurveRequest, CurveSettings, default_counts
from headcount.engine.measure.head_sets import HeadSets
from headcount.metrics import get_metric
from headcount.rankings.reranked import ranked_again

NEEDED, INTERFERING = ["0.1", "1.3", "2.0"], ["0.2", "2.1"]


@cache
def whole() -> Plant:
    """All three needed heads must be there."""
    return plant(needed=NEEDED, interfering=INTERFERING, seed=1)


@cache
def redundant() -> Plant:
    """Any one of the three needed heads suffices."""
    return plant(needed=NEEDED, interfering=INTERFERING, spare=2, seed=2)


@cache
def scores(planted: Any) -> HeadScores:
    chosen: Plant = planted()
    return rank(chosen.model, chosen.task, "attribution", metric="logit_difference")


def draw(planted: Any, **options: Any) -> Curve:
    chosen: Plant = planted()
    options = {"counts": [0, 1, 2, 3, 4, 5, 6], "seeds": 3, **options}
    options = {"ranking": scores(planted), **options}
    return curve(chosen.model, chosen.task, **options)


def values(result: Curve, series: str) -> dict[int, float]:
    return {point.count: round(point.value, 4) for point in result.series(series)}


def test_masking_falls_exactly_at_the_last_needed_head() -> None:
    result = draw(redundant)
    assert values(result, "top") == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0}
    # Controls come from outside the best k, so from k = 3 on they leave every needed head alone.
    for control in ("random", "matched"):
        assert all(values(result, control)[count] == 1 for count in (0, 3, 4, 5, 6))


def test_masking_one_head_of_a_circuit_without_spares_is_enough() -> None:
    assert values(draw(whole, series=["top"]), "top") == {0: 1} | dict.fromkeys(range(1, 7), 0)


def test_keeping_is_full_at_exactly_the_planted_number() -> None:
    result = draw(whole, mode="keep", series=["top", "bottom"], counts=range(13))
    expected = {count: 0 if count < 3 else 1 for count in range(13)}
    assert values(result, "top") == expected
    # The worst are the two that interfere; the needed ones come last of all.
    assert values(result, "bottom") == {count: float(count == 12) for count in range(13)}


def test_the_worst_heads_are_those_that_interfere() -> None:
    result = draw(whole, series=["bottom"], metric="logit_difference", counts=[0, 1, 2, 9])
    found = values(result, "bottom")
    total = sum(whole().effects.values())
    expected = [total, total + INTERFERENCE / 2, total + INTERFERENCE, total + INTERFERENCE]
    np.testing.assert_allclose([found[count] for count in (0, 1, 2, 9)], expected, atol=1e-3)


def test_every_count_up_to_all_heads() -> None:
    result = draw(whole, counts=[0, 12], series=["top", "bottom"])
    assert values(result, "top") == values(result, "bottom") == {0: 1, 12: 0}


def test_ablation_and_mode_come_with_the_curve() -> None:
    result = draw(whole, ablation="corrupted", mode="keep", counts=[0, 3])
    assert (result.mode, result.ablation) == ("keep", "the head's output on the corrupted prompt")
    assert values(result, "top") == {0: 0, 3: 1}


# Points, intervals and controls


def test_points_carry_what_the_table_needs() -> None:
    result = draw(whole, counts=[0, 2])
    test = whole().task.split("test")
    assert [(p.series, p.count, p.draws) for p in result.points] == [
        ("top", 0, 1),
        ("top", 2, 1),
        ("random", 0, 3),
        ("random", 2, 3),
        ("matched", 0, 3),
        ("matched", 2, 3),
    ]
    for point in result.points:
        assert (point.model, point.task, point.metric) == ("plant-1", "planted-1", "accuracy")
        assert point.n == len(test)
        assert 0 <= point.low <= point.value <= point.high <= 1
        assert result.raw[point.series, point.count].shape == (point.draws, len(test))
    np.testing.assert_array_equal(result.clusters, test.clusters)


def test_an_accuracy_of_one_has_the_width_of_wilson() -> None:
    (point,) = draw(whole, counts=[0], series=["top"]).points
    assert point.value == 1
    assert 0.5 < point.low < 0.95


def test_differences_are_paired() -> None:
    result = draw(redundant, counts=[0, 4])
    for control in ("random", "matched"):
        gap = result.difference("top", control, 4)
        assert gap.value == -1
        assert gap.low == -1 < gap.high < -0.3  # eight answers cannot exclude a ninth that stays
        assert result.difference("top", control, 0).value == 0
    # How hard a prompt is cancels out, however much prompts differ.
    hardness = np.random.default_rng(0).normal(0, 5, len(result.values.examples))
    values = replace(result.values, table=result.values.table + hardness)
    gap = replace(result, values=values).difference("top", "random", 4)
    assert (gap.low, gap.value, gap.high) == pytest.approx((-1, -1, -1))


def test_unmatched_shares_are_reported() -> None:
    """Three of the best four lie in a layer with a single spare head."""
    values = np.array([9.0, 8, 7, 0, 6, 1, 2, 3, 0, 0, 0, 0])
    chosen = whole()
    by_hand = HeadScores(chosen.model.layout, values, ranking="by hand")
    result = curve(chosen.model, chosen.task, by_hand, counts=[1, 4], seeds=2)
    shares = {(p.series, p.count): p.unmatched for p in result.points}
    assert shares == {
        ("top", 1): 0,
        ("top", 4): 0,
        ("random", 1): 0,
        ("random", 4): 0,
        ("matched", 1): 0,
        ("matched", 4): 0.5,  # two of four from another layer
    }


def test_controls_beyond_half_are_left_out_with_a_sentence() -> None:
    result = draw(whole, counts=[6, 7], seeds=1)
    assert {(p.series, p.count) for p in result.points} == {
        ("top", 6),
        ("top", 7),
        ("random", 6),
        ("matched", 6),
    }
    assert result.left_out == (
        "RandomK at 7 heads is left out: only 5 of 12 heads are outside the top 7.",
        "RandomK, layer-matched at 7 heads is left out: only 5 of 12 heads are outside the top 7.",
    )


def test_the_table_reads_well() -> None:
    lines = str(draw(whole, counts=[0, 3], series=["top"])).splitlines()
    assert lines[0].split() == ["series", "heads", "value", "95", "%", "interval"]
    assert lines[1].startswith("TopK")
    assert "1.000" in lines[1]
    assert "0.000" in lines[2]


def test_the_tidy_table_has_the_columns_of_the_design() -> None:
    result = draw(whole, counts=[0, 3])
    columns = ["model", "task", "series", "metric", "count", "value", "low", "high", "n"]
    assert list(result.rows[0])[:9] == columns
    assert len(result.rows) == len(result.points)


# Which head sets are measured


SCORES = st.lists(st.floats(-5, 5), min_size=12, max_size=12)


@given(
    found=SCORES,
    counts=st.lists(st.integers(0, 6), min_size=1, unique=True),
    seeds=st.integers(1, 4),
    mode=st.sampled_from(["mask", "keep"]),
)
def test_each_set_has_exactly_its_count_of_heads(
    found: list[float], counts: list[int], seeds: int, mode: Any
) -> None:
    layout = HeadLayout((4, 2, 6))
    by_prompt = np.array([found, found[::-1], found])
    ranking = HeadScores(layout, np.array(found), ranking="m", samples=by_prompt)
    prompts = np.array([[0, 0], [0, 1], [0, 2]])
    task = SimpleNamespace(split=lambda _: SimpleNamespace(clusters=prompts))
    chosen = CurveSettings(counts=counts, series=tuple(SERIES), seeds=seeds, mode=mode)
    of = SimpleNamespace(layout=layout)
    request = CurveRequest(of, task, ranking, get_metric("accuracy"), chosen)  # type: ignore[arg-type]
    table = HeadSets.build(layout, request.entries(ranking))
    gates = table.gates
    assert len(np.unique(gates, axis=0)) == len(gates)  # nothing is measured twice
    marked = 0 if mode == "mask" else 1
    assert set(table.rows) == {(series, count) for series in SERIES for count in counts}
    for (series, count), rows in table.rows.items():  # type: ignore[misc]
        assert len(rows) == (1 if series in ("top", "bottom") else seeds)
        sets = [set(np.flatnonzero(gates[row] == marked).tolist()) for row in rows]
        assert all(len(heads) == count for heads in sets)
        top = set(ranking.order()[:count].tolist())
        if series == "top":
            assert sets == [top]
        elif series == "bottom":
            worst = sorted(found)[:count]
            assert sorted(found[number] for number in sets[0]) == worst
        elif series == "reranked":
            again = [ranked_again(ranking, prompts, draw) for draw in range(seeds)]
            for heads, scores in zip(sets, again, strict=True):
                assert scores is not None
                best = sorted(scores.tolist(), reverse=True)[:count]
                assert sorted(scores[[*heads]].tolist(), reverse=True) == best
        elif series != "anywhere":
            assert all(heads.isdisjoint(top) for heads in sets)


@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=40))
def test_default_counts_double_up_to_half(counts: list[int]) -> None:
    layout = HeadLayout(tuple(counts))
    found = default_counts(layout)
    assert found[0] == 0
    assert found[1:] == [2**power for power in range(len(found) - 1)]
    assert found[-1] <= layout.total / 2 < max(1, 2 * found[-1])


def test_default_counts_have_all_controls() -> None:
    chosen = whole()
    result = curve(chosen.model, chosen.task, scores(whole), seeds=1)
    assert [point.count for point in result.series("matched")] == [0, 1, 2, 4]
    assert result.left_out == ()


def test_with_a_store_the_second_curve_computes_nothing(tmp_path: Path) -> None:
    chosen = whole()
    passes: list[int] = []
    with Store(tmp_path / "store.sqlite") as store:
        options: dict[str, Any] = {"counts": [0, 2], "seeds": 2, "lab": Lab(store)}
        first = curve(chosen.model, chosen.task, **options)
        handle = chosen.model.module.register_forward_pre_hook(lambda *_: passes.append(1))
        again = curve(chosen.model, chosen.task, **options)
        handle.remove()
    assert passes == []
    assert again.points == first.points


# Refusals


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"counts": [0, 13]}, "Cannot choose 13 heads: this model has 12"),
        ({"counts": [-1]}, "Cannot choose -1 heads"),
        ({"counts": []}, "at least one series and count"),
        ({"series": []}, "at least one series and count"),
        ({"series": ["random"], "counts": [7]}, "RandomK at 7 heads is left out"),
        (
            {"series": ["tpo"]},
            'no series "tpo" (known: top, bottom, random, matched, reranked, anywhere). Did',
        ),
        ({"series": ["reranked"], "ranking": "random"}, '"random" has no scores by prompt'),
        ({"seeds": 0}, "at least one seed, not 0"),
        ({"metric": "acuracy"}, 'Did you mean "accuracy"?'),
        ({"ablation": "men"}, 'Did you mean "mean"?'),
    ],
)
def test_bad_input_is_refused_in_a_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadcountError) as caught:
        draw(whole, **options)
    assert words in str(caught.value)


def test_an_unknown_metric_is_refused_before_anything_is_measured() -> None:
    chosen = whole()
    passes: list[int] = []
    handle = chosen.model.module.register_forward_pre_hook(lambda *_: passes.append(1))
    with pytest.raises(HeadcountError):
        curve(chosen.model, chosen.task, "attribution", metric="acuracy")
    handle.remove()
    assert passes == []


def test_a_series_named_twice_is_one() -> None:
    result = draw(whole, counts=[1], series=["top", "random", "top"], seeds=2)
    assert [(point.series, point.draws) for point in result.points] == [("top", 1), ("random", 2)]


def test_counts_are_refused_before_a_function_ranks() -> None:
    chosen = whole()

    def never(model: object, task: object) -> HeadScores:
        raise AssertionError("ranked")

    with pytest.raises(HeadcountError, match="Cannot choose 99 heads"):
        curve(chosen.model, chosen.task, never, counts=[99])
