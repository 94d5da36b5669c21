"""The study `contrast`: what it concludes, and that a folder of it can be verified."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import counting
from rankings.causal_gates.gate_cases import interrupted
from tiny import tiny_model
from toy import word_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from headcount import HeadcountError, Lab, wrap
from headcount.claims import Claim
from headcount.heads import HeadLayout
from headcount.models.model import Model
from headcount.rankings.causal_gates.contrast import ContrastiveGates
from headcount.store import Store
from headcount.studies.contrast.config import FORMS
from headcount.studies.contrast.estimates import estimate
from headcount.studies.contrast.fits import (
    CONTROLS,
    GATES,
    HEADS,
    LEARNED,
    METRICS,
    WHOLE,
    AbleRequest,
    Tried,
    head_sets,
    within_layers,
)
from headcount.studies.contrast.panels import COLUMNS, SHARED
from headcount.studies.contrast.study import KIND
from headcount.studies.verify import verify
from headcount.tasks.items import tables
from headcount.tasks.skills import SKILLS
from headcount.value_table import ValueTable

QUICK: dict[str, Any] = {
    "skills": ("antonym", "present-past", "singular-plural"),
    "left_out": ("antonym",),
    "n": 6,
    "tried": 6,
    "updates": 3,
    "batch": 4,
    "seeds": 2,
    "random": 2,
    "shots": 2,
    "variant": "published",
}


def model_of_words() -> Model:
    """A tiny random model that knows every word of the skills."""
    data = tables("skills")
    text = " ".join(line for section in data for line in data.lines(section))
    plain = text.replace(r"\n", " ").replace("{}", " ").split()
    marks = [f"{word}{mark}" for word in data.pairs("antonym") for mark in "?.:,"]
    words = dict.fromkeys([*plain, *(word.strip(":") for word in plain), *marks])
    tokenizer = word_tokenizer(tuple(words))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=8,
    )
    return wrap(LlamaForCausalLM(config).eval(), tokenizer, name="words")


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of_words()


def let_pass(monkeypatch: pytest.MonkeyPatch, but: str = "") -> None:
    """Let the model pass for one that can do all skills but this one."""
    usual = AbleRequest.result

    def passing(self: AbleRequest, lab: Lab) -> dict[tuple[str, str], Tried]:
        return {key: replace(own, able=key[0] != but) for key, own in usual(self, lab).items()}

    monkeypatch.setattr(AbleRequest, "result", passing)


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    let_pass(monkeypatch, but="singular-plural")


def test_a_run_is_a_folder_that_can_be_verified(
    model: Model, able: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = KIND.describe([model], KIND.configure("quick", **QUICK))
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        bound = description.cost(lab)
        with pytest.MonkeyPatch.context() as patch:
            interrupted(patch, 5, KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                description.carry_out(lab)
        study = description.carry_out(lab)
        assert 0 < lab.measured["value"] <= bound.count("value")
        interrupted(monkeypatch, 0, AssertionError)  # all fits are known
        again = description.carry_out(Lab(store, progress=False))
        left = description.cost(Lab(store, progress=False))
        assert (left.tokens, left.known > 0) == (0, True)
    assert again.rows == study.rows
    study.save(tmp_path / "result")
    found = verify(tmp_path / "result")
    assert found.differences == ()
    assert found.numbers > 100
    assert {"figure", "accuracy"} == set(study.figures)
    assert {claim.verdict for claim in study.claims} == {"not comparable"}  # it is at chance
    assert any("Singular-Plural (in-context)" in note for note in study.notes)
    gates = study.tables["Gates"]
    assert [row["fitted to"] for row in gates] == ["present-past"] * 2
    assert {row["kept"] for row in gates} == set(FORMS)
    assert any("did not converge" in note for note in study.notes)
    drawn = study.values.get(
        model="words", task="antonym", form=FORMS[0], kept=FORMS[0], metric=METRICS[0],
        series=CONTROLS[0], count=study.facts["shut"][f"antonym {FORMS[0]}"],
    )  # fmt: skip
    assert drawn.shape == (4, 6)  # two draws for each of two fits


def test_the_cost_is_what_is_measured(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    let_pass(monkeypatch)
    few = {**QUICK, "keep": ("in-context",), "skills": ("antonym", "present-past")}
    description = KIND.describe([model], KIND.configure("quick", **few))
    lab = Lab(store=None, progress=False)
    with counting() as ran:
        ahead = description.cost(lab)
    assert not ran
    with counting() as ran:
        description.carry_out(lab)
    measured = lab.measured["value"]
    # Random heads may be drawn twice: the model has six.
    assert measured <= ahead.count("value") <= 1.5 * measured
    by_kind = Counter[str]()
    for item in ahead.items:
        by_kind[item.kind] += item.tokens
    assert by_kind["gradients"] == ran["gradients"] > 0


def test_a_model_that_can_do_nothing_is_told_by_name(model: Model) -> None:
    study = KIND.describe([model], KIND.configure("quick", **QUICK)).carry_out(
        Lab(store=None, progress=False)
    )
    assert [claim.verdict for claim in study.claims] == ["not tested", "not tested"]
    assert study.figures == {}
    assert re.search(r"not clearly above chance .*Antonym \(instruction\)", study.notes[0])


def test_nothing_to_keep_is_refused(
    model: Model, able: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**QUICK, "skills": ("antonym", "singular-plural")}
    with pytest.raises(HeadcountError, match=r"does no skill but antonym above chance"):
        KIND.describe([model], KIND.configure("quick", **settings)).carry_out(
            Lab(store=None, progress=False)
        )


def test_bad_settings_are_refused_in_a_sentence() -> None:
    for settings, words in (
        ({"skills": ("antonim",)}, r'no skill "antonim".*"antonym"\?'),
        ({"left_out": ("cooking",)}, 'no skill "cooking"'),
        ({"keep": ("both",)}, 'no form "both"'),
        ({"keep": ()}, "keep with at least one name"),
        ({"skills": ("antonym", "antonym")}, "each once"),
        ({"skills": ("antonym",), "left_out": ("antonym",)}, "besides the one that is left out"),
        ({"variant": "released"}, 'no variant of contrastive gates "released"'),
        ({"updates": 0}, "updates from 1"),
        ({"updates": 10**8}, "updates from 1 to 100,000, not 100,000,000"),
        ({"seeds": 1}, "seeds from 2"),
        ({"shots": 100}, "shots from 1 to 12"),
        ({"n": 1}, "n of at least 2"),
    ):
        chosen: dict[str, Any] = settings
        with pytest.raises(HeadcountError, match=words):
            KIND.configure("quick", **chosen)


def test_random_head_sets_are_as_large_and_sit_in_the_same_layers() -> None:
    layout = HeadLayout((6, 4, 5))
    soft = np.random.default_rng(1).random((3, layout.total))
    entries = list(head_sets(ContrastiveGates(layout, soft), random=4))
    sets = {
        label: [e.gates for e in entries if e.label == label] for label in (*LEARNED, *CONTROLS)
    }
    assert {label: len(some) for label, some in sets.items()} == {
        **dict.fromkeys(LEARNED, 3),
        **dict.fromkeys(CONTROLS, 12),
    }
    np.testing.assert_array_equal(sets[GATES], soft.astype(np.float32))
    for seed, learned in enumerate(sets[HEADS]):
        np.testing.assert_array_equal(learned == 0, soft[seed] < 0.5)
        for control in CONTROLS:
            for drawn in sets[control][4 * seed : 4 * seed + 4]:
                assert (drawn == 0).sum() == (learned == 0).sum()
        for drawn in sets[CONTROLS[1]][4 * seed : 4 * seed + 4]:
            per_layer = [np.bincount(layout.layers[g == 0], minlength=3) for g in (drawn, learned)]
            assert per_layer[0].tolist() == per_layer[1].tolist()
    different = {within_layers(soft[0] < 0.5, layout, np.random.default_rng(s)).tobytes()
                 for s in range(20)}  # fmt: skip
    assert len(different) > 10


def result(changes: dict[tuple[str, str], float], *, right: float = 0.9) -> list[Claim]:
    """The claims from values with these mean changes, by role of the form and series."""
    values, model = ValueTable(COLUMNS, SHARED), "made"
    rng = np.random.default_rng(0)
    skills, n, fits = ("antonym", "present-past"), 90, 3
    chance = {"level": 0.02, "how": "always giving the commonest answer"}
    for skill in skills:
        for form in FORMS:
            own = {"model": model, "task": skill, "form": form}
            names = [(f"{i}", f"{skill} {form} {i % 6}", f"w{i // 6}") for i in range(n)]
            values.name_examples(names, **own)
            whole = {METRICS[0]: rng.normal(-1, 0.3, n), METRICS[1]: np.arange(n) < right * n}
            for metric, table in whole.items():
                values.put(table, **own, kept="", metric=metric, series=WHOLE, count=0)
                for kept in FORMS:
                    for series in (*LEARNED, *CONTROLS):
                        change = changes["kept" if kept == form else "forgotten", series]
                        moved = table + rng.normal(change, 0.2, (fits, n))
                        if metric == METRICS[1]:
                            moved = np.repeat(table[None], fits, 0)
                        values.put(moved, **own, kept=kept, metric=metric, series=series, count=20)
    facts = {
        "model": model,
        "heads": 100,
        "names": SKILLS,
        "able": [
            {"task": s, "form": f, "accuracy": 0.9, "low": 0.8, "high": 1.0, "chance": chance,
             "able": True} for s in skills for f in FORMS
        ],
        "panels": [{"task": s, "kept": k, "fitted": []} for s in skills for k in FORMS],
        "shut": {f"{s} {k}": 20 for s in skills for k in FORMS},
        "seeds": fits,
    }  # fmt: skip
    return list(estimate(values, facts).claims)


def verdicts(claims: list[Claim]) -> list[str]:
    """Those of the first form: gates and heads stay, fall, and are selective; accuracy stays."""
    assert verdict_list(claims[7:]) == verdict_list(claims[:7])
    return verdict_list(claims[:7])


def verdict_list(claims: list[Claim]) -> list[str]:
    return [claim.verdict for claim in claims]


WELL = {
    **{("kept", series): -0.1 for series in LEARNED},
    **{("forgotten", series): -5.0 for series in LEARNED},
    **{(role, control): -2.0 for role in ("kept", "forgotten") for control in CONTROLS},
}


def test_claims_of_gates_that_do_what_they_should() -> None:
    assert verdicts(result(WELL)) == ["supported"] * 7


def test_claims_of_gates_that_destroy_both_forms() -> None:
    both = dict.fromkeys(WELL, -5.0)
    found = verdicts(result(both))
    assert found == ["refuted", "refuted", "refuted"] * 2 + ["supported"]


def test_random_heads_that_destroy_as_much_leave_selectivity() -> None:
    """Where any heads lower both forms, the forgotten form falls no further under the gates."""
    random = WELL | {(role, c): -5.0 for role in ("kept", "forgotten") for c in CONTROLS}
    assert verdicts(result(random)) == ["supported", "refuted", "supported"] * 2 + ["supported"]


def test_a_skill_at_chance_is_not_comparable() -> None:
    claims = result(WELL, right=0.0)
    assert {claim.verdict for claim in claims} == {"not comparable"}
    assert "at chance on Antonym, Present-Past" in claims[0].reason


def test_one_model_at_a_time() -> None:
    tiny = wrap(tiny_model("llama"), word_tokenizer(("a", "b")))
    with pytest.raises(HeadcountError, match="takes one model at a time"):
        KIND.describe([tiny, tiny], KIND.configure("quick"))
