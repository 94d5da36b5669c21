"""The study `steering`: on a planted model in which one head decides whether answers are right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import NOBODY, SIZE, STRENGTH, WIDTH, N, Plant, plant
from registries import forget_new_names
from studies.test_costs import check_values
from studies.test_heads_kept import write

from headcount import HeadcountError, HeadScores, Lab, Store, evaluate, gated, ranking, wrap
from headcount.curves.steering import RANDOM_HEADS, Directions, directions
from headcount.heads import HeadLayout
from headcount.report.study import Study
from headcount.studies.run import study_cost
from headcount.studies.steering.study import KIND
from headcount.studies.verify import verify

FREE = WIDTH  # a number of the residual stream that nothing else reads or writes
SURE = "2.3"  # the head that says whether a prompt has one of the words
WORDS = ("saw", "who")  # of two of the four templates
FEW: dict[str, Any] = {"ranking": "sure-head", "top": 1, "seeds": 6, "alphas": (-5.0, 0.1, 5.0)}


def quiet(store: Any = None) -> Lab:
    return Lab(store=store, progress=False)


@pytest.fixture(scope="module", autouse=True)
def the_ranking() -> Iterator[None]:
    """A ranking that puts that head first."""

    def sure_head(model: Any, task: Any) -> HeadScores:
        values = (model.layout.gates(off=[SURE]) == 0).astype(float)
        return HeadScores(model.layout, values, "sure-head")

    with pytest.MonkeyPatch.context() as patch:
        forget_new_names(patch)
        ranking("sure-head", "The sure head")(sure_head)
        yield


@pytest.fixture(scope="module")
def planted() -> Plant:
    """Answers are right where the prompt has one of the words: only then "nobody" is held down."""
    made = plant(["0.1", "1.0"], n=96)
    module: Any = made.model.module
    tokens = made.model.tokenizer.convert_tokens_to_ids(list(WORDS))
    with torch.no_grad():
        embedding = module.model.embed_tokens.weight
        embedding[:, NOBODY] += STRENGTH
        embedding[tokens, FREE] = 1
        attention = module.model.layers[2].self_attn
        value = attention.v_proj.weight.view(2, SIZE, -1)[1]  # of the last two heads
        value[N:] = 0
        value[-1, FREE] = 1
        attention.o_proj.weight.view(-1, 4, SIZE)[NOBODY, 3, -1] = -80
    model = wrap(module, made.model.tokenizer, name="doubtful")
    # Every item has a template of its own: with four, half of them right proves nothing.
    examples = tuple(replace(e, template=e.id) for e in made.task)
    return replace(made, model=model, task=replace(made.task, examples=examples))


@pytest.fixture(scope="module")
def file(planted: Plant, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(planted.task, tmp_path_factory.mktemp("task") / "doubtful.jsonl")


def run(planted: Plant, *files: str, lab: Lab | None = None, **settings: Any) -> Study:
    config = KIND.configure("full", tasks=files, **{**FEW, **settings})
    return KIND.describe([planted.model], config).carry_out(lab or quiet())


@pytest.fixture(scope="module")
def study(planted: Plant, file: str) -> Study:
    return run(planted, file)


def values(study: Study, metric: str = "accuracy") -> dict[tuple[str, str], float]:
    rows = [row for row in study.rows if row["metric"] == metric]
    return {(row["series"], row["alpha"]): row["value"] for row in rows}


def test_the_direction_of_right_answers_makes_all_right_and_its_opposite_all_wrong(
    study: Study,
) -> None:
    found = values(study)
    assert found["whole", "0"] == pytest.approx(0.5, abs=0.1)
    assert found["learned", "5"] == 1
    assert found["learned", "-5"] == 0
    assert found["random-heads", "5"] == found["random-heads", "-5"] == found["whole", "0"]
    assert 0 < found["random-direction", "5"] < 1
    assert values(study, "logprob")["learned", "5"] > values(study, "logprob")["whole", "0"] + 0.5
    check_values(study)


def test_claims_are_judged_at_the_largest_strength(study: Study) -> None:
    raised, beyond, elsewhere, lowered = study.claims[:4]
    assert raised.measured == pytest.approx(0.5, abs=0.1)
    assert {c.verdict for c in (raised, elsewhere)} == {"supported"}
    assert lowered.measured < 0 < beyond.measured
    assert "(at α = -5," in lowered.claim
    rows = {(r["metric"], r["alpha"], r["change"]): r for r in study.tables["Changes"]}
    row = rows["accuracy", "5", "learned minus random-heads"]
    assert (row["value"], row["low"]) == (elsewhere.measured, elsewhere.low)


def test_without_the_opposite_its_claims_are_not_tested(planted: Plant, file: str) -> None:
    found = run(planted, file, alphas=(5.0,), seeds=2)
    assert [claim.verdict for claim in found.claims].count("not tested") == 2
    assert "No α of -5 was run." in found.claims[3].reason


def test_what_is_added_is_the_formula(planted: Plant) -> None:
    """α · σ · d at the chosen heads and nothing elsewhere; random ones are as long."""
    found = directions(planted.model, planted.task, lab=quiet())
    number = planted.model.layout.number(planted.model.layout.parse(SURE))
    one, two = (found.biases([number], alpha) for alpha in (1.0, 2.0))
    for layer, (a, b) in enumerate(zip(one, two, strict=True)):
        np.testing.assert_allclose(2 * a, b)
        assert a.any(axis=1).tolist() == [layer == 2 and head == 3 for head in range(4)]
    random = found.biases([number], 1.0, seed=0)
    lengths = [np.linalg.norm(layers[2][3]) for layers in (one, random)]
    assert lengths[0] == pytest.approx(lengths[1])
    assert abs(one[2][3] @ random[2][3]) < 0.9 * lengths[0] ** 2
    with gated(planted.model, biases=two):
        steered = evaluate(planted.model, planted.task, [], metric="logprob", lab=quiet())
    plain = evaluate(planted.model, planted.task, [], metric="logprob", lab=quiet())
    assert steered.mean()[0] > plain.mean()[0] + 0.1


def test_the_folder_can_be_verified(study: Study, tmp_path: Path) -> None:
    names = {path.name for path in study.save(tmp_path, "headcount run steering")}
    assert names >= {"figure.png", "changes.csv", "claims.json", "heads.csv"}
    found = verify(tmp_path)
    assert found.differences == found.left_out == ()
    facts = json.loads((tmp_path / "run.json").read_text())["facts"]
    (best,), (right,) = facts["best"].values(), facts["right"].values()
    assert best == [SURE]
    assert min(right) > 5


def test_the_cost_is_known_and_a_run_goes_on_where_it_stopped(
    planted: Plant, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**FEW, "tasks": (file,), "seeds": 2, "alphas": (5.0,), "preset": "full"}
    with Store(tmp_path / "store.sqlite") as store:
        lab = quiet(store)
        ahead = study_cost("steering", planted.model, lab=lab, **settings)
        usual, calls = Directions.biases, 0

        def failing(self: Directions, *args: Any, **how: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 4:
                raise KeyboardInterrupt
            return usual(self, *args, **how)

        with monkeypatch.context() as patch:
            patch.setattr(Directions, "biases", failing)
            with pytest.raises(KeyboardInterrupt):
                run(planted, file, lab=lab, seeds=2, alphas=(5.0,))
        left = study_cost("steering", planted.model, lab=lab, **settings)
        assert left.count("value") < ahead.count("value")
        found = run(planted, file, lab=lab, seeds=2, alphas=(5.0,))
        assert lab.measured["value"] == ahead.count("value")
        assert study_cost("steering", planted.model, lab=lab, **settings).tokens == 0
    again = run(planted, file, seeds=2, alphas=(5.0,))
    assert [row["value"] for row in again.rows] == [row["value"] for row in found.rows]


def test_tasks_without_wrong_answers_are_left_out_by_name(
    planted: Plant, file: str, tmp_path: Path
) -> None:
    known = tuple(e for e in planted.task if set(WORDS) & set(e.prompt.split()))
    all_right = write(replace(planted.task, examples=known), tmp_path / "right.jsonl")
    found = run(planted, file, all_right, seeds=2, alphas=(5.0,))
    assert {row["task"] for row in found.rows} == {file}
    (note,) = (note for note in found.notes if note.startswith("Left out"))
    assert 'of "right" right and 0 wrong, and a direction needs at least 5 of each' in note
    found.save(tmp_path / "out")
    assert verify(tmp_path / "out").differences == ()
    with pytest.raises(HeadcountError, match="needs at least 5 of each: choose another task"):
        run(planted, all_right)
    with pytest.raises(HeadcountError, match="needs at least 5 of each"):
        directions(planted.model, replace(planted.task, examples=known), lab=quiet())


def test_bad_settings_are_refused_in_a_sentence(planted: Plant, file: str) -> None:
    for settings, words in (
        ({"tasks": ()}, "at least one of its tasks"),
        ({"tasks": ("maths",)}, 'no task "maths"'),
        ({"alphas": ()}, "at least one of its alphas"),
        ({"alphas": (1.0, 1.0)}, "and each once"),
        ({"alphas": (0.0, 1.0)}, "An alpha of 0 adds nothing"),
        ({"alphas": ("much",)}, "Alphas are numbers such as 5 or -0.5, not 'much'"),
        ({"top": 0}, "top=0"),
        ({"seeds": 1}, "seeds=1"),
        ({"n": 1}, "n=1"),
        ({"ranking": "atribution"}, "attribution"),
    ):
        with pytest.raises(HeadcountError, match=words):
            KIND.configure("quick", **settings)
    with pytest.raises(HeadcountError, match="Cannot choose 14 heads"):
        run(planted, file, top=7)


def test_heads_without_a_spread_are_left_alone() -> None:
    """What a head always says has no direction: nothing is divided by 0."""
    found = Directions(HeadLayout((2,)), [np.zeros((2, 3))], 5, 5)
    for seed in (None, 0):
        assert not np.any(found.biases([0, 1], 5.0, seed=seed)[0])
    assert RANDOM_HEADS == "random-heads"
