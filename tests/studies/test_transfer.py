"""The study `transfer`: on a planted model with two tasks, and on matrices made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from planted_two import TwoTasks, plant_two
from studies.test_heads_kept import write

from headcount import HeadcountError, Lab, Task
from headcount.claims import Claim
from headcount.curves.transfer import MATCHED, TOP, WHOLE, WITHOUT
from headcount.metrics import get_metric
from headcount.report.study import Study
from headcount.stats import Estimate, constant
from headcount.studies.transfer.estimates import estimate
from headcount.studies.transfer.figure import draw
from headcount.studies.transfer.panels import (
    COLUMNS,
    SHARED,
    interaction,
    specificity,
    transfer_of,
)
from headcount.studies.transfer.study import KIND, chance_level, own_settings, task_keys
from headcount.studies.verify import verify
from headcount.tasks import FUNCTIONS
from headcount.value_table import ValueTable


def run(two: TwoTasks, folder: Path, *more: Task, **settings: Any) -> Study:
    """The study on the planted tasks: as files that a user names."""
    tasks = {"one": two.one, "two": two.two, **{f"more-{i}": task for i, task in enumerate(more)}}
    files = tuple(write(task, folder / f"{name}.jsonl") for name, task in tasks.items())
    chosen: dict[str, Any] = {"counts": (3,), "seeds": 3, "metric": "accuracy", **settings}
    description = KIND.describe([two.model], KIND.configure("full", tasks=files, **chosen))
    return description.carry_out(Lab(store=None, progress=False))


def matrix(study: Study, column: str = "loss") -> list[list[float]]:
    rows = study.tables["Transfer"]
    many = round(len(rows) ** 0.5)
    return np.reshape([row[column] for row in rows], (many, many)).tolist()


def verdicts(claims: Sequence[Claim]) -> list[str]:
    return [claim.verdict for claim in claims]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Each task has three heads of its own."""
    two = plant_two(one=["0.1", "0.5", "1.4"], two=["2.0", "2.3", "3.6"])
    return run(two, tmp_path_factory.mktemp("apart"))


@pytest.fixture(scope="module")
def sharing() -> TwoTasks:
    """Each task has two heads of its own, and both need the head 1.2."""
    return plant_two(one=["0.1", "0.5"], two=["2.0", "2.3"], shared=["1.2"])


@pytest.fixture(scope="module")
def shared(sharing: TwoTasks, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return run(sharing, tmp_path_factory.mktemp("shared"))


def test_heads_of_one_task_are_found_to_be_of_this_task_alone(apart: Study) -> None:
    assert matrix(apart) == [[1, 0], [0, 1]]
    assert matrix(apart, "layer-matched") == [[0, 0], [0, 0]]
    for row in apart.tables["Specificity"]:
        assert row["specificity"] == row["difference"] == 1
        assert row["layer-matched"] == 0
        assert np.isnan(row["interaction"])  # two tasks have no rest to compare with
    over_all, one, two, *_, elsewhere, more = apart.claims
    assert verdicts([over_all, one, two]) == ["supported"] * 3
    assert one.claim.startswith("one: ")
    assert verdicts([elsewhere, more]) == ["not tested"] * 2  # no heads are shared
    assert [row["share"] for row in apart.tables["Overlap"]] == [0]
    assert "Without shared heads" not in apart.tables


def test_a_shared_head_makes_both_sets_matter_everywhere(shared: Study) -> None:
    assert matrix(shared) == [[1, 1], [1, 1]]
    assert [row["specificity"] for row in shared.tables["Specificity"]] == [0, 0]
    assert shared.claims[0].verdict == "refuted"
    (overlap,) = shared.tables["Overlap"]
    assert overlap["share"] == pytest.approx(1 / 3)
    assert overlap["shared heads"] == "1.2"


def test_without_the_shared_head_each_set_is_of_its_task(shared: Study) -> None:
    rows = shared.tables["Without shared heads"]
    assert len(rows) == 2
    for row in rows:
        assert row["shared heads"] == "1.2"
        assert (row["loss on the other"], row["without shared heads"]) == (1, 0)
        assert (row["own loss"], row["own loss without shared heads"]) == (1, 1)
        assert (row["spared"], row["given up"]) == (1, 0)
    assert verdicts(shared.claims[-2:]) == ["supported", "supported"]


def test_a_metric_of_logits_tells_how_much_is_shared(sharing: TwoTasks, tmp_path: Path) -> None:
    """The logit difference is a sum over three heads, one of which both tasks need."""
    study = run(sharing, tmp_path, metric="logit_difference")
    third = pytest.approx(1 / 3, abs=1e-4)
    assert np.allclose(matrix(study), [[1, 1 / 3], [1 / 3, 1]], atol=1e-4)
    for row in study.tables["Specificity"]:
        assert row["difference"] == pytest.approx(2 / 3, abs=1e-4)
    assert verdicts(study.claims[:3]) == ["supported"] * 3
    for row in study.tables["Without shared heads"]:
        assert (row["spared"], row["given up"]) == (third, third)
    assert verdicts(study.claims[-2:]) == ["supported", "refuted"]


def test_counts_are_averaged(sharing: TwoTasks, tmp_path: Path) -> None:
    study = run(sharing, tmp_path, metric="logit_difference", counts=(1, 3))
    own = [matrix(study)[i][i] for i in range(2)]
    assert own == pytest.approx([(1 / 3 + 1) / 2] * 2, abs=1e-4)
    assert "mean over these counts" in study.captions["figure"]


def test_the_folder_can_be_verified(shared: Study, tmp_path: Path) -> None:
    names = {path.name for path in shared.save(tmp_path, "headcount run transfer")}
    assert names >= {"figure.png", "overlap.png", "transfer.csv", "specificity.csv", "overlap.csv"}
    found = verify(tmp_path)
    assert found.differences == ()
    assert found.numbers > 100
    assert found.left_out == ()
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["settings"]["counts"] == [0, 3]
    assert len(shared.scores) == 2
    path = tmp_path / "specificity.csv"
    path.write_text(path.read_text().replace("0.0", "0.5", 1))
    assert verify(tmp_path).differences != ()


def test_a_task_at_chance_is_a_grey_column_that_no_claim_counts(
    sharing: TwoTasks, tmp_path: Path
) -> None:
    wrong = replace(
        sharing.one,
        examples=tuple(
            replace(e, id=f"w{e.id}", target=e.foils[0], foils=(e.target,)) for e in sharing.one
        ),
    )
    study = run(sharing, tmp_path, wrong)
    losses = np.array(matrix(study))
    assert np.isnan(losses[:, 2]).all()
    assert np.isfinite(losses[2, :2]).all()  # its heads are tested on the others all the same
    assert len(study.tables["Specificity"]) == 2
    over_all, _one, _two, third, *_ = study.claims
    assert "at chance on more-0, which is left out" in over_all.reason
    assert verdicts([over_all, third]) == ["refuted", "not comparable"]
    assert "at chance" in third.reason
    assert "left out" not in third.reason
    heat = study.figures["figure"].axes[0]
    assert [text.get_text() for text in heat.get_xticklabels()][2] == "more-0 (at\nchance)"
    assert [text.get_text() for text in heat.texts][2::3] == ["–"] * 3
    assert "left out: more-0" in study.captions["figure"]
    assert any("more-0: The whole model is at chance" in note for note in study.notes)


def test_with_one_task_above_chance_nothing_is_comparable() -> None:
    study = made({"retrieval": 1.0, "math": 0.05}, lambda *_: 0.0, chance=0.2)
    assert verdicts(study.claims[:3]) == ["not comparable"] * 3
    assert "no two tasks are left" in study.claims[0].reason
    assert "Specificity" not in study.tables
    assert verdicts(study.claims[3:]) == ["not tested"] * 4


ITEMS = 160


def made(whole: Mapping[str, float], loss: Any, *, chance: float = 0.0, draws: int = 4) -> Any:
    """Estimates of a matrix: `loss(series, ranked, tested)` is the share of right answers lost."""
    values = ValueTable(COLUMNS, SHARED)
    keys = list(whole)
    for key in keys:
        about = {"model": "made", "task": key, "metric": "exact_match"}
        names = [(f"{i}", f"t{i % 20}", f"c{i}") for i in range(ITEMS)]
        values.name_examples(names, model="made", task=key)
        order = np.random.default_rng(crc32(key.encode())).permutation(ITEMS)

        def put(
            share: float, about: dict[str, Any] = about, order: Any = order, **how: Any
        ) -> None:
            rows = [order < round(share * ITEMS)] * (draws if how["series"] == MATCHED else 1)
            values.put(np.array(rows) * 1.0, **about, **{"without": "", **how})

        put(whole[key], series=WHOLE, ranked="", count=0)
        for ranked in keys:
            for series in (TOP, MATCHED):
                left = whole[key] * (1 - loss(series, ranked, key))
                put(left, series=series, ranked=ranked, count=2)
        for other in set(keys) - {key}:
            put(whole[key], series=WITHOUT, ranked=other, without=key, count=2)
            put(0.0, series=WITHOUT, ranked=key, without=other, count=2)
    level = {"level": chance, "how": "always giving the commonest answer"}
    facts = {
        "model": "made",
        "total": 100,
        "tasks": {key: FUNCTIONS[key].name for key in keys},
        "levels": {key: FUNCTIONS[key].level for key in keys},
        "ranking": "attribution",
        "counts": [2],
        "seeds": draws,
        "metric": {"key": "exact_match", "name": "Accuracy (exact match)", "binary": True},
        "chance": dict.fromkeys(keys, level),
        "best": {key: {"2": [f"{i}.0", f"{i}.1"]} for i, key in enumerate(keys)},
    }
    found = estimate(values, facts)
    about = {"heads": [10] * 10, "stored": "Q4_1", "dtype": "float32"}
    figures, _ = draw(values, facts, found, {"made": about})
    assert set(figures) == {"figure", "overlap"}
    return found


def feeding(series: str, ranked: str, tested: str) -> float:
    """Heads of low-level functions cost high-level ones half of what they cost their own task."""
    if series == MATCHED:
        return 0.05
    if ranked == tested:
        return 0.8
    low, high = (FUNCTIONS[key].level for key in (ranked, tested))
    return 0.5 if (low, high) == ("low", "high") else 0.1


def test_low_level_heads_that_feed_high_level_functions_are_seen() -> None:
    whole = dict.fromkeys(("retrieval", "syntactic", "math", "inference"), 1.0)
    claims = made(whole, feeding).claims
    cost, direction = claims[5:7]
    assert cost.measured == pytest.approx(0.45, abs=0.02)
    assert direction.measured == pytest.approx(0.4, abs=0.02)
    assert verdicts([cost, direction]) == ["supported", "supported"]
    assert cost.published == "low-level functions feed high-level ones"
    even = made(whole, lambda s, r, t: 0.8 if s == TOP and r == t else 0.05).claims
    assert verdicts(even[5:7]) == ["refuted", "refuted"]
    assert verdicts(even[:5]) == ["supported"] * 5


def test_losses_are_shares_of_what_can_be_lost_and_at_most_all_of_it() -> None:
    rows = made({"retrieval": 0.8, "math": 1.0}, feeding, chance=0.4).tables["Transfer"]
    found = {(row["ranked on"], row["tested on"]): row["loss"] for row in rows}
    assert found["math", "math"] == 1  # 0.2 is left, and chance is 0.4
    assert found["retrieval", "math"] == pytest.approx(0.5 / 0.6, abs=0.02)
    assert found["math", "retrieval"] == pytest.approx(0.08 / 0.4, abs=0.02)


def test_draws_for_one_ranking_are_the_same_on_every_task() -> None:
    """So the mean over tasks is no surer of the draws than a single task is."""
    table = np.array([[0.0] * 40, [0.5] * 40, [1.0] * 40])
    values = ValueTable(COLUMNS, SHARED)
    for key in ("retrieval", "math"):
        values.name_examples(
            [(f"{i}", f"t{i}", f"c{i}") for i in range(40)], model="made", task=key
        )
        about = {"model": "made", "task": key, "metric": "exact_match", "without": ""}
        values.put(np.ones(40), **about, series=WHOLE, ranked="", count=0)
        values.put(table, **about, series=MATCHED, ranked="math", count=2)
    facts = {
        "model": "made",
        "tasks": {"retrieval": "Retrieval", "math": "Math"},
        "counts": [2],
        "metric": {"key": "exact_match", "name": "Accuracy", "binary": True},
        "chance": {key: {"level": 0.0, "how": "guessing"} for key in ("retrieval", "math")},
    }
    transfer = transfer_of(values, facts)
    one, other = (transfer.matched("math", key) for key in ("retrieval", "math"))
    both = (one + other) * 0.5
    error = one.interval.error
    assert error > 0.15
    assert both.interval.error == pytest.approx(error, rel=0.01)
    assert (one - other).interval.error < error / 8


def test_an_additive_matrix_has_no_interaction() -> None:
    """A strong ranking and a frail task are no specificity: their sum explains all losses."""
    ranking = {"a": 0.5, "b": 0.1, "c": 0.0, "d": 0.2}
    frailty = {"a": 0.4, "b": 0.0, "c": 0.1, "d": 0.2}

    def cell(one: str, other: str) -> Estimate:
        return constant(ranking[one] + frailty[other])

    others = ["b", "c", "d"]
    found = interaction(cell, "a", others)
    assert found is not None
    assert found.value == pytest.approx(0)
    assert specificity(cell, "a", others).value > 0.3
    own = {("a", "a"): 0.7}
    more = interaction(lambda o, t: constant(own.get((o, t), 0.0)), "a", others)
    assert more is not None
    assert more.value == pytest.approx(0.7)


def test_bad_settings_are_refused_in_a_sentence(sharing: TwoTasks, tmp_path: Path) -> None:
    for settings, words in (
        ({"tasks": ("math",)}, "name at least two tasks, not math"),
        ({"tasks": ("math", "math")}, "name at least two tasks"),
        ({"tasks": ()}, "not none"),
        ({"tasks": ("math", "maths")}, 'no task "maths"'),
        ({"tasks": ("math", str(tmp_path / "none.jsonl"))}, "none.jsonl"),
        ({"ranking": "atribution"}, "attribution"),
        ({"metric": "similarity"}, "what similarity is by chance"),
        ({"counts": (0,)}, "above 0"),
        ({"seeds": 1}, "at least 2 draws"),
        ({"task_settings": {"shotz": 2}}, "shotz"),
    ):
        with pytest.raises(HeadcountError, match=words):
            KIND.configure("quick", **settings)
    with pytest.raises(HeadcountError, match="has only 32 heads: choose smaller counts"):
        run(sharing, tmp_path, counts=(17,))
    with pytest.raises(HeadcountError, match="this model has 32"):
        run(sharing, tmp_path, counts=(40,))


def test_all_stands_for_the_eight_functions_and_settings_go_where_they_belong() -> None:
    assert task_keys(("all", "ioi", "math")) == (*FUNCTIONS, "ioi")
    assert own_settings("math", {"shots": 2, "letters": "x"}) == {"shots": 2}
    assert own_settings("mine.jsonl", {"shots": 2, "chat": True}) == {"chat": True}


def test_chance_by_log_probability_knows_the_answers_but_not_the_question(
    sharing: TwoTasks,
) -> None:
    known = chance_level(get_metric("logprob"), sharing.one)
    shares = np.unique([e.target for e in sharing.one], return_counts=True)[1] / len(sharing.one)
    assert known.level == pytest.approx((shares * np.log(shares)).sum())
    assert chance_level(get_metric("accuracy"), sharing.one).level == pytest.approx(shares.max())
