"""The study `heads-kept`: on planted circuits, where the answer is known, and on the real model."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import Plant, plant
from real import bundled

from headcount import HeadcountError, Lab, Store, Task
from headcount.engine.measure import measuring as work
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.studies.heads_kept.cases import choose_prompts, make_case
from headcount.studies.heads_kept.study import KIND

NEEDED = ["0.1", "1.3", "2.0"]
SETTINGS: dict[str, Any] = {
    "rankings": ("patching", "attribution"),
    "counts": tuple(range(13)),
    "seeds": 2,
    "n": 24,
    "ranked": 8,
}


def run(models: Model | Sequence[Model], lab: Lab | None = None, **settings: Any) -> Study:
    models = [models] if isinstance(models, Model) else models
    description = KIND.describe(models, KIND.configure(**settings))
    return description.carry_out(lab or Lab(progress=False))


@pytest.fixture(scope="module")
def planted() -> Plant:
    return plant(NEEDED, n=64)


@pytest.fixture(scope="module")
def hindered() -> Plant:
    return plant(["0.0", "2.2"], interfering=["1.1"], n=64, seed=1)


def write(task: Task, path: Path) -> str:
    """The task as a file, so that the study can be told to take it."""
    fields = ("id", "prompt", "target", "foils", "corrupted", "template", "content")
    lines = [{name: asdict(example)[name] for name in fields} for example in task]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def file(planted: Plant, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(planted.task, tmp_path_factory.mktemp("task") / "planted.jsonl")


@pytest.fixture(scope="module")
def study(planted: Plant, hindered: Plant, file: str) -> Study:
    models = [planted.model, hindered.model]
    return run(models, tasks=(file,), **SETTINGS)


def needed_by(study: Study, model: str, ablation: str, order: str) -> dict[str, Any]:
    (row,) = (
        row
        for row in study.tables["Heads needed"]
        if (row["model"], row["ablation"], row["order"]) == (model, ablation, order)
    )
    return dict(row)


@pytest.mark.parametrize("per", ["task", "prompt"])
def test_the_curve_reaches_one_at_exactly_the_planted_number(
    planted: Plant, file: str, per: str
) -> None:
    settings = {**SETTINGS, "rankings": ("patching",), "per": per, "tasks": (file,)}
    case = make_case(file, planted.model, KIND.configure(**settings))
    kept = case.request.result(Lab(progress=False))
    assert {str(head) for head in kept.scores["patching"].top(3)} == {*NEEDED}
    assert list(kept.explained) == [("mean", "patching"), ("mean", "random"), ("zero", "patching")]
    for ablation in ("mean", "zero"):
        found = kept.explained[ablation, "patching"]
        np.testing.assert_allclose(found.values[3:], 1, atol=1e-5)
        assert found.values[0] == 0
        assert (found.values[:3] < 0.85).all()
        assert (found.first().value, found.last().value) == (3, 3)
    assert kept.explained["mean", "random"].counts.tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert kept.values["mean"].of(("random", 6)).shape == (2, case.request.prompts)
    assert "per position" in kept.values["mean"].ablation


def test_prompts_are_ranked_on_apart_or_themselves(planted: Plant) -> None:
    ids = lambda task: {example.id for example in task}  # noqa: E731
    measured, ranked, left_out = choose_prompts(planted.task, planted.model, 12, 8)
    tested = ids(measured.split("test"))
    assert (len(tested), len(ranked), left_out) == (12, 8, 0)
    assert ids(measured.split("ranking")) == ids(planted.task.split("ranking"))
    assert ids(ranked) <= ids(planted.task.split("ranking"))
    measured, ranked, _ = choose_prompts(planted.task, planted.model, 12, 8, per_prompt=True)
    assert ids(ranked.split("ranking")) == ids(measured.split("test")) == tested


def test_a_study_of_two_models_has_both_counts_and_the_ratio(study: Study) -> None:
    dense, sparse = "plant-0", "plant-1"
    for ablation in ("mean", "zero"):
        assert needed_by(study, dense, ablation, "patching")["first crossing"] == 3
        assert needed_by(study, sparse, ablation, "patching")["first crossing"] == 2
        assert needed_by(study, dense, ablation, "patching")["last crossing"] == 3
    assert needed_by(study, dense, "mean", "random")["first crossing"] > 3
    (ratio,) = (r for r in study.tables["Ratio of the heads needed"] if r["ablation"] == "mean")
    assert (ratio[dense], ratio[sparse], ratio["ratio"]) == (3, 2, 1.5)
    assert ratio["low"] == ratio["high"] == 1.5
    assert study.tables["Agreement of the rankings"][0]["Spearman"] > 0.5
    texts = [text.get_text() for text in study.figures["figure"].axes[0].texts]
    assert texts == ["1.5x\n3 / 2 heads"]
    wins = [
        claim for claim in study.claims if claim.claim.startswith("planted: plant-0 needs more")
    ]
    assert [claim.verdict for claim in wins] == ["supported"]


def test_interference_makes_the_curve_pass_one(study: Study) -> None:
    at = {
        row["count"]: row["value"]
        for row in study.rows
        if (row["model"], row["ranking"], row["ablation"]) == ("plant-1", "patching", "zero")
    }
    assert at[0] == 0
    assert at[12] == 1
    assert at[2] == pytest.approx(8 / 7, abs=0.03)  # two helpers of 4 without the hindrance of 1


def test_the_figure_has_the_published_form(study: Study) -> None:
    (axes,) = study.figures["figure"].axes
    assert axes.get_xlabel() == "Number of Heads Kept"
    assert axes.get_ylabel() == "Explained Effect"
    assert axes.get_xscale() == "linear"
    assert axes.get_yticks().tolist() == [0, 0.5, 1]
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [line.get_xdata().tolist() for line in dashed] == [[2, 3]]  # type: ignore[union-attr]
    (legend,) = study.figures["figure"].legends  # outside the panel, where it hides no curve
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [
        "plant-0",
        "plant-0, random order",
        "plant-1",
        "plant-1, random order",
    ]


def test_the_folder_is_whole(study: Study, tmp_path: Path) -> None:
    names = {path.name for path in study.save(tmp_path, "headcount run heads-kept")}
    assert names >= {
        "figure.png",
        "zero.png",
        "curves.csv",
        "claims.json",
        "report.html",
        "run.json",
    }
    with (tmp_path / "curves.csv").open() as table:
        rows = list(csv.DictReader(table))
    wanted = {"model", "task", "series", "metric", "count", "value", "low", "high", "n", "ablation"}
    assert wanted <= set(rows[0])
    assert {row["ablation"] for row in rows} == {"mean", "zero"}
    assert "per position within one template and length" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "run.json").read_text())["settings"]["per"] == "task"


def test_each_head_has_its_scores_and_its_effect(study: Study, planted: Plant) -> None:
    name = planted.model.name
    at = {
        f"{row['layer']}.{row['head']}": row["value"]
        for row in study.heads
        if (row["model"], row["score"]) == (name, "effect when removed")
    }
    assert len(at) == planted.model.layout.total
    assert set(sorted(at, key=at.__getitem__)[: len(NEEDED)]) == {*NEEDED}
    assert {row["model"] for row in study.heads} == {row["model"] for row in study.rows}


def test_one_model_has_no_ratio(planted: Plant, file: str) -> None:
    settings = {**SETTINGS, "rankings": ("patching",), "seeds": 0, "per": "prompt"}
    study = run(planted.model, tasks=(file,), **settings)
    assert [text.get_text() for text in study.figures["figure"].axes[0].texts] == ["3 heads"]
    assert list(study.tables) == ["Heads needed"]
    assert study.claims == []
    assert any("very prompts" in note for note in study.notes)


def test_prompts_without_templates_have_means_over_all_positions(
    planted: Plant, tmp_path: Path
) -> None:
    prompts = [
        {
            "clean": example.prompt,
            "corrupt": example.corrupted,
            "answers": [example.target],
            "wrong_answers": list(example.foils),
        }
        for example in planted.task
    ]
    (tmp_path / "planted.json").write_text(json.dumps({"prompts": prompts}))
    study = run(planted.model, tasks=(str(tmp_path / "planted.json"),), **SETTINGS)
    assert any("over all positions" in note for note in study.notes)
    assert needed_by(study, "plant-0", "mean", "patching")["first crossing"] == 3


def test_without_an_effect_nothing_is_claimed(planted: Plant, tmp_path: Path) -> None:
    backwards = [
        {
            "clean": example.prompt,
            "corrupt": example.corrupted,
            "answers": list(example.foils),
            "wrong_answers": [example.target],
        }
        for example in planted.task
    ]
    (tmp_path / "wrong.json").write_text(json.dumps({"prompts": backwards}))
    models = [planted.model, replace(planted.model, name="other")]
    study = run(models, tasks=(str(tmp_path / "wrong.json"),), **SETTINGS)
    assert any("no effect to explain" in note for note in study.notes)
    # The whole model prefers the wrong answers, so it is at chance or worse.
    assert {claim.verdict for claim in study.claims} == {"not comparable"}
    for claim in study.claims:
        assert claim.reason.startswith("At chance on wrong with all heads: ")
        assert ". There is no ratio: " in claim.reason
    (chance,) = (note for note in study.notes if note.startswith("wrong, other: The whole model"))
    assert chance.endswith("is not clearly above 0 (right and wrong answers are equally likely).")
    title = study.figures["figure"].axes[0].get_title()
    assert title == "wrong\nat chance"  # both models are
    assert math.isnan(study.tables["Heads needed"][0]["first crossing"])
    study.save(tmp_path / "out")


def test_the_same_again_computes_nothing(
    planted: Plant, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        first = run(planted.model, lab, tasks=(file,), **SETTINGS)
        derivatives = import_module("headcount.rankings.attribution")  # not the function
        for module, name in ((work, "Runner"), (derivatives, "score")):
            monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("computed again"))
        again = run(planted.model, lab, tasks=(file,), **SETTINGS)
    assert first.rows == again.rows
    assert str(first.claims) == str(again.claims)


def test_a_run_that_was_cut_goes_on(
    planted: Plant, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(planted.model, tasks=(file,), **SETTINGS)
    calls = []
    whole = work.Runner

    def cut(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return whole(*args)

    monkeypatch.setattr(work, "Runner", cut)
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        with pytest.raises(KeyboardInterrupt):
            run(planted.model, lab, tasks=(file,), **SETTINGS)
        rest = run(planted.model, lab, tasks=(file,), **SETTINGS)
    for row, other in zip(rest.rows, expected.rows, strict=True):
        assert {**row, "value": 0, "low": 0, "high": 0, "mean_metric": 0} == {
            **other,
            "value": 0,
            "low": 0,
            "high": 0,
            "mean_metric": 0,
        }
        assert row["value"] == pytest.approx(other["value"], abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": ("iio",)}, "Did you mean"),
        ({"tasks": ()}, "at least one task"),
        ({"rankings": ("patchin",)}, "Did you mean"),
        ({"rankings": ("random",)}, "random orders anyway"),
        ({"per": "prmpt"}, "Did you mean"),
        ({"per": "prompt", "rankings": ("attention-induction",)}, "no scores by prompt"),
        ({"counts": (1000,)}, "Cannot choose 1000"),
        ({"n": 1}, "at least 2"),
        ({"threshold": 1.5}, "between 0 and 1"),
        ({"metric": "similarity"}, "scores written texts"),
        ({"preset": "quik"}, "Did you mean"),
    ],
)
def test_bad_settings_are_a_sentence(
    planted: Plant, file: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(HeadcountError, match=words):
        run(planted.model, **{**SETTINGS, "tasks": (file,), **settings})


def test_more_than_two_models_are_refused(planted: Plant) -> None:
    with pytest.raises(HeadcountError, match="one model, or a dense and a sparse one, not 3"):
        run([planted.model] * 3, **SETTINGS)


def test_two_models_of_one_name_are_refused(planted: Plant) -> None:
    with pytest.raises(HeadcountError, match="rename one of the folders"):
        run([planted.model] * 2, **SETTINGS)


def test_every_setting_says_what_it_is() -> None:
    assert KIND.models == ("smollm2-135m-q4", "sparse:smollm2-135m-q4")
    assert all(setting.metadata["help"] for setting in fields(KIND.config))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("per", ["task", "prompt"])
def test_the_count_is_what_is_measured(
    planted: Plant, file: str, tmp_path: Path, per: str, stored: bool
) -> None:
    """At least that, and hardly more: a ranking and a random order may share a head set."""
    config = KIND.configure(tasks=(file,), **{**SETTINGS, "rankings": ("attribution",), "per": per})
    description = KIND.describe([planted.model], config)
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store if stored else None, progress=False)
        ahead = description.cost(lab).count("value")
        assert lab.measured["value"] == 0
        assert store.summary() == []
        description.carry_out(lab)
        assert 0 < lab.measured["value"] <= ahead <= 1.05 * lab.measured["value"]
        if stored:
            again = description.cost(lab)
            assert again.tokens == again.count("value") == 0
            assert again.known > 0


@pytest.mark.real
def test_ioi_needs_fewer_heads_than_at_random() -> None:
    study = run(
        bundled(),
        tasks=("ioi",),
        counts=(20, 120),
        seeds=1,
        n=8,
        ranked=3,
        pool=400,
    )
    top = needed_by(study, bundled().name, "mean", "patching")
    random = needed_by(study, bundled().name, "mean", "random")
    assert top["all heads"] > top["no head"] + 1
    assert top["first crossing"] == 20
    assert random["first crossing"] > 20
    at = {
        row["series"]: row for row in study.rows if row["count"] == 20 and row["ablation"] == "mean"
    }
    assert at["random"]["value"] < 0.5 < at["top"]["low"]
