"""The contest of rankings: areas on planted circuits, cost beside quality, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_circuit import Circuit, plant_circuit

from headcount import Head, HeadcountError, HeadLayout, HeadScores, Lab, rank
from headcount.curves.contest import (
    Contest,
    ContestRequest,
    contest,
    contest_counts,
    contestant,
    metric_for,
)
from headcount.curves.contest_tables import RANDOM_ORDERS
from headcount.curves.truth import Truth
from headcount.metrics import get_metric
from headcount.report.contest_study import contest_study
from headcount.studies.verify import verify

QUIET = Lab(store=None, progress=False)
NAMES = ("ablation", "denoising", "greedy")


@pytest.fixture(scope="module")
def circuit() -> Circuit:
    return plant_circuit(n=48)


@pytest.fixture(scope="module")
def found(circuit: Circuit) -> Contest:
    return contest(circuit.model, circuit.task, NAMES, metric="logit_difference", lab=QUIET)


def rows_of(found: Contest, axis: str = "linear") -> dict[str, dict[str, Any]]:
    return {row["ranking"]: row for row in found.areas if row["axis"] == axis}


def test_the_ranking_that_finds_the_heads_wins(found: Contest) -> None:
    rows = rows_of(found)
    assert list(rows) == [*NAMES, RANDOM_ORDERS]
    best = rows["greedy"]
    for name in ("ablation", "denoising", RANDOM_ORDERS):
        assert best["CPR"] > rows[name]["CPR"] + 0.05
        assert best["masking area"] > rows[name]["masking area"]
    # All heads do less than the right ones, so to keep only helpful heads is not to do what all do.
    assert best["CMD"] < min(rows["ablation"]["CMD"], rows[RANDOM_ORDERS]["CMD"])
    made_for = {name: row["made_for"] for name, row in rows.items()}
    assert made_for == {
        "ablation": "mask",
        "denoising": "keep",
        "greedy": "keep, mask",
        RANDOM_ORDERS: "",
    }
    assert best["CPR minus random low"] > 0
    assert best["masking area minus random low"] > 0
    for area in ("CPR", "CMD", "masking area"):
        assert best[f"{area} low"] <= best[area] <= best[f"{area} high"]
    assert math.isnan(rows[RANDOM_ORDERS]["passes"])


def test_areas_are_those_of_the_planted_effects(circuit: Circuit, found: Contest) -> None:
    layout, counts = circuit.model.layout, found.values.names("count")
    scores = {goal: found.scores[circuit.task.name, "greedy", goal] for goal in ("keep", "mask")}
    every = circuit.effect(layout)
    kept = [circuit.effect(scores["keep"].top(count)) / every for count in counts]
    gone = [1 - circuit.effect(set(layout) - {*scores["mask"].top(k)}) / every for k in counts]
    x = np.array(counts) / layout.total
    row = rows_of(found)["greedy"]
    assert row["CPR"] == pytest.approx(np.trapezoid(kept, x), abs=1e-3)
    assert row["CMD"] == pytest.approx(np.trapezoid(np.abs(1 - np.array(kept)), x), abs=1e-3)
    assert row["masking area"] == pytest.approx(np.trapezoid(gone, x), abs=1e-3)


def test_cost_is_told_in_passes_over_the_ranking_split(found: Contest) -> None:
    passes = {name: row["passes"] for name, row in rows_of(found).items()}
    # A pass for each of 16 heads, and one for the model that they start from: it is recorded once
    # more, so that passes start at the first gated head.
    assert 16 <= passes["ablation"] <= 18
    assert 16 <= passes["denoising"] <= 19
    assert passes["greedy"] > 5 * passes["ablation"]  # for both goals


def test_a_contest_is_a_result_that_can_be_verified(
    circuit: Circuit, found: Contest, tmp_path: Path
) -> None:
    study = contest_study(found, circuit.model, {"metric": "logit_difference"})
    study.save(tmp_path / "out")
    told = verify(tmp_path / "out")
    assert told.differences == ()
    assert told.numbers > 300
    text = (tmp_path / "out" / "areas.csv").read_text()
    (tmp_path / "out" / "areas.csv").write_text(text.replace("0.", "1.", 1))
    assert "areas.csv, row 1" in verify(tmp_path / "out").differences[0]
    names = {path.stem for path in (tmp_path / "out" / "scores").glob("*.json")}
    assert names == {"ablation", "denoising", "greedy-keep", "greedy-mask"}
    assert "greedy" in str(found)
    assert found.to_frame()["CPR"].notna().all()


def test_several_tasks_compete_side_by_side(circuit: Circuit) -> None:
    other = replace(circuit.task, name="other", examples=circuit.task.examples[::2])
    how: dict[str, Any] = {"counts": [5], "seeds": 2, "metric": "logit_difference", "lab": QUIET}
    both = contest(circuit.model, [circuit.task, other], ["attribution"], **how)
    assert [row["task"] for row in both.areas] == [circuit.task.name] * 4 + ["other"] * 4
    assert len(both.figure().axes) == 8


def test_one_ranking_for_both_goals_is_made_once(circuit: Circuit) -> None:
    def request(name: str) -> ContestRequest:
        every = {name: contestant(circuit.model, circuit.task, name, metric="logit_difference")}
        return ContestRequest(circuit.model, circuit.task, every, get_metric("logit_difference"))

    assert request("ablation").contestants["ablation"]["keep"].name == "ablation"
    single, double = (request(name).contestants[name] for name in ("ablation", "greedy"))
    assert single["keep"] is single["mask"]
    assert double["keep"] is not double["mask"]
    # The forecast is an upper bound of what is measured.
    ahead = Lab(store=None).cost([request("greedy")])
    lab = Lab(store=None, progress=False)
    contest(circuit.model, circuit.task, ["greedy"], metric="logit_difference", lab=lab)
    assert lab.measured["value"] <= ahead.count("value")


def test_counts_go_from_none_to_all_heads() -> None:
    assert contest_counts(1) == [0, 1]
    assert contest_counts(2) == [0, 1, 2]
    for total in (3, 16, 270, 1024):
        counts = contest_counts(total)
        assert counts == sorted({*counts})
        assert counts[:3] == [0, 1, 2]
        assert counts[-1] == total
        assert max(np.diff(counts)) <= total / 10 + 1


@pytest.mark.parametrize(
    ("rankings", "settings", "said"),
    [
        ([], {}, "at least one"),
        (["ablation", "ablation"], {}, "each ranking of a contest once"),
        (["ablaton"], {}, 'Did you mean "ablation"'),
        (["ablation"], {"counts": [17]}, "Cannot choose 17 heads"),
        (["ablation"], {"ablation": "zeros"}, 'no ablation "zeros"'),
    ],
)
def test_contests_of_no_use_are_refused(
    circuit: Circuit, rankings: list[str], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(HeadcountError, match=said):
        contest(circuit.model, circuit.task, rankings, lab=QUIET, **settings)
    with pytest.raises(HeadcountError, match="same name"):
        contest(circuit.model, [circuit.task] * 2, ["ablation"], lab=QUIET)


def test_sets_that_are_not_nested_are_kept_and_masked(circuit: Circuit) -> None:
    made = rank(circuit.model, circuit.task, "attribution", lab=QUIET)
    sets = np.zeros((2, 16), dtype=bool)
    sets[0, 3], sets[1, [7, 9]] = True, True
    scores = replace(made, sets=sets)
    every = {"own": {"keep": scores, "mask": scores}}
    request = ContestRequest(
        circuit.model, circuit.task, every, get_metric("logprob"), counts=[1, 2]
    )
    gates = {entry.label: entry.gates for entry in request.entries(request._ready(None))}
    assert np.flatnonzero(gates["own", "keep", 1]).tolist() == [3]
    assert np.flatnonzero(gates["own", "keep", 2]).tolist() == [7, 9]
    assert np.flatnonzero(gates["own", "mask", 2] == 0).tolist() == [7, 9]


def test_heads_needed_stand_beside_those_of_random_orders(circuit: Circuit) -> None:
    how: dict[str, Any] = {"metric": "logit_difference", "seeds": 8, "lab": QUIET}
    found = contest(circuit.model, circuit.task, ["greedy", "random"], **how)
    rows = {row["ranking"]: row for row in found.needed}
    assert set(rows) == {"greedy", "random"}
    best = rows["greedy"]
    # The right heads do more than all heads, which include one that works against the answer.
    assert best["heads"] <= best["random orders"] <= best["of"] == 16
    assert best["ratio low"] <= best["ratio"] <= best["ratio high"]
    assert best["low together"] == best["ratio low"]  # a family of one task


def test_the_truth_about_a_circuit_tells_which_rankings_find_it(circuit: Circuit) -> None:
    how: dict[str, Any] = {"metric": "logit_difference", "counts": [5], "seeds": 0, "lab": QUIET}
    found = contest(circuit.model, circuit.task, ["ablation", "greedy"], truth=circuit.truth, **how)
    rows = {(row["ranking"], row["goal"]): row for row in found.recovery}
    for goal in ("keep", "mask"):
        right = found.scores[circuit.task.name, "greedy", goal]
        check = circuit.right_to_keep if goal == "keep" else circuit.right_to_mask
        assert check(right.top(circuit.kept))  # as many as are to be masked
        assert rows["greedy", goal]["exact"]
        assert not rows["ablation", goal]["exact"]
        assert rows["greedy", goal]["AUROC"] > rows["ablation", goal]["AUROC"]
    study = contest_study(found, circuit.model, {})
    assert len(study.tables["Recovery"]) == 4
    assert "Recovery" not in contest_study(replace(found, truth=None), circuit.model, {}).tables


def test_ties_count_half_and_of_several_right_sets_the_best_counts() -> None:
    layout = HeadLayout((2, 2))
    scores = HeadScores(layout, np.array([3.0, 1.0, 1.0, 0.0]), "by hand")
    one = Truth.of([Head(0, 0), Head(0, 1)])
    # The other order of the two heads that tie would be wrong.
    assert one.found_by(scores, "keep") == {"AUROC": 0.875, "exact": False}
    either = Truth([*one.keep, frozenset({Head(0, 0), Head(1, 0)})], one.mask)
    assert either.found_by(scores, "keep") == {"AUROC": 0.875, "exact": True}
    two = Truth([frozenset({Head(0, 0)}), frozenset({Head(1, 1)})], one.mask)
    assert two.found_by(scores, "keep") == {"AUROC": 1.0, "exact": True}
    assert two.found_by(scores, "mask")["AUROC"] == 0.875
    with pytest.raises(HeadcountError, match="at least one head for each goal"):
        Truth.of([])


def test_each_task_has_the_metric_that_suits_it(circuit: Circuit) -> None:
    task = circuit.task
    several = replace(
        task, name="several", examples=tuple(replace(e, also=(" nobody",)) for e in task)
    )
    bare = replace(task, name="bare", examples=tuple(replace(e, foils=()) for e in task))
    how: dict[str, Any] = {"metric": "auto", "counts": [5], "seeds": 1, "lab": QUIET}
    settings = {"budget-gates": {"budgets": (5,), "updates": 3}}
    found = contest(
        circuit.model, [task, several, bare], ["budget-gates"], settings=settings, **how
    )
    expected = {task.name: "logit_difference", "several": "mass_difference", "bare": "logprob"}
    assert found.facts["metric"] == expected
    for (of_task, _, _), scores in found.scores.items():
        assert scores.parameters["metric"] == expected[of_task]
        assert scores.parameters["budgets"] == [5]
    assert metric_for("choice", circuit.model, task).key == "choice"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"greedy": {"share": 0.5}}, '"greedy" is no ranking of this contest'),
        ({"share": 0.5}, "write a setting of a ranking as ablation:NAME=VALUE"),
        ({"ablation": {"share": 0.5}}, 'ablation has no setting "share"'),
    ],
)
def test_settings_of_rankings_that_do_not_exist_are_refused(
    circuit: Circuit, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(HeadcountError, match=said):
        contest(circuit.model, circuit.task, ["ablation"], settings=settings, lab=QUIET)
