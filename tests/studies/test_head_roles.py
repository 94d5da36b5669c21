"""The study `head-roles`, whole: on planted models, of which we know every head's role."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import Plant, plant
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, Store, run_study, wrap
from headcount.heads import HeadLayout
from headcount.rankings.causal_gates.fit import FitSettings
from headcount.rankings.causal_gates.passes import GatedPasses
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.rankings.causal_gates.schedule import VARIANTS
from headcount.report.study import Study
from headcount.studies.head_roles.config import PRESETS, Config
from headcount.studies.head_roles.figure import _seeds
from headcount.studies.head_roles.gates import fit_settings, make_cells
from headcount.studies.head_roles.panels import COLUMNS, METRICS, SHARED, RolePanel
from headcount.studies.head_roles.published import FIRST, SECOND, over_seed_rows, share_rows
from headcount.studies.head_roles.roles import HeadRoles
from headcount.studies.head_roles.study import KIND
from headcount.studies.presets import Preset
from headcount.studies.verify import verify
from headcount.value_table import ValueTable

SETTINGS: dict[str, Any] = {
    "preset": "full",
    "counts": (1, 2, 5),
    "seeds": 2,
    "refit": True,
    "updates": 40,
    "batch": 16,
}


SEEDS = 5


@cache
def small() -> Plant:
    return plant(["0.1", "1.0"], ["1.2"], layers=2, heads=4, n=48)


@cache
def large() -> Plant:
    return plant(["0.0", "1.1", "2.2"], ["1.5", "4.0"], layers=5, heads=6, n=48, seed=4)


@cache
def one_head() -> Plant:
    return plant(["0.0"], ["0.1"], layers=1, heads=2, n=48, seed=5)


@pytest.fixture(scope="module")
def study() -> Study:
    """Two planted models in two columns; with fewer seeds, nothing could be decided."""
    settings = {**SETTINGS, "tasks": (small().task,), "seeds": SEEDS}
    return run_study("head-roles", [small().model, large().model], **settings)


def values(study: Study, metric: str = "logprob change") -> dict[tuple[str, str, int], float]:
    return {
        (row["model"], row["series"], row["count"]): row["value"]
        for row in study.rows
        if row["metric"] == metric
    }


@pytest.mark.parametrize(
    ("seeds", "says"), [([1, 1], "1 seed"), ([3, 3], "3 seeds"), ([10, 5], "5 or 10 seeds")]
)
def test_a_figure_says_how_many_seeds_its_panels_have(seeds: list[int], says: str) -> None:
    layout, panels = HeadLayout((2,)), []
    for n in seeds:
        roles = HeadRoles.of(CausalGates(layout, np.ones((n, 2)), np.ones((n, 2)), {}))
        panels.append(RolePanel(ValueTable(COLUMNS, SHARED), {"roles": roles.facts()}))
    assert _seeds(panels) == says


def test_roles_come_back_from_their_facts() -> None:
    rng = np.random.default_rng(0)
    gates = CausalGates(HeadLayout((3, 4)), rng.random((5, 7)), rng.random((5, 7)))
    roles = HeadRoles.from_facts(json.loads(json.dumps(HeadRoles.of(gates).facts())))
    for role in ROLES:
        np.testing.assert_array_equal(roles.has[role], gates.has_role(role))
        np.testing.assert_array_equal(roles.mean[role], gates.has_role_on_average(role))
    assert list(roles.labels) == gates.labels().tolist()
    assert roles.seeds == 5
    assert roles.shares() == gates.shares()
    for head, label in enumerate(roles.labels):
        own = label != "undecided" and bool(gates.has_role(label)[:, head].all())
        assert roles.stable[head] == own


def test_needed_heads_fall_interfering_ones_rise_and_others_stay(study: Study) -> None:
    for metric in METRICS.values():
        found = values(study, metric)
        for model in ("plant-0", "plant-4"):
            assert found[model, "facilitation", 2] < -0.5
            assert found[model, "interference", 1] > 0.05
            assert abs(found[model, "irrelevance", 2]) < 0.02
            assert all(found[model, role, 0] == 0 for role in ROLES)


def test_the_run_decides_between_the_descriptions(study: Study) -> None:
    verdicts = {claim.published: claim.verdict for claim in study.claims}
    assert verdicts["facilitation falls in every panel"] == "supported"
    assert verdicts[FIRST] == "supported"
    assert verdicts[SECOND] == "refuted"


def test_the_table_is_tidy(study: Study) -> None:
    wanted = {"model", "task", "series", "metric", "count", "value", "low", "high", "n"}
    assert wanted <= set(study.rows[0])
    keys = {(r["model"], r["task"], r["series"], r["metric"], r["count"]) for r in study.rows}
    # models, roles and random orders, bases and readings, counts with 0
    assert len(keys) == len(study.rows) == 2 * 4 * 4 * 4
    for row in study.rows:
        assert row["low"] <= row["value"] <= row["high"]
        assert (row["n"], row["seeds"]) == (len(small().task.split("test")), SEEDS)
        heads = {"plant-0": 8, "plant-4": 30}[row["model"]]
        assert row["share"] == pytest.approx(row["count"] / heads, abs=1e-4)
    carriers = {(row["model"], row["series"]): row["carriers"] for row in study.rows}
    assert [carriers["plant-4", role] for role in ROLES] == [3, 25, 2]


def test_the_tables_count_the_planted_roles(study: Study) -> None:
    shares = {(row["model"], row["role"]): row for row in study.tables["Role shares"]}
    assert shares["plant-0", "facilitation"]["share"] == 2 / 8
    assert shares["plant-0", "interference"]["share"] == 1 / 8
    assert shares["plant-0", "irrelevance"]["by_mean"] == 5 / 8
    seeds = {(row["model"], row["role"]): row for row in study.tables["Roles over seeds"]}
    either = seeds["plant-0", "facilitation or interference"]
    assert (either["always"], either["any"], either["seeds"]) == (3 / 8, 3 / 8, SEEDS)


def test_shares_over_other_numbers_of_seeds_are_not_compared(study: Study) -> None:
    gates = study.scores["gates/plant-0/planted-0"]
    assert isinstance(gates, CausalGates)
    (row, *_) = over_seed_rows("plant-0", "Syntax", HeadRoles.of(gates))
    assert row["published always"] == "0.7 to 1.5 %"
    assert row["always against published"] == "not comparable: 5 seeds, and 10 in the paper"
    ten = CausalGates(gates.layout, np.tile(gates.plus, (2, 1)), np.tile(gates.minus, (2, 1)))
    (row, *_) = over_seed_rows("plant-0", "Syntax", HeadRoles.of(ten))
    assert row["always against published"] == "disagrees: 17 times the highest"
    assert row["any against published"] == "disagrees: 0.37 times the lowest"
    of_ten = HeadRoles.of(ten)
    ratios = {row["role"]: row["ratio to published"] for row in share_rows("a", "Syntax", of_ten)}
    assert ratios["facilitation"] == round(0.25 / 0.256, 3)
    assert ratios["interference"] == ""


def test_a_saved_study_can_be_verified_and_a_changed_number_is_found(
    study: Study, tmp_path: Path
) -> None:
    study.save(tmp_path)
    found = verify(tmp_path)
    assert found.differences == ()
    assert found.claims == len(study.claims)
    assert found.numbers > 5 * len(study.rows)
    assert found.left_out == ()
    for name, old, new in (
        ("values.csv.gz", "soft,facilitation,1,0,-", "soft,facilitation,1,0,-9"),
        ("run.json", '"facilitation": 2.0', '"facilitation": 3.0'),
        ("claims.json", '"verdict": "supported"', '"verdict": "undecided"'),
        ("role-shares.csv", "facilitation,0.25,", "facilitation,0.35,"),
    ):
        path = tmp_path / name
        data = path.read_bytes()
        packed = path.suffix == ".gz"
        text = (gzip.decompress(data) if packed else data).decode()
        assert old in text
        changed = text.replace(old, new, 1).encode()
        path.write_bytes(gzip.compress(changed) if packed else changed)
        assert verify(tmp_path).differences
        path.write_bytes(data)
    assert verify(tmp_path).differences == ()


def test_captions_say_what_is_grey_and_figures_have_no_small_print(study: Study) -> None:
    names = ["figure", "figure-column", "per-token", "interference", "plain", "roles"]
    assert list(study.figures) == names
    assert {*study.captions, "figure-column"} == set(study.figures)
    for name in ("figure", "per-token", "interference", "plain"):
        caption = study.captions[name]
        assert "Thin grey: beyond the heads that carry the role" in caption
        assert "planted-0 (plant-0) 2, 5, 1; planted-0 (plant-4) 3, 25, 2." in caption
        assert study.figures[name]._supxlabel is None  # type: ignore[attr-defined]
    assert "1.0 on planted-0 (plant-0)" in study.captions["per-token"]
    zoomed = study.figures["interference"].axes[0].get_lines()
    assert [list(line.get_xdata()) for line in zoomed[1:]] == [[1, 2], [0, 1]]  # grey, and red


def test_the_folder_is_whole_and_its_gates_can_be_given_again(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = study.save(tmp_path / "out", "headcount run head-roles")
    names = {path.name for path in paths}
    assert paths[0].name == "figure.png"
    assert names >= {"plain.svg", "roles.pdf", "curves.csv", "claims.json", "report.html"}
    assert names >= {"role-shares.csv", "roles-over-seeds.csv", "run.json", "per-token.png"}
    assert names >= {"end-points.csv", "two-descriptions.csv", "peaks-of-interference.csv"}
    with (tmp_path / "out" / "role-shares.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2 * 4
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["settings"]["counts"] == [0, 1, 2, 5]
    assert run["settings"]["fit"]["plant-0, planted-0"]["updates"] == 40
    assert "Roles over seeds" in (tmp_path / "out" / "report.html").read_text()
    gates = tmp_path / "out" / "scores" / "gates"
    assert (gates.parent / "plant-0-planted-0-facilitation.json").exists()
    monkeypatch.setattr(GatedPasses, "gradient", lambda *_: pytest.fail("fitted again"))
    again = run_study(
        "head-roles",
        [small().model, large().model],
        tasks=(small().task,),
        gates=str(gates),
        **{**SETTINGS, "seeds": SEEDS, "refit": False},
    )
    expected = values(study)
    for key, value in values(again).items():
        assert value == pytest.approx(expected[key], abs=1e-4)


def test_the_same_again_computes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its = small()
    with Store(tmp_path / "store.sqlite") as store:
        first = run_study("head-roles", its.model, tasks=(its.task,), lab=Lab(store), **SETTINGS)
        monkeypatch.setattr(GatedPasses, "one_pass", lambda *_: pytest.fail("fitted again"))
        told: list[str] = []
        lab = Lab(store, say=told.append)
        again = run_study("head-roles", its.model, tasks=(its.task,), lab=lab, **SETTINGS)
    assert lab.measured["value"] == 0
    assert first.rows == again.rows
    assert first.claims == again.claims
    assert told == []  # nothing will take any time


@pytest.mark.parametrize("after", [7, 55])
def test_a_fit_that_was_cut_goes_on(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its, usual, updates = small(), GatedPasses.gradient, 0
    whole = run_study("head-roles", its.model, tasks=(its.task,), **SETTINGS)

    def cut(self: GatedPasses, *args: Any) -> torch.Tensor:
        nonlocal updates
        updates += 1
        if updates == after:
            raise KeyboardInterrupt
        return usual(self, *args)

    monkeypatch.setattr(GatedPasses, "gradient", cut)
    with Store(tmp_path / "store.sqlite") as store:
        settings = {"tasks": (its.task,), "lab": Lab(store), **SETTINGS}
        with pytest.raises(KeyboardInterrupt):
            run_study("head-roles", its.model, **settings)
        rest = run_study("head-roles", its.model, **settings)
    assert updates == 80 + 1  # two stages, and the one that was cut
    assert rest.rows == whole.rows


def test_models_may_have_different_heads_and_the_same_name() -> None:
    tiny, its = one_head(), small()
    same_name = wrap(its.model.module, its.model.tokenizer, name=tiny.model.name)
    settings = {**SETTINGS, "updates": 3, "plain": False}
    found = run_study("head-roles", [tiny.model, same_name], tasks=(its.task,), **settings)
    ends = {
        model: max(row["count"] for row in found.rows if row["model"] == model)
        for model in ("plant-5", "plant-5 (2)")
    }
    assert ends == {"plant-5": 2, "plant-5 (2)": 5}
    assert "plant-5 has 2 heads: its curves end there." in found.notes
    assert any("had 3 updates a stage" in note for note in found.notes)
    assert set(found.model) == set(ends)
    assert {"gates/plant-5/planted-0", "gates/plant-5--2-/planted-0"} <= set(found.scores)
    assert "with 1 of 2 heads (50.0 %) and 1 of 8 heads (12.5 %)" in found.claims[0].claim
    assert found.claims[0].verdict == "not comparable"


def test_the_validation_prompts_are_not_those_of_the_fit() -> None:
    its = small()
    fitted = {example.id for example in its.task.split("ranking")}
    (cell,) = make_cells([its.model], KIND.configure(tasks=(its.task,)))
    for n in (0, 6):
        seen = {example.id for example in cell.validation(n).split("test")}
        assert len(seen) == (n or len(its.task.split("test")))
        assert not seen & fitted


@pytest.mark.parametrize("plain", [True, False])
def test_what_is_counted_is_what_is_measured(plain: bool, tmp_path: Path) -> None:
    """Gates to be fitted, of a model of many heads; and then the same gates from a folder."""
    sizes = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8}
    model = wrap(tiny_model("llama", **sizes), toy_tokenizer(), name="wide")
    own = {**SETTINGS, "tasks": (toy_task(40),), "counts": (5, 9), "updates": 3, "plain": plain}
    description = KIND.describe([model], KIND.configure(**own))
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store)
        ahead = description.cost(lab)
        assert store.summary() == []
        description.carry_out(lab).save(tmp_path / "out")
        measured = lab.measured["value"]
        assert 0 < measured <= ahead.count("value") <= 1.05 * measured
        again = description.cost(lab)
        assert (again.tokens, again.known) == (0, measured)
    own |= {"refit": False, "gates": str(tmp_path / "out" / "scores" / "gates")}
    lab, description = Lab(), KIND.describe([model], KIND.configure(**own))
    ahead = description.cost(lab)
    with lab.remembering() as remembering:
        description.carry_out(remembering)
    assert ahead.count("value") == lab.measured["value"]
    assert not any(item.kind == "gradients" for item in ahead.items)


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": ("sintax",)}, "Did you mean"),
        ({"tasks": ()}, "at least one task"),
        ({"counts": (9,)}, "Cannot choose 9 heads: this model has 8"),
        ({"counts": (-1,)}, "Cannot choose -1"),
        ({"seeds": 0}, "at least 1 seed"),
        ({"n": -1}, "or more, not"),
        ({"variant": "relased"}, "Did you mean"),
        ({"preset": "quik"}, "Did you mean"),
        ({"task_settings": {"shots": 3}}, "already made"),
        ({"tasks": (plant(["0.0"], n=8).task,)}, "causal gates need at least 8"),
        ({"gates": "nowhere", "refit": False}, "has no gates of plant-0 on planted-0"),
    ],
)
def test_bad_settings_are_a_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        run_study("head-roles", small().model, **{"tasks": (small().task,), **SETTINGS, **settings})


def test_gates_that_diverge_are_a_sentence() -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer(), name="broken")
    with torch.no_grad():
        module.model.embed_tokens.weight[7] = torch.nan  # of a word that the task has
    with pytest.raises(HeadcountError, match=r"gates of broken on .* diverged.*NaN"):
        run_study("head-roles", model, tasks=(toy_task(40),), **SETTINGS)


def test_half_precision_that_the_machine_lacks_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = wrap(tiny_model("llama").to(torch.bfloat16), toy_tokenizer(), name="half")

    def unable(*_: Any, **__: Any) -> None:
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'BFloat16'")

    monkeypatch.setattr(GatedPasses, "_logprobs", unable)
    with pytest.raises(HeadcountError, match=r"half cannot be fitted in bfloat16.*float32"):
        run_study("head-roles", model, tasks=(toy_task(40),), **SETTINGS)


def test_gates_are_fitted_as_the_config_says() -> None:
    """The config is light, so it repeats the defaults of a fit."""
    assert fit_settings(Config()) == FitSettings()
    choices = {field.name: field.metadata["choices"] for field in fields(Config)}
    assert choices["variant"] == tuple(VARIANTS)


def test_every_preset_starts_at_zero_and_ends_at_the_published_count() -> None:
    for preset in (Preset.of(preset).settings for preset in PRESETS.values()):
        assert (min(preset["counts"]), max(preset["counts"])) == (0, 50)


def test_labels_are_those_of_the_plant(study: Study) -> None:
    roles = {"needed": "facilitation", "irrelevant": "irrelevance", "interfering": "interference"}
    gates = study.scores["gates/plant-0/planted-0"]
    assert isinstance(gates, CausalGates)
    truth = [roles[small().roles[head]] for head in small().model.layout]
    np.testing.assert_array_equal(gates.labels(), truth)


def test_each_head_has_its_role_and_scores(study: Study) -> None:
    own = [row for row in study.heads if row["model"] == "plant-0"]
    assert {row["score"] for row in own} == {"role", *ROLES}
    labels = {f"{r['layer']}.{r['head']}": r["label"] for r in own if r["score"] == "role"}
    assert {head for head, role in labels.items() if role == "facilitation"} == {"0.1", "1.0"}
    assert {head for head, role in labels.items() if role == "interference"} == {"1.2"}
    for row in own:
        if row["score"] != "role":
            assert row["low"] <= row["value"] <= row["high"]
            assert 0 <= row["value"] <= 1
