"""The study `contrast`: what it concludes, and that a folder of it can be verified."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import counting
from planted_skills import SKILLS as PLANTED
from planted_skills import UNABLE, plant_skills
from rankings.causal_gates.gate_cases import interrupted
from tiny import tiny_model
from toy import word_tokenizer

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
    head_sets,
    within_layers,
)
from headcount.studies.contrast.panels import COLUMNS, SHARED
from headcount.studies.contrast.study import KIND
from headcount.studies.verify import verify
from headcount.tasks.skills import SKILLS
from headcount.value_table import ValueTable

TOLD, SHOWN = ("0.1", "1.3"), ("0.2", "1.0")  # the planted heads of either form
QUICK: dict[str, Any] = {
    "skills": (UNABLE, "country-capital", "present-past"),
    "left_out": ("country-capital",),
    "n": 6,
    "tried": 12,
    "updates": 3,
    "batch": 4,
    "seeds": 2,
    "random": 2,
    "shots": 2,
    "variant": "published",
}
# Updates, fits, draws and prompts with which fits converge and intervals decide.
ENOUGH: dict[str, Any] = {
    "skills": PLANTED,
    "n": 60,
    "updates": 40,
    "batch": 8,
    "seeds": 3,
    "random": 4,
    "variant": "short",
}


@pytest.fixture(scope="module")
def model() -> Model:
    """Two heads serve instructions, and two others solved examples."""
    return plant_skills(told=TOLD, shown=SHOWN)


def carried_out(model: Model, **settings: Any) -> Study:
    description = KIND.describe([model], KIND.configure("quick", **{**QUICK, **settings}))
    return description.carry_out(Lab(store=None, progress=False))


def by_heads(study: Study, kept: str) -> dict[str, float]:
    """The score of each head in the fits that keep a form."""
    scores = study.scores[f"country-capital-{kept}-kept"]
    return {str(head): value for head, value in zip(scores.layout, scores.values, strict=True)}


def test_of_two_forms_with_heads_of_their_own_one_is_kept_and_the_other_forgotten(
    model: Model,
) -> None:
    """Fitted to two planted skills, the gates do on a third one what they were fitted for."""
    study = carried_out(model, **ENOUGH)
    assert [claim.verdict for claim in study.claims] == ["supported"] * 14
    for kept, needed, gone in (("in-context", SHOWN, TOLD), ("instruction", TOLD, SHOWN)):
        scores = by_heads(study, kept)
        assert min(scores[head] for head in gone) > 0.9  # shut
        assert max(score for head, score in scores.items() if head not in gone) < 0.1
        assert all(scores[head] < 0.1 for head in needed)
        change = {(r["role"], r["metric"]): r["value"] for r in study.rows
                  if (r["kept"], r["series"]) == (kept, HEADS)}  # fmt: skip
        assert change["kept", METRICS[0]] == pytest.approx(0, abs=0.01)
        assert change["forgotten", METRICS[0]] < -5
        assert change["forgotten", METRICS[1]] == -1
    assert {row["heads shut"] for row in study.tables["Gates"]} == {2}


def test_where_the_same_heads_serve_both_forms_neither_is_forgotten() -> None:
    study = carried_out(plant_skills(told=TOLD, shown=TOLD), **ENOUGH, keep=("in-context",))
    stays, falls, selective = (claim.verdict for claim in study.claims[:3])
    assert (stays, falls, selective) == ("supported", "refuted", "refuted")
    assert max(by_heads(study, "in-context").values()) < 0.1  # all gates stay open


def test_a_run_is_a_folder_that_can_be_verified(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert len(study.claims) == 14
    assert any("Antonym (in-context)" in note for note in study.notes)
    gates = study.tables["Gates"]
    assert [row["fitted to"] for row in gates] == ["present-past"] * 2
    assert {row["kept"] for row in gates} == set(FORMS)
    assert any("did not converge" in note for note in study.notes)
    drawn = study.values.get(
        model=model.name, task="country-capital", form=FORMS[0], kept=FORMS[0], metric=METRICS[0],
        series=CONTROLS[0], count=study.facts["shut"][f"country-capital {FORMS[0]}"],
    )  # fmt: skip
    assert drawn.shape == (4, 6)  # two draws for each of two fits


def test_the_cost_is_what_is_measured(model: Model) -> None:
    few = {**QUICK, "keep": ("in-context",), "skills": ("country-capital", "present-past")}
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


def test_a_skill_that_the_model_cannot_do_is_told_by_name(model: Model) -> None:
    study = carried_out(model, left_out=(UNABLE,))
    assert [claim.verdict for claim in study.claims] == ["not tested", "not tested"]
    assert study.figures == {}
    assert re.search(r"not clearly above chance .*Antonym \(instruction\)", study.notes[0])


def test_nothing_to_keep_is_refused(model: Model) -> None:
    with pytest.raises(HeadcountError, match=r"no skill but country-capital above chance"):
        carried_out(model, skills=("country-capital", UNABLE))


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
