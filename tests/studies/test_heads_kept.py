"""The study `heads-kept`: on planted circuits, where the answer is known, and on the real model."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import Plant, plant
from real import bundled

from headcount import HeadcountError, HeadLayout, Lab, Store, Task
from headcount.curves.explained import explained_effect
from headcount.engine.measure import measuring as work
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.stats import Resampling
from headcount.studies.heads_kept import study as heads_kept
from headcount.studies.heads_kept.cases import choose_prompts, kept_counts, make_case
from headcount.studies.heads_kept.study import KIND
from headcount.studies.verify import verify

NEEDED = ["0.1", "1.3", "2.0"]
SETTINGS: dict[str, Any] = {
    "rankings": ("patching", "attribution"),
    "counts": tuple(range(13)),
    "seeds": 3,
    "n": 24,
    "ranked": 8,
    "ablations": ("mean", "zero"),
}


@pytest.fixture(scope="module", autouse=True)
def few_prompts_will_do() -> Iterator[None]:
    """Planted effects have hardly any noise, so few prompts tell which heads have one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads_kept, "FEWEST_PROMPTS", 1)
        yield


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
    return run(models, tasks=(file,), absolute=True, **SETTINGS)


def needed_by(study: Study, model: str, ablation: str, order: str) -> dict[str, Any]:
    (row,) = (
        row
        for row in study.tables["Heads needed"]
        if (row["model"], row["ablation"], row["order"]) == (model, ablation, order)
    )
    return dict(row)


@pytest.mark.parametrize("per", ["task", "prompt"])
@pytest.mark.parametrize("ablation", ["mean", "clean-mean", "resampled", "zero"])
def test_the_curve_reaches_one_at_exactly_the_planted_number(
    planted: Plant, file: str, per: str, ablation: str
) -> None:
    """The positive control: a circuit of known size through the same estimators."""
    how = {"rankings": ("patching",), "per": per, "tasks": (file,), "ablations": (ablation,)}
    case = make_case(file, planted.model, KIND.configure(**{**SETTINGS, **how}))
    kept = case.request.result(Lab(progress=False))
    assert {str(head) for head in kept.scores["patching"].top(3)} == {*NEEDED}
    values = kept.values[ablation]
    tables = {count: values.of(("patching", count)) for count in case.request.all_counts}
    found = explained_effect(tables, Resampling(values.clusters))
    effect = found.effect.value
    # Another prompt may give its own answer away, so that its outputs explain a little.
    near = 0.02 if ablation == "resampled" else 1e-5
    np.testing.assert_allclose(effect[3:], 1, atol=near)
    assert (effect[:3] < 0.85).all()
    assert (found.needed().value, found.two_sided().value) == (3, 3)
    assert values.of(("random", 6)).shape == (3, case.request.prompts)


def test_prompts_are_ranked_validated_and_tested_apart(planted: Plant) -> None:
    ids = lambda task: {example.id for example in task}  # noqa: E731
    contents = lambda task: {example.content_id for example in task}  # noqa: E731
    config = KIND.configure(**{**SETTINGS, "n": 12, "validated": 6})
    chosen = choose_prompts(planted.task, planted.model, config)
    tested, ranked = chosen.measured.split("test"), chosen.ranked.split("ranking")
    assert chosen.validated is not None
    validated = chosen.validated.split("test")
    assert (len(tested), len(ranked), len(validated), chosen.left_out) == (12, 8, 6, 0)
    assert ids(ranked) <= ids(planted.task.split("ranking"))
    for one, other in ((tested, ranked), (tested, validated), (validated, ranked)):
        assert not contents(one) & contents(other)
    assert not contents(validated) & contents(chosen.measured)  # not in any mean either
    own = choose_prompts(planted.task, planted.model, replace(config, per="prompt"))
    assert ids(own.ranked.split("ranking")) == ids(own.measured.split("test"))


def test_no_stretch_of_the_curve_is_left_unmeasured(planted: Plant) -> None:
    layout = HeadLayout((9,) * 30)
    counts = kept_counts(KIND.configure(), layout)
    assert counts[:6] == [1, 2, 3, 5, 8, 13]
    assert max(b - a for a, b in zip([*counts], [*counts[1:], 270], strict=True)) <= 27
    fine = kept_counts(KIND.configure(fine=True), layout)
    assert max(b - a for a, b in zip(fine, [*fine[1:], 270], strict=True)) <= 7


def test_a_study_of_two_models_has_counts_ratios_and_areas(study: Study) -> None:
    dense, sparse = "plant-0", "plant-1"
    for ablation in ("mean", "zero"):
        assert needed_by(study, dense, ablation, "patching")["heads"] == 3
        assert needed_by(study, sparse, ablation, "patching")["heads"] == 2
        assert needed_by(study, dense, ablation, "patching")["two-sided"] == 3
    assert needed_by(study, dense, "mean", "random")["heads"] > 3
    ratios = {
        row["threshold"]: row["ratio"]
        for row in study.tables["Ratio by threshold"]
        if (row["ablation"], row["order"]) == ("mean", "patching")
    }
    assert ratios[0.9] == pytest.approx(1.5)
    assert ratios[0.3] == 1  # the first head of either explains that much
    areas = {
        (row["model"], row["order"]): row["CMD"]
        for row in study.tables["Areas"]
        if (row["ablation"], row["axis"]) == ("mean", "linear")
    }
    assert areas[dense, "patching"] < areas[dense, "random"]
    # Without the interfering head the curve stays above 1 up to the last head.
    assert areas[sparse, "patching"] > areas[sparse, "patching, absolute"]
    gap = next(
        row
        for row in study.tables["Areas compared"]
        if (row["order"], row["axis"], row["area"]) == ("patching", "linear", "CMD")
    )
    assert gap["value"] == pytest.approx(areas[dense, "patching"] - areas[sparse, "patching"])
    assert study.tables["Agreement of the rankings"][0]["Spearman"] > 0.5
    texts = [text.get_text() for text in study.figures["figure"].axes[0].texts]
    assert texts == ["1.5x [1.5, 1.5]"]


def test_the_number_of_heads_with_an_effect_is_the_planted_one(study: Study) -> None:
    rows = {
        row["model"]: row
        for row in study.tables["Heads with an effect"]
        if row["ranking"] == "patching"
    }
    assert (rows["plant-0"]["helping"], rows["plant-0"]["hindering"]) == (3, 0)
    assert (rows["plant-1"]["helping"], rows["plant-1"]["hindering"]) == (2, 1)


def test_published_ratios_are_compared_with_nothing(study: Study) -> None:
    ratio = next(claim for claim in study.claims if "heads needed by plant-0" in claim.claim)
    assert (ratio.verdict, ratio.measured) == ("not tested", pytest.approx(1.5))
    assert "random order" in study.claims[0].claim


def test_the_best_order_is_chosen_on_other_prompts(hindered: Plant, tmp_path: Path) -> None:
    file = write(hindered.task, tmp_path / "hindered.jsonl")
    how = {**SETTINGS, "absolute": True, "validated": 8, "rankings": ("patching",)}
    study = run(hindered.model, tasks=(file,), **how)
    (best,) = study.tables["Best order"]
    assert best["order"] == "patching, absolute"  # it keeps the head that interferes, too
    assert best["two-sided"] == 3
    assert "best on validation prompts" in study.claims[0].claim
    fewer = study.claims[1]
    assert "best on validation prompts need fewer heads than in random order" in fewer.claim
    assert fewer.measured == best["two-sided over random"]
    assert best["two-sided over random"] == 3 / best["two-sided, random"]
    assert (fewer.low, fewer.high) == (
        pytest.approx(best["two-sided over random low"]),
        pytest.approx(best["two-sided over random high"]),
    )
    assert (fewer.verdict == "supported") == (fewer.high < 1)


def test_verify_recomputes_what_the_study_says(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path)
    assert verify(tmp_path).differences == ()
    path = tmp_path / "areas.csv"
    path.write_text(path.read_text().replace(",linear,0.", ",linear,0.0", 1))
    assert "areas.csv" in verify(tmp_path).differences[0]


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
    above, below = study.figures["figure"].axes
    assert below.get_xlabel() == "Number of Heads Kept"
    assert above.get_ylabel() == "Explained Effect"
    assert (above.get_xscale(), below.get_xscale()) == ("linear", "log")
    assert {0.0, 0.5, 1.0} <= set(above.get_yticks().tolist())
    dashed = [line for line in above.lines if line.get_color() == "black"]
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
    pictures = {"figure.png", "areas.png", "ratios.png", "ablations.png"}
    assert names >= pictures | {"curves.csv", "claims.json", "report.html", "run.json"}
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
    assert [text.get_text() for text in study.figures["figure"].axes[0].texts] == [
        "3 heads for 0.9"
    ]
    assert list(study.tables) == ["Areas", "Heads needed", "Heads with an effect"]
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
    how = {**SETTINGS, "ablations": ("mean", "resampled")}
    study = run(planted.model, tasks=(str(tmp_path / "planted.json"),), **how)
    assert any("nothing is resampled" in note for note in study.notes)
    assert needed_by(study, "plant-0", "mean", "patching")["heads"] == 3
    with pytest.raises(HeadcountError, match="no prompts of one template"):
        run(
            planted.model,
            tasks=(str(tmp_path / "planted.json"),),
            **{**how, "ablations": ("resampled",)},
        )


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
    assert [claim.verdict for claim in study.claims] == ["not comparable"] * 4 + ["not tested"]
    for claim in study.claims[:4]:
        assert "the model is at chance or has no effect: wrong" in claim.reason
    (chance,) = (note for note in study.notes if note.startswith("wrong, other: The whole model"))
    assert chance.endswith("is not clearly above 0 (right and wrong answers are equally likely).")
    title = study.figures["figure"].axes[0].get_title()
    assert title == "wrong\nat chance: plant-0, other"
    assert math.isnan(study.tables["Heads needed"][0]["heads"])
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
        ({"ablations": ("men",)}, "Did you mean"),
        ({"ablations": ()}, "at least one ablation"),
        ({"validated": -1}, "at least 0"),
        ({"metric": "similarity"}, "scores written texts"),
        ({"preset": "quik"}, "Did you mean"),
    ],
)
def test_bad_settings_are_a_sentence(
    planted: Plant, file: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(HeadcountError, match=words):
        run(planted.model, **{**SETTINGS, "tasks": (file,), **settings})


def test_too_many_models_are_refused(planted: Plant) -> None:
    with pytest.raises(HeadcountError, match="one to 4 models, such as a dense and a sparse one"):
        run([planted.model] * 5, **SETTINGS)


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
        ablations=("mean",),
    )
    top = needed_by(study, bundled().name, "mean", "patching")
    random = needed_by(study, bundled().name, "mean", "random")
    assert top["all heads"] > top["no head"] + 1
    assert top["heads"] <= 20 < random["heads"]
    at = {
        row["series"]: row for row in study.rows if row["count"] == 20 and row["ablation"] == "mean"
    }
    assert at["random"]["value"] < 0.5 < at["top"]["low"]
