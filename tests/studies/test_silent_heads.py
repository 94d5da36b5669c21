"""The study `silent-heads`: on planted models, where we know which heads say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import SHARPNESS, SIZE, UNTURNED, WIDTH, Plant, plant
from studies.test_heads_kept import write
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Example, HeadcountError, Lab, Store, Task, wrap
from headcount.curves.silent import ActivityRequest, SilentRequest, threshold
from headcount.engine.read.activity import attention_shape, head_norms
from headcount.engine.read.collect import collect
from headcount.metrics import get_logit_metric
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.studies.silent_heads.config import SCORES
from headcount.studies.silent_heads.panels import area_weights
from headcount.studies.silent_heads.study import KIND
from headcount.studies.verify import verify

NORMS = ("relative-norm", "output-norm", "value-norm", "written")
QUIET = [head for layer in range(3) for head in (4 * layer + 2, 4 * layer + 3)]
FREE = WIDTH  # a number of the residual stream that nothing reads or writes


def lab() -> Lab:
    return Lab(store=None, progress=False)


def run(model: Model, **settings: Any) -> Study:
    settings = {"seeds": 2, "n": 24, "ranked": 16, **settings}
    return KIND.describe([model], KIND.configure("full", **settings)).carry_out(lab())


def silenced(needed: Sequence[str] = ("0.1", "1.0", "2.0")) -> Plant:
    """A planted circuit in which heads 2 and 3 of each layer have no values: they say nothing."""
    planted = plant(list(needed), n=64)
    module = planted.model.module
    with torch.no_grad():
        for block in module.model.layers:  # type: ignore[union-attr]
            block.self_attn.v_proj.weight.view(2, SIZE, -1)[1] = 0  # of both heads of that group
    return replace(planted, model=wrap(module, planted.model.tokenizer, name="silenced"))


def sinks(heads: Sequence[int]) -> Plant:
    """A planted circuit in which these heads look at the first token (BOS), and do nothing else."""
    planted = plant(["0.1", "1.0", "2.0"], n=64)
    module = planted.model.module
    with torch.no_grad():
        module.model.embed_tokens.weight[1, FREE] = 1  # type: ignore[union-attr]
        for layer, block in enumerate(module.model.layers):  # type: ignore[union-attr]
            key = block.self_attn.k_proj.weight.view(2, SIZE, -1)
            key[:, UNTURNED - 1, FREE] = SHARPNESS * SIZE**0.5
            for head in heads:
                if head // 4 == layer:
                    block.self_attn.q_proj.weight.view(4, SIZE, -1)[head % 4, UNTURNED - 1, 0] = 1
    model = wrap(module, planted.model.tokenizer, name="sinks")
    return replace(planted, model=model, task=replace(planted.task, bos="always"))


def request(planted: Plant, scores: Sequence[str], shares: Sequence[int]) -> SilentRequest:
    metric = get_logit_metric("logit_difference")
    return SilentRequest(planted.model, planted.task, tuple(scores), metric, shares)


@pytest.fixture(scope="module")
def planted() -> Plant:
    return silenced()


@pytest.fixture(scope="module")
def study(planted: Plant, tmp_path_factory: pytest.TempPathFactory) -> Study:
    file = write(planted.task, tmp_path_factory.mktemp("task") / "planted.jsonl")
    return run(planted.model, tasks=(file,), shares=(25, 50, 75))


def test_heads_without_values_are_found_by_every_norm(planted: Plant) -> None:
    activity, refused = ActivityRequest(planted.model, planted.task, NORMS).result(lab())
    assert refused == {}
    for score in NORMS:
        ranking, test = activity[score]
        assert len(ranking) + len(test) == 64
        silent = test <= threshold(ranking, 50)
        assert {tuple(np.flatnonzero(row)) for row in silent} == {tuple(QUIET)}


def test_heads_that_look_at_the_first_token_are_found_by_attention() -> None:
    quiet = [2, 3, 7, 9]
    planted = sinks(quiet)
    activity, _ = ActivityRequest(planted.model, planted.task, ("first-token",)).result(lab())
    ranking, test = activity["first-token"]
    for row in test <= threshold(ranking, 33):
        assert np.flatnonzero(row).tolist() == quiet
    found = request(planted, ["first-token"], [33]).result(lab())
    whole = found.values["whole", "", 0]
    np.testing.assert_allclose(found.values["per-input", "first-token", 33], whole, atol=1e-3)
    assert found.zeroed["first-token", 33] == pytest.approx(4 / 12)
    assert found.values["random", "first-token", 33].mean() < whole.mean() - 1


def test_zeroing_silent_heads_costs_nothing_and_random_ones_do(study: Study) -> None:
    left = {
        (row["series"], row["score"], row["metric"], row["count"]): row
        for row in study.tables["What is left"]
    }
    for score in NORMS:
        for share in (25, 50):  # a threshold of zero takes all that are silent
            row = left["per-input", score, "margin", share]
            assert row["zeroed"] == pytest.approx(0.5)
            assert row["value"] == pytest.approx(1, abs=1e-4)
        assert left["per-input", score, "margin", 75]["value"] < 0.99
    assert left["random", "relative-norm", "margin", 50]["value"] < 0.8
    verdicts = [claim.verdict for claim in study.claims]
    assert verdicts[0] == verdicts[2] == "not comparable"  # published for MMLU
    random_margin = study.claims[-1]
    assert random_margin.verdict == "supported"
    assert "of all" in random_margin.reason or "of the layers" in random_margin.reason
    few = study.claims[1]
    assert (few.measured, few.verdict) == (0.0, "undecided")  # 24 prompts cannot tell 1 %
    assert "at 0.5 [0.5, 0.5] of the heads" in few.claim


def test_a_model_without_silent_heads_is_told_apart(tmp_path: Path) -> None:
    every = plant([f"{layer}.{head}" for layer in range(2) for head in range(4)], layers=2, n=64)
    file = write(every.task, tmp_path / "planted.jsonl")
    found = run(every.model, tasks=(file,), shares=(25, 50), scores=("relative-norm", "written"))
    few = found.claims[1]
    assert few.verdict == "refuted"
    assert few.measured > 0.5


def test_curves_that_agree_on_every_prompt_decide_nothing(planted: Plant, tmp_path: Path) -> None:
    file = write(planted.task, tmp_path / "planted.jsonl")
    found = run(planted.model, tasks=(file,), scores=("relative-norm", "output-norm"), shares=(50,))
    for best in found.claims[3:5]:
        assert (best.measured, best.verdict) == (0.0, "undecided")
        assert best.reason == "There is no interval: the two curves agree on every prompt."


def test_too_small_shares_test_nothing_about_12_percent(tmp_path: Path) -> None:
    every = plant([f"{layer}.{head}" for layer in range(2) for head in range(4)], layers=2, n=64)
    file = write(every.task, tmp_path / "planted.jsonl")
    found = run(every.model, tasks=(file,), shares=(1,), scores=("written",))
    assert [claim.verdict for claim in found.claims[1:4:2]] == ["not tested", "not tested"]
    assert found.claims[1].reason == "No threshold zeroed so many heads."
    assert "Loss" not in found.tables


def test_values_are_those_of_head_sets_made_by_hand(planted: Plant) -> None:
    """Each prompt is measured under its own head set, and under no other."""
    from headcount import evaluate

    asked = request(planted, ["entropy"], [40])
    found = asked.result(lab())
    ranking, test = ActivityRequest(planted.model, planted.task, ("entropy",)).result(lab())[0][
        "entropy"
    ]
    masks = test <= threshold(ranking, 40)
    values = evaluate(
        planted.model, planted.task, (~masks).astype(float), metric="logit_difference", lab=lab()
    )
    expected = np.diagonal(values.values)
    np.testing.assert_allclose(found.values["per-input", "entropy", 40][0], expected, atol=1e-5)
    np.testing.assert_allclose(found.zeroed["entropy", 40], masks.mean(1))
    assert len({mask.tobytes() for mask in masks}) > 1


def test_norms_are_what_a_plain_loop_computes() -> None:
    for kind in ("llama", "gpt2", "bloom", "phi"):
        model = wrap(tiny_model(kind), toy_tokenizer())
        sequences = [[5, 6, 7, 8], [9, 10, 11], [12, 13, 14]]
        norms = head_norms(model, sequences, written=True, progress=False)
        first, total = collect(model, sequences, [[0]] * 3, progress=False), model.layout.total
        expected = np.concatenate([np.linalg.norm(z[:, 0], axis=-1) for z in first], axis=-1)
        np.testing.assert_allclose(norms["value"], expected, rtol=1e-5)
        each = [collect(model, [ids], [range(len(ids))], progress=False) for ids in sequences]
        for row, sites in enumerate(each):
            own = [np.linalg.norm(z[0], axis=-1).mean(0) for z in sites]
            np.testing.assert_allclose(norms["output"][row], np.concatenate(own), rtol=1e-5)
        assert norms["written"].shape == (3, total)
        written = hand_written(model, sequences[0])
        np.testing.assert_allclose(norms["written"][0], written, rtol=1e-4)


def hand_written(model: Model, ids: Sequence[int]) -> np.ndarray:
    """The same from the weights of the projections and the model's own hidden states."""
    with torch.no_grad():
        states = model.module(torch.tensor([ids]), output_hidden_states=True).hidden_states
    found = []
    for site, z in zip(model.sites, collect(model, [ids], [range(len(ids))]), strict=True):
        projection: Any = model.module.get_submodule(site.module)
        weight = projection.weight.detach()
        weight = weight if type(projection).__name__ == "Conv1D" else weight.T  # (width, out)
        for head in range(site.heads):
            columns = weight[site.start + head * site.size :][: site.size]
            writes = torch.tensor(z[0, :, head]) @ columns
            stream = states[site.index][0].norm(dim=-1)
            found.append(float((writes.norm(dim=-1) / stream).mean()))
    return np.array(found)


def test_attention_scores_of_the_first_tokens_are_known() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    found = attention_shape(model, [[5], [5, 6]], progress=False)
    np.testing.assert_allclose(found["first"][0], 1)
    np.testing.assert_allclose(found["entropy"][0], 0, atol=1e-6)
    share = 2 * found["first"][1] - 1  # the first token looks at itself alone
    entropy = -(share * np.log(share) + (1 - share) * np.log(1 - share)) / 2
    np.testing.assert_allclose(found["entropy"][1], entropy, atol=1e-5)


def test_scores_that_a_model_does_not_have_are_left_out_by_name(tmp_path: Path) -> None:
    file = write(toy_task(24, targets=(1,)), tmp_path / "toy.jsonl")
    model = wrap(tiny_model("diffllama"), toy_tokenizer(), name="two-patterns")
    found = run(model, tasks=(file,), shares=(50,), n=4, ranked=4, seeds=1)
    left_out = [note for note in found.notes if note.startswith("The score ")]
    assert [note.split()[2] for note in left_out] == ["first-token", "entropy"]
    assert all("2 attention patterns" in note for note in left_out)
    assert found.facts["scores"] == [*NORMS]
    with pytest.raises(HeadcountError, match="2 attention patterns"):
        run(model, tasks=(file,), shares=(50,), n=4, ranked=4, seeds=1, scores=("entropy",))


def test_the_result_is_a_folder_that_can_be_verified(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path)
    found = verify(tmp_path)
    assert found.differences == ()
    assert found.numbers > 500
    figure = study.figures["figure"]
    texts = [text for axes in figure.axes for text in (axes.xaxis.label, axes.yaxis.label)]
    assert min(text.get_fontsize() for text in texts) >= 6
    assert figure.get_figwidth() == pytest.approx(3.4)


def test_a_second_run_measures_nothing(planted: Plant, tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        kept = Lab(store, progress=False)
        asked = request(planted, SCORES, [25, 60])
        first = asked.result(kept)
        before = dict(kept.measured)
        again = request(planted, SCORES, [25, 60]).result(kept)
        assert kept.measured == before
        assert kept.cost([request(planted, SCORES, [25, 60])]).tokens == 0
    for key, values in first.values.items():
        np.testing.assert_array_equal(values, again.values[key])


def test_a_task_at_chance_is_left_out_by_name(planted: Plant, tmp_path: Path) -> None:
    fit = write(planted.task, tmp_path / "fit.jsonl")
    flipped = [
        replace(e, target=e.foils[0], foils=(e.target,)) if number % 2 else e
        for number, e in enumerate(planted.task)
    ]
    lost = write(Task("lost", 1, tuple(flipped)), tmp_path / "lost.jsonl")
    found = run(planted.model, tasks=(fit, lost), scores=NORMS[:2], shares=(50,), seeds=1)
    assert all("the model is at chance on" in claim.reason for claim in found.claims)
    assert any("left out of claims and means" in note for note in found.notes)
    alone = run(planted.model, tasks=(lost,), scores=NORMS[:2], shares=(50,), seeds=1)
    assert {claim.verdict for claim in alone.claims} == {"not comparable"}


def test_bad_settings_are_refused_in_a_sentence(tmp_path: Path) -> None:
    for settings, words in (
        ({"scores": ("entropi",)}, 'Did you mean "entropy"?'),
        ({"scores": ()}, "one task, one score and one share"),
        ({"shares": (0,)}, "between 0 and 100, not 0"),
        ({"shares": (100,)}, "between 0 and 100, not 100"),
        ({"shares": (5, 5)}, "each of its shares once"),
        ({"seeds": 0}, "seeds of at least 1"),
        ({"tasks": ("ioy",)}, 'Did you mean "ioi"?'),
    ):
        with pytest.raises(HeadcountError, match=words.replace("?", r"\?")):
            KIND.configure("quick", **settings)
    bare = [Example(str(n), f"ba be {w}", " bi", template="t", content=str(n)) for n, w in
            enumerate(("da", "de", "di", "do"))]  # fmt: skip
    with pytest.raises(HeadcountError, match="has no foil, and the study silent-heads needs one"):
        KIND.configure("quick", tasks=(write(Task("bare", 1, tuple(bare)), tmp_path / "b.jsonl"),))
    whole = [
        Example(str(n), "", f"{w} ba be", (f"{w} be ba",), content=str(n), whole_text=True)
        for n, w in enumerate(("da", "de", "di", "do"))
    ]
    model = wrap(tiny_model("llama"), toy_tokenizer())
    request = ActivityRequest(model, Task("texts", 1, tuple(whole)), ("output-norm",))
    with pytest.raises(HeadcountError, match="whole texts without a prompt"):
        request.result(lab())


def test_areas_are_by_trapezoids() -> None:
    weights = area_weights([0.0, 0.1, 0.3, 0.6], 0.5)
    x, y = np.array([0.0, 0.1, 0.3, 0.5]), np.array([1.0, 0.8, 0.6, 0.4])
    heights = np.array([1.0, 0.8, 0.6, 0.3])  # so that the curve is at 0.4 where it is cut
    assert weights @ heights == pytest.approx(np.trapezoid(y, x) / 0.5)
    assert weights.sum() == pytest.approx(1)
