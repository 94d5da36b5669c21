"""Stability by cause: a cause that a ranking ignores has no part in it, one that moves it has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import plant
from studies.test_heads_kept import write
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

import headcount
from headcount import HeadcountError, HeadScores, Lab, Task, make_task, wrap
from headcount.cli import main
from headcount.models.model import Model
from headcount.rankings.stability import CausePart, Stability, variance_table
from headcount.rankings.variance_shares import components, shares_of

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "stability"
LAB = Lab(store=None, progress=False)


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama"), toy_tokenizer())


def parts(model: Model, task: Task, ranking: str, **how: Any) -> dict[str, CausePart]:
    found = variance_table(model, task, ranking, lab=LAB, top=2, **how)
    shares = [part.share.value for part in found.parts]
    together = [part.together.value for part in found.parts if part.together]
    left = 1 - sum(shares) - sum(together)
    assert found.heads.value == pytest.approx(max(0, left))
    assert all(share >= 0 for share in shares)
    assert found.to_frame()["share"].tolist() == shares
    return {part.cause: part for part in found.parts}


def test_random_scores_come_from_the_seed_alone() -> None:
    wide = wrap(tiny_model("llama", num_hidden_layers=6), toy_tokenizer())
    found = parts(wide, toy_task(80), "random")
    assert {cause for cause, part in found.items() if part.share.value == 0} == {
        *("prompts", "templates", "BOS")
    }
    seed = found["seed"]
    assert seed.share.value > 0.6
    assert seed.together
    assert seed.share.low == pytest.approx(seed.share.value)  # the same on all sets of prompts
    assert seed.together.value == pytest.approx(0)
    for cause in ("prompts", "templates", "BOS"):
        assert found[cause].correlation == pytest.approx(1)
        assert found[cause].overlap == 1
    assert found["seed"].correlation < 0.5
    assert "ablation" not in found


def test_a_planted_circuit_is_of_the_heads_and_not_of_the_prompts() -> None:
    planted = plant(["0.1", "1.3", "2.0"], n=160)
    found = parts(planted.model, planted.task, "ablation", metric="logit_difference")
    assert found["prompts"].share.high < 0.02
    assert found["templates"].share.high < 0.02
    assert found["prompts"].overlap == 1


def test_a_cause_that_moves_scores_is_found(model: Model, registered_by_template: None) -> None:
    found = parts(model, toy_task(90), "by-template")
    assert found["prompts"].share.value == 0
    assert found["templates"].share.low > 0.5
    assert found["BOS"].share.value == 0


@pytest.fixture
def registered_by_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ranking that depends on the templates of its prompts and on nothing else."""
    from registries import forget_new_names

    forget_new_names(monkeypatch)

    @headcount.ranking("by-template", "By template")
    def by_template(model: Model, task: Task) -> HeadScores:
        """Random scores that the templates seed."""
        names = sorted({example.template for example in task.split("ranking")})
        seed = [ord(letter) for name in names for letter in name]
        values = np.random.default_rng(seed).random(model.layout.total)
        return HeadScores(model.layout, values, "by-template")


def test_causes_that_do_not_apply_are_named(model: Model) -> None:
    flat = replace(toy_task(40, templates=False))
    found = variance_table(model, flat, "attention-previous", lab=LAB, top=2)
    assert dict(found.left_out) == {
        "templates": "all prompts have the same template",
        "few-shot draw": "the task draws no solved examples",
        "seed": "the ranking draws nothing at random",
        "ablation": "the ranking ablates nothing",
    }
    assert "few-shot draw: does not apply, because the task draws no solved examples" in str(found)
    causes = {part.cause for part in found.parts}
    assert causes == {"prompts", "BOS"}


def test_ablations_and_fits_are_levels(model: Model) -> None:
    found = parts(model, toy_task(90, targets=(1,)), "attribution")
    assert found["ablation"].levels == ("zero", "clean-mean", "resampled")
    planted = plant(["0.1", "1.3"], n=160)
    how = {"updates": 3, "batch": 8}
    fits = parts(planted.model, planted.task, "facilitation", levels=2, **how)
    assert fits["seed"].levels == ("seed 0", "seed 1")
    assert fits["seed"].share.value > 0
    assert not fits["seed"].share.known  # two sets of prompts tell nothing about their spread


def test_solved_examples_are_drawn_again_in_front_of_the_same_prompts() -> None:
    large = tiny_model("llama", vocab_size=2000, max_position_embeddings=1024)
    model = wrap(large, byte_level())
    task = make_task("antonym-in-context", model, shots=1)
    asked = Stability(model, task, "attention-previous", {}, levels=2, top=2)
    causes, _ = asked.causes()
    draws, prompts = causes["few-shot draw"], causes["prompts"]
    for place in range(2):  # each draw stands in front of each set of prompts
        one, other = (level.requests[place].task.examples for level in draws)
        assert [e.id for e in one] == [e.id for e in other]
        assert [e.prompt for e in one] != [e.prompt for e in other]
        assert one == prompts[place].requests[0].task.examples
    sets = [{e.id for e in level.requests[0].task} for level in prompts]
    assert len(sets[0]) == len(sets[1])
    assert not sets[0] & sets[1]
    templates = [{e.template for e in level.requests[0].task} for level in prompts]
    assert templates[0] == templates[1]
    others = [{e.template for e in level.requests[0].task} for level in causes["templates"]]
    assert not others[0] & others[1]
    ranked = {e.id for e in task.split("ranking")}
    assert set.union(*sets) <= ranked


def scores_of(sets: int, heads: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Scores of heads by cause, whose parts have known variances."""

    def noise(of: float, *shape: int) -> np.ndarray:
        return of**0.5 * rng.normal(size=(*shape, heads))

    own = noise(1.0)
    prompts = noise(0.2, 3, sets)  # by group of templates
    grid = own + noise(0.3, 3, 1) + prompts
    seeds = own + noise(0.5, 3, 1) + noise(0.1, 3, sets) + prompts[:1]
    return {"prompts": grid.swapaxes(0, 1), "seed": seeds}


def test_components_are_those_that_the_scores_are_made_of() -> None:
    found = components(scores_of(4, 20_000, np.random.default_rng(0)))
    templates, seed = 1.5, 1.8  # the whole variance of scores in either table
    assert found["prompts"] == pytest.approx(0.2 / templates, abs=0.01)
    assert found["templates"] == pytest.approx(0.3 / templates, abs=0.02)
    assert found["seed"] == pytest.approx(0.5 / seed, abs=0.02)
    assert found["seed with prompts"] == pytest.approx(0.1 / seed, abs=0.01)


def test_intervals_hold_the_share_that_many_sets_of_prompts_have() -> None:
    held = {"prompts": 0, "seed": 0, "seed with prompts": 0}
    for seed in range(60):
        many = scores_of(43, 150, np.random.default_rng(seed))
        few = {c: t[:3] if c == "prompts" else t[:, :3] for c, t in many.items()}
        rest = {c: t[3:] if c == "prompts" else t[:, 3:] for c, t in many.items()}
        found, truth = shares_of(few), shares_of(rest)
        for cause in held:
            held[cause] += found[cause].low <= truth[cause].value <= found[cause].high
    assert min(held.values()) >= 51  # of 60, where 57 are expected


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_shares_are_those_of_the_committed_scores(path: Path) -> None:
    table = json.loads(path.read_text(encoding="utf-8"))
    found = shares_of({cause: np.array(scores) for cause, scores in table["scores"].items()})
    told = {part["cause"]: part["share"] for part in table["parts"]}
    told |= {f"{p['cause']} with prompts": p["together"] for p in table["parts"] if p["together"]}
    told["heads"] = table["heads"]
    assert set(told) == set(found)
    for cause, share in told.items():
        for end in ("value", "low", "high"):
            assert share[end] == pytest.approx(getattr(found[cause], end), abs=1e-4)


def test_bad_input_is_a_sentence(model: Model) -> None:
    for levels, top, words in ((1, 2, "at least 2 levels"), (3, 0, "best heads, not 3 and 0")):
        with pytest.raises(HeadcountError, match=words):
            variance_table(model, toy_task(40), lab=LAB, levels=levels, top=top)
    with pytest.raises(HeadcountError, match="too few for 9 sets of at least 2"):
        variance_table(model, toy_task(12), lab=LAB, top=2)


def test_the_command_prints_and_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = plant(["0.1", "1.3"], n=96)
    monkeypatch.setattr("headcount.cli.measure.model_from", lambda *_: planted.model)
    file = write(planted.task, tmp_path / "planted.jsonl")
    words = ["rank", "--task", file, "--ranking", "ablation", "--stability", "--top", "2"]
    assert main([*words, "--no-store", "--quiet", "--out", str(tmp_path / "table.json")]) == 0
    text = capsys.readouterr().out
    assert "share of variance" in text
    assert "seed: does not apply" in text
    table = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    assert table["format"] == "headcount stability 2"
    assert [part["cause"] for part in table["parts"]][:2] == ["prompts", "templates"]
    assert main([*words, "--no-store", "--quiet", "--dry-run"]) == 0


def test_a_model_at_chance_is_told(model: Model) -> None:
    found = variance_table(model, toy_task(80), "random", lab=LAB, top=2)
    assert "chance" in found.note
    assert found.note in str(found)
    planted = plant(["0.1", "1.3", "2.0"], n=80)
    assert not variance_table(planted.model, planted.task, "random", lab=LAB, top=2).note
