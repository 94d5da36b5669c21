"""Where the gates of the study come from: a folder, headcount's own, or a fit; and how long."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, HeadLayout, Lab, run_study, wrap
from headcount.rankings.causal_gates.fit import GateFit
from headcount.rankings.causal_gates.passes import GatedPasses
from headcount.rankings.causal_gates.result import CausalGates
from headcount.report.study import Study
from headcount.studies.head_roles import gates as role_gates
from headcount.studies.head_roles.config import Config
from headcount.studies.head_roles.gates import (
    Cell,
    announce,
    fit_settings,
    locate_gates,
    marked,
    shipped_gates,
)
from headcount.system.fingerprint import fingerprint_files

FIT: dict[str, Any] = {"updates": 2, "batch": 8}


@cache
def cell(name: str = "tiny", key: str = "toy-0") -> Cell:
    model = wrap(tiny_model("llama"), toy_tokenizer(), name=name)
    return Cell(model, name, toy_task(40), key, key)


@cache
def fitted() -> CausalGates:
    own = cell()
    return marked(
        GateFit(own.model, own.task, fit_settings(Config(seeds=3, **FIT))).result(Lab()), own
    )


def locate(of: Cell, *, seeds: int = 2, **settings: Any) -> tuple[CausalGates | GateFit, list[str]]:
    return locate_gates(of, Config(seeds=seeds, **FIT, **settings))


def located(of: Cell, **settings: Any) -> tuple[CausalGates, list[str]]:
    """Gates that need no fit."""
    gates, notes = locate(of, **settings)
    assert isinstance(gates, CausalGates)
    return gates, notes


def run(lab: Lab | None = None, **settings: Any) -> Study:
    own = {"tasks": (cell().task,), "counts": (1,), "seeds": 2, "n": 4, **FIT, **settings}
    return run_study("head-roles", cell().model, lab=lab, **own)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the gates that come with headcount."""
    monkeypatch.setattr(role_gates, "shipped_gates", lambda: tmp_path / "own")
    return tmp_path / "own"


def test_a_fit_notes_what_it_belongs_to() -> None:
    facts = fitted().parameters
    assert facts["weights"] == cell().model.identity["weights"]
    assert (facts["model"], facts["task"], facts["task_version"]) == ("tiny", "toy-0", 1)
    assert (facts["updates"], facts["seeds"]) == (2, 3)


@pytest.mark.parametrize("path", ["toy-0.json", "tiny/toy-0.json", "tiny/toy-0.json.gz"])
def test_gates_of_a_folder_are_taken_as_they_are(tmp_path: Path, path: str) -> None:
    fitted().save(tmp_path / path)
    gates, notes = located(cell(), gates=str(tmp_path))
    np.testing.assert_allclose(gates.plus, fitted().plus[:2], atol=1e-8)
    np.testing.assert_allclose(gates.minus, fitted().minus[:2], atol=1e-8)
    assert notes == []
    for role in ("facilitation", "interference"):  # files keep the order of heads
        np.testing.assert_array_equal(
            np.argsort(gates.score(role)), np.argsort(fitted().score(role)[:2])
        )


def test_gates_of_other_weights_are_noted(tmp_path: Path) -> None:
    facts = {**fitted().parameters, "weights": "others", "task_settings": {"shots": 3}}
    CausalGates(fitted().layout, fitted().plus, fitted().minus, facts).save(tmp_path / "toy-0.json")
    _, (note,) = located(cell(), gates=str(tmp_path))
    assert "fitted to other weights and settings of the task" in note


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (None, r"has no gates of tiny on toy-0: it needs tiny/toy-0\.json"),
        ("seeds", "have 3 seeds, not 4: lower --seeds"),
        ("model", "of another model: they have 6 heads in 2 layers, and tiny has 8 in 2"),
        ("task", "fitted to the task toy-1, not to toy-0"),
        ("nan", "between 0 and 1"),
        ("broken", "Cannot read causal gates"),
        ("other", "not a file of causal gates"),
        ("packed", "Cannot read causal gates from .*: it is damaged"),
    ],
)
def test_gates_that_do_not_fit_are_refused(tmp_path: Path, file: str | None, words: str) -> None:
    path, gates = tmp_path / "toy-0.json", fitted()
    if file == "model":
        gates = CausalGates(HeadLayout((3, 3)), gates.plus[:, :6], gates.minus[:, :6], {})
    if file == "task":
        gates = CausalGates(gates.layout, gates.plus, gates.minus, {"task": "toy-1"})
    if file in ("model", "task", "seeds", "nan"):
        gates.save(path)
    if file == "nan":
        path.write_text(re.sub(r'("plus": \[\n\[)[^,]+', r"\1NaN", path.read_text()))
    if file in ("broken", "other"):
        path.write_text("{" if file == "broken" else "{}")
    if file == "packed":
        path.with_suffix(".json.gz").write_bytes(b"not packed")
    with pytest.raises(HeadcountError, match=words):
        locate(cell(), gates=str(tmp_path), seeds=4 if file == "seeds" else 2)


def test_of_our_own_gates_there_may_be_fewer_than_asked_for(own: Path) -> None:
    fitted().save(own / "tiny" / "toy-0.json")
    gates, (note,) = located(cell(), seeds=4)
    assert gates.seeds == 3
    assert "come with headcount have 3 seeds, not 4" in note


def test_our_own_gates_serve_the_weights_they_were_fitted_to(own: Path) -> None:
    fitted().save(own / "tiny" / "toy-0.json")
    gates, notes = located(cell())
    np.testing.assert_allclose(gates.plus, fitted().plus[:2], atol=1e-8)
    assert notes == []
    module = tiny_model("llama")
    module.lm_head.weight.data[0] += 1
    other = Cell(wrap(module, toy_tokenizer(), name="tiny"), "tiny", cell().task, "toy-0", "toy-0")
    fit, (note,) = locate(other)
    assert isinstance(fit, GateFit)
    assert fit.settings == fit_settings(Config(seeds=2, **FIT))
    assert note.endswith("are not used: they were fitted to other weights.")


def test_our_own_gates_serve_their_weights_under_another_name(own: Path) -> None:
    """A GGUF file, which its checksum identifies, may have been renamed."""
    fitted().save(own / "tiny" / "toy-0.json.gz")
    fitted().save(own / "another" / "toy-1.json")
    renamed = Cell(cell().model, "mine", cell().task, "toy-0", "toy-0")
    gates, notes = located(renamed)
    np.testing.assert_allclose(gates.plus, fitted().plus[:2], atol=1e-8)
    assert notes == []
    # Those of other weights are not used, and not named where nothing but the task is the same.
    foreign = {**fitted().parameters, "weights": "others"}
    gates = CausalGates(fitted().layout, fitted().plus, fitted().minus, foreign)
    gates.save(own / "tiny" / "toy-0.json.gz")
    fit, notes = locate(renamed)
    assert isinstance(fit, GateFit)
    assert notes == []


def test_gates_of_a_gguf_file_are_found_by_its_checksum(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "some-model-q4.gguf"
    file.write_bytes(b"weights")
    from_file = replace(cell().model, name="some-model-q4", weight_files=[file])
    its = Cell(from_file, from_file.name, cell().task, "toy-0", "toy-0")
    facts = {**fitted().parameters, **its.identity}
    assert facts["weights"] == fingerprint_files([file]) != fitted().parameters["weights"]
    gates = CausalGates(fitted().layout, fitted().plus, fitted().minus, facts)
    gates.save(own / "some-model-q4" / "toy-0.json.gz")
    assert located(its)[1] == []
    copy = tmp_path / "renamed.gguf"
    copy.write_bytes(b"weights")
    again = replace(from_file, name="renamed", weight_files=[copy])
    _, (note,) = located(Cell(again, again.name, cell().task, "toy-0", "toy-0"))
    assert "fitted to other models by name" in note


def test_our_own_gates_serve_the_settings_they_were_fitted_with(own: Path) -> None:
    fitted().save(own / "tiny" / "toy-0.json")
    fit, (note,) = locate_gates(cell(), Config(seeds=2, variant="released", updates=3))
    assert isinstance(fit, GateFit)
    assert note.endswith("are not used: they were fitted with other settings (variant, updates).")


def test_refit_fits_whatever_there_is(own: Path) -> None:
    fitted().save(own / "tiny" / "toy-0.json")
    told: list[str] = []
    study = run(Lab(say=told.append), refit=True)
    gates = study.scores["gates/tiny/toy-0"]
    assert isinstance(gates, CausalGates)
    np.testing.assert_allclose(gates.plus, fitted().plus[:2], atol=1e-4)
    assert gates.parameters == {**fitted().parameters, "seeds": 2}
    assert len(told) == 1
    assert told[0].startswith("tiny, toy-0: fitting gates takes about ")


def test_hours_of_fitting_need_to_be_asked_for(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GateFit, "seconds", lambda *_: 9000.0)
    fits = {c: GateFit(c.model, c.task) for c in (cell(), cell(key="toy-1"))}
    with pytest.raises(
        HeadcountError,
        match=r"for tiny on toy-0, toy-1, and fitting them takes about 5\.0 hours on this "
        r"machine: add --refit .*--set gates=FOLDER",
    ):
        announce(fits, False, Lab())
    told: list[str] = []
    announce(fits, True, Lab(say=told.append))
    assert told[-1] == "All fits together take about 5.0 hours."
    monkeypatch.setattr(GatedPasses, "gradient", lambda *_: pytest.fail("fitted"))
    with pytest.raises(HeadcountError, match=r"takes about 2\.5 hours"):
        run()


def test_hours_are_refused_also_if_all_other_cells_have_gates(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two models and two tasks: three cells have gates that come along, and one has none."""
    others = [wrap(tiny_model("llama"), toy_tokenizer(), name=name) for name in ("one", "two")]
    others[1].module.lm_head.weight.data[0] += 1
    tasks = toy_task(40), replace(toy_task(40), name="toy-1")
    for model in others:
        for task in tasks:
            its = Cell(model, model.name, task, task.name, task.name)
            gates = replace(fitted(), parameters={**fitted().parameters, **its.identity})
            gates.save(own / model.name / f"{task.name}.json")
    settings: dict[str, Any] = {"tasks": tasks, "counts": (1,), "seeds": 2, "n": 4, **FIT}
    found = run_study("head-roles", others, **settings)
    assert len({(row["model"], row["task"]) for row in found.rows}) == 4
    (own / "two" / "toy-1.json").unlink()
    monkeypatch.setattr(GateFit, "seconds", lambda *_: 9000.0)
    with pytest.raises(HeadcountError, match=r"no fitted gates for two on toy-1, and fitting them"):
        run_study("head-roles", others, **settings)


def test_minutes_of_fitting_need_not(own: Path) -> None:
    told: list[str] = []
    study = run(Lab(say=told.append))
    assert study.settings["fit"]["tiny, toy-0"]["seeds"] == 2
    assert len(told) == 1


def test_small_batches_are_noted(own: Path) -> None:
    notes = run(refit=True, batch=64, seeds=1).notes
    assert notes[0].startswith("toy-0 (tiny): The whole model is at chance: Accuracy 0 [0, ")
    assert notes[1].startswith("toy-0 (tiny): 4 examples")
    assert notes[2].startswith("tiny, toy-0: the ranking split has")


def test_our_own_gates_lie_in_the_studys_folder() -> None:
    assert shipped_gates().parent.name == "head_roles"
    assert (shipped_gates() / "smollm2-135m-q4" / "syntax.json").exists()
