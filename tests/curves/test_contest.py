"""The contest of rankings: areas on planted circuits, cost beside quality, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_circuit import Circuit, plant_circuit

from headcount import HeadcountError, Lab, rank
from headcount.curves.contest import (
    RANDOM_ORDERS,
    Contest,
    ContestRequest,
    contest,
    contest_counts,
    contestant,
)
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
