"""The study `teamwork`: on planted circuits, where we know which heads back each other up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import plant
from planted_circuit import Circuit, plant_circuit
from studies.test_costs import check_values
from studies.test_heads_kept import write

from headcount import HeadcountError, Lab, Store, Task
from headcount.curves.teamwork import RANDOM, WHOLE, HeadsOff, Losses
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.stats import Resampling
from headcount.studies.run import study_cost
from headcount.studies.teamwork.study import KIND
from headcount.studies.verify import verify

CIRCUITS: dict[str, dict[str, Any]] = {
    "usual": {},
    "pairs alone": {"chain": (), "negative": ("0.0", "3.1"), "seed": 1},
    "chain alone": {"pairs": (), "seed": 2},
}
FEW: dict[str, Any] = {"top": 8, "n": 24, "ranked": 12, "validated": 12, "seeds": 3}


def run(model: Model, *files: str, lab: Lab | None = None, **settings: Any) -> Study:
    config = KIND.configure("full", tasks=files, **{**FEW, "ablation": "zero", **settings})
    return KIND.describe([model], config).carry_out(lab or Lab(store=None, progress=False))


@pytest.fixture(scope="module", params=CIRCUITS)
def case(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Circuit, Study]:
    circuit = plant_circuit(**CIRCUITS[request.param], n=96)
    folder = tmp_path_factory.mktemp("task")
    return circuit, run(circuit.model, write(circuit.task, folder / "planted.jsonl"))


@pytest.fixture(scope="module")
def usual() -> Circuit:
    return plant_circuit(n=96)


@pytest.fixture
def file(usual: Circuit, tmp_path: Path) -> str:
    return write(usual.task, tmp_path / "planted.jsonl")


def judged(study: Study, verdict: str) -> set[frozenset[str]]:
    rows = study.tables["Pairs"]
    return {frozenset((row["one"], row["other"])) for row in rows if row["verdict"] == verdict}


def together(heads: Any) -> set[frozenset[str]]:
    names = list(map(str, heads))
    return {frozenset((a, b)) for a in names for b in names if a < b}


def test_exactly_the_planted_pairs_back_each_other_up(case: tuple[Circuit, Study]) -> None:
    circuit, study = case
    assert {str(head) for head in circuit.members} <= {
        name for pair in judged(study, "additive") for name in pair
    }
    assert judged(study, "backup") == {frozenset(map(str, pair)) for pair in circuit.pairs}
    assert judged(study, "overlap") == together(circuit.chain)
    assert judged(study, "undecided") == set()
    backup, overlap, relief = study.claims[:3]
    assert backup.verdict == ("supported" if circuit.pairs else "refuted")
    assert overlap.verdict == ("supported" if circuit.chain else "refuted")
    assert relief.verdict == "not tested"


def test_a_pair_repairs_all_that_one_of_it_would_cost(case: tuple[Circuit, Study]) -> None:
    circuit, study = case
    partner = {str(a): str(b) for pair in circuit.pairs for a, b in (pair, pair[::-1])}
    whole = circuit.effect(circuit.model.layout)
    for row in study.tables["Self-repair"]:
        assert row["repairers"] == partner.get(row["head"], "")
        if row["repairers"]:
            assert row["loss"] == pytest.approx(0, abs=1e-3)
            assert row["loss without repairers"] == pytest.approx(3 / whole, abs=1e-3)
            assert row["share repaired"] == pytest.approx(1, abs=1e-2)
            assert row["by others"] == pytest.approx(0, abs=1e-3)
        else:
            assert math.isnan(row["repaired"])
    expected = ["supported"] * 2 if circuit.pairs else ["not tested"] * 2
    assert [claim.verdict for claim in study.claims[-2:]] == expected


def test_sets_cost_what_is_planted_and_random_heads_add_up(case: tuple[Circuit, Study]) -> None:
    circuit, study = case
    whole = circuit.effect(circuit.model.layout)
    layout, best = set(circuit.model.layout), study.facts["best"]
    (heads,) = best.values()
    check_values(study)
    top = [circuit.model.layout.parse(name) for name in heads]
    rows = {(row["series"], row["count"]): row for row in study.tables["Sets"]}
    assert [count for series, count in rows if series == "top"] == [1, 2, 3, 5, 8]
    for count in (2, 3, 5, 8):
        lost = [1 - circuit.effect(layout - {*off}) / whole for off in (top[:count],)]
        single = sum(1 - circuit.effect(layout - {head}) / whole for head in top[:count])
        row = rows["top", count]
        assert row["joint loss"] == pytest.approx(lost[0], abs=1e-3)
        assert row["sum of single losses"] == pytest.approx(single, abs=1e-3)
        assert row["difference"] == pytest.approx(lost[0] - single, abs=1e-3)
        if single > 0.1:
            assert row["ratio"] == pytest.approx(lost[0] / single, abs=1e-2)
        assert rows["random", count]["difference"] == pytest.approx(0, abs=1e-3)
        assert rows["random", count]["draws"] == 3


def test_means_over_corrupted_prompts_find_the_same_pairs(usual: Circuit, file: str) -> None:
    """Means say a little of the answer, and four templates tell little, so a verdict may wait."""
    study = run(usual.model, file, ablation="mean")
    rows = sorted(study.tables["Pairs"], key=lambda row: -row["interaction"])
    pairs = {frozenset(map(str, pair)) for pair in usual.pairs}
    assert {frozenset((row["one"], row["other"])) for row in rows[:2]} == pairs
    assert rows[1]["interaction low"] > 0.1
    assert rows[2]["interaction high"] < 0.01
    backup = study.claims[0]
    assert backup.verdict == "undecided"
    assert 0.05 < backup.detectable < 0.5
    assert "corrupted prompts of the ranking split" in study.captions["figure"]


def test_the_folder_can_be_verified(usual: Circuit, file: str, tmp_path: Path) -> None:
    study = run(usual.model, file)
    names = {path.name for path in study.save(tmp_path / "out", "headcount run teamwork")}
    assert names >= {"figure.png", "pairs.csv", "sets.csv", "self-repair.csv", "heads.csv"}
    found = verify(tmp_path / "out")
    assert found.differences == ()
    assert found.left_out == ()
    assert found.numbers > 400
    path = tmp_path / "out" / "pairs.csv"
    path.write_text(path.read_text().replace("additive", "backup", 1))
    assert "verdict" in verify(tmp_path / "out").differences[0]
    facts = json.loads((tmp_path / "out" / "run.json").read_text())["facts"]
    assert len(facts["random"][file]) == 3
    assert not {*facts["best"][file]} & {*facts["random"][file][0]}


def test_the_cost_is_bounded_and_a_second_run_has_nothing_left(
    usual: Circuit, file: str, tmp_path: Path
) -> None:
    settings = {**FEW, "tasks": (file,), "ablation": "zero", "preset": "full"}
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        ahead = study_cost("teamwork", usual.model, lab=lab, **settings)
        assert store.summary() == []
        run(usual.model, file, lab=lab)
        assert lab.measured["value"] <= ahead.count("value") <= 1.6 * lab.measured["value"]
        again = study_cost("teamwork", usual.model, lab=lab, **settings)
        assert (again.tokens, again.count("value")) == (0, 0)
        # One more head: what the eight cost alone and in pairs is known.
        more = study_cost("teamwork", usual.model, lab=lab, **{**settings, "top": 7})
        assert more.count("value") < ahead.count("value") / 3


def at_chance(task: Task) -> Task:
    return replace(
        task,
        examples=tuple(
            replace(e, id=f"w{e.id}", target=e.foils[0], foils=(e.target,)) for e in task
        ),
    )


def test_a_task_at_chance_is_left_out_by_name(usual: Circuit, file: str, tmp_path: Path) -> None:
    wrong = write(at_chance(usual.task), tmp_path / "wrong.jsonl")
    study = run(usual.model, file, wrong)
    assert len(study.claims) == 7
    assert all("at chance on wrong, which is left out" in claim.reason for claim in study.claims)
    assert {row["task"] for row in study.tables["Pairs"]} == {file}
    assert any(note.startswith("wrong is left out of claims") for note in study.notes)
    assert "left out: wrong" in study.captions["figure"]
    alone = run(usual.model, wrong)
    # Without an effect no head works against the answer or has a repairer: nothing to test there.
    assert {claim.verdict for claim in alone.claims} == {"not comparable", "not tested"}
    assert all("at chance on wrong" in claim.reason for claim in alone.claims)
    assert alone.figures == {}
    alone.save(tmp_path / "out")
    assert verify(tmp_path / "out").differences == ()


def losses(tables: Mapping[HeadsOff, Any]) -> Losses:
    arrays = {label: np.atleast_2d(np.array(table, float)) for label, table in tables.items()}
    return Losses(Resampling(range(arrays[WHOLE].shape[1])), arrays)


def test_losses_are_ratios_of_means_and_interactions_are_symmetric() -> None:
    found = losses(
        {
            WHOLE: [4.0, 2.0, 6.0],
            HeadsOff(places=(0,)): [4.0, 2.0, 3.0],
            HeadsOff(places=(1,)): [3.0, 2.0, 4.0],
            HeadsOff(places=(0, 1)): [0.0, 0.0, 0.0],
            HeadsOff(RANDOM, (0,)): [[4.0, 2.0, 6.0], [2.0, 2.0, 2.0]],
        }
    )
    assert found.of(0).value == pytest.approx(1 - 9 / 12)
    assert found.of(0, series=RANDOM).value == pytest.approx(1 - 9 / 12)
    assert found.beyond((1, 0)).value == pytest.approx(1 - 3 / 12 - 3 / 12)
    assert found.repaired(0, (1,)).value == pytest.approx(found.beyond((0, 1)).value)
    assert found.without(0, (1,)).value == pytest.approx(1 - 3 / 12)
    assert found.repaired(0, (1,)).interval.known


def test_a_pair_whose_interaction_may_be_none_is_no_backup() -> None:
    """Its mean is beyond the margin, but one prompt alone makes it."""
    tables = {HeadsOff(places=(0,)): [1.0] * 6, HeadsOff(places=(1,)): [1.0] * 6}
    whole = {WHOLE: [1.0] * 6}
    one = losses({**whole, **tables, HeadsOff(places=(0, 1)): [1, 1, 1, 1, 1, -1]})
    every = losses({**whole, **tables, HeadsOff(places=(0, 1)): [0.6, 0.7, 0.6, 0.7, 0.6, 0.6]})
    assert one.beyond((0, 1)).value > 0.3
    assert one.roles(2).repairers == {}
    assert every.roles(2).repairers == {0: (1,), 1: (0,)}


def test_a_head_that_works_against_the_answer_is_no_backup() -> None:
    """Off alone it raises the metric; once the other is off, it has nothing to hold back."""
    found = losses(
        {
            WHOLE: [1.0] * 4,
            HeadsOff(places=(0,)): [0.7] * 4,
            HeadsOff(places=(1,)): [1.2] * 4,
            HeadsOff(places=(0, 1)): [0.7] * 4,
        }
    )
    roles = found.roles(2)
    assert roles.against == (1,)
    assert roles.repairers == {0: (1,)}
    assert found.beyond((0, 1)).value == pytest.approx(0.2)
    assert found.repaired(0, (1,)).value == pytest.approx(0.2)


def test_a_planted_negative_head_is_named_and_relieves_nobody(usual: Circuit, file: str) -> None:
    """It writes the same whatever the others do, so nothing of what they did is repaired."""
    study = run(usual.model, file, ranking="random")
    (against,) = study.facts["against"].values()
    assert against == ["2.1"]
    relief = study.claims[2]
    assert relief.verdict == "refuted"
    assert "2.1" in relief.reason
    (row,) = (row for row in study.tables["Self-repair"] if row["against"] == "yes")
    assert row["loss"] == pytest.approx(-1 / 9, abs=1e-3)


def test_bad_settings_are_refused_in_a_sentence(usual: Circuit, file: str, tmp_path: Path) -> None:
    bare = replace(usual.task, examples=tuple(replace(e, corrupted=None) for e in usual.task))
    without = write(bare, tmp_path / "bare.jsonl")
    unpaired = write(
        replace(usual.task, examples=tuple(replace(e, foils=()) for e in usual.task)),
        tmp_path / "unpaired.jsonl",
    )
    for settings, words in (
        ({"tasks": ()}, "at least one task"),
        ({"tasks": ("ioi", "ioi")}, "each of them once"),
        ({"tasks": ("iio",)}, 'Did you mean "ioi"'),
        ({"tasks": (without,)}, "has no corrupted prompt: choose a task that has them"),
        ({"tasks": (unpaired,)}, "has no foil, and the study teamwork needs one"),
        ({"top": 1}, "at least 2, not 1"),
        ({"seeds": 1}, "seeds of at least 2"),
        ({"validated": 0}, "validated=0"),
        ({"ranking": "atribution"}, "attribution"),
        ({"ablation": "none"}, 'no ablation "none"'),
        ({"metric": "accuracy"}, "adds effects of heads up, which accuracy does not allow"),
        ({"metric": "mass_difference"}, "which mass_difference does not allow"),
    ):
        with pytest.raises(HeadcountError, match=words):
            KIND.configure("quick", **settings)
    with pytest.raises(HeadcountError, match="9 heads with as many others, and circuit-0 has only"):
        run(usual.model, file, top=9)
    few = write(usual.task.subset(7), tmp_path / "few.jsonl")
    with pytest.raises(HeadcountError, match="teamwork needs two of each: give it more prompts"):
        run(usual.model, few)
    run(usual.model, without)  # zero ablation needs no corrupted prompts


def test_heads_that_add_up_are_said_to_do_so(tmp_path: Path) -> None:
    """Nothing in this model backs anything up, and nothing needs anything."""
    planted = plant(["0.1", "1.0", "2.0"], ["1.2"], n=96)
    study = run(planted.model, write(planted.task, tmp_path / "sum.jsonl"), top=4)
    assert {row["verdict"] for row in study.tables["Pairs"]} == {"additive"}
    assert [claim.verdict for claim in study.claims] == [
        *["refuted"] * 2,
        "not tested",
        *["refuted"] * 2,
        *["not tested"] * 2,
    ]
