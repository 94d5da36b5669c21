"""Where the gates of the study come from: a folder, headcount's own, or a fit; and how long."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, HeadLayout, wrap
from headcount.rankings.causal_gates.result import CausalGates
from headcount.studies.head_roles import gates as role_gates
from headcount.studies.head_roles.gates import (
    Cell,
    committed_gates,
    duration,
    file_name,
    fit_for,
    obtain_gates,
)

FIT: dict[str, Any] = {"updates": 2, "batch": 8, "variant": "published", "compiled": False}


@cache
def cell(name: str = "tiny", key: str = "toy-0") -> Cell:
    model = wrap(tiny_model("llama"), toy_tokenizer(), name=name)
    return Cell(model, name, toy_task(40), key, key)


@cache
def fitted() -> CausalGates:
    one = cell()
    return fit_for(one.model, one.key, one.task, seeds=3, progress=False, **FIT)


def obtain(*cells: Cell, seeds: int = 2, **how: Any) -> tuple[list[CausalGates], list[str]]:
    return obtain_gates(cells, seeds=seeds, options=FIT, progress=False, **how)


def no_fit(*_: Any, **__: Any) -> Any:
    pytest.fail("fitted")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the gates that come with headcount."""
    monkeypatch.setattr(role_gates, "committed_gates", lambda: tmp_path / "own")
    return tmp_path / "own"


def test_a_fit_notes_what_it_belongs_to() -> None:
    facts = fitted().parameters
    assert facts["weights"] == cell().model.identity["weights"]
    assert (facts["model"], facts["task"], facts["task_version"]) == ("tiny", "toy-0", 1)
    assert (facts["updates"], facts["seeds"]) == (2, 3)


@pytest.mark.parametrize("path", ["toy-0.json", "tiny/toy-0.json"])
def test_gates_of_a_folder_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(role_gates, "fit_gates", no_fit)
    fitted().save(tmp_path / path)
    (found,), notes = obtain(cell(), folder=str(tmp_path))
    np.testing.assert_allclose(found.plus, fitted().plus[:2], atol=1e-8)
    np.testing.assert_allclose(found.minus, fitted().minus[:2], atol=1e-8)
    assert notes == []
    for role in ("facilitation", "interference"):  # files keep the order of heads
        np.testing.assert_array_equal(
            np.argsort(found.score(role)), np.argsort(fitted().score(role)[:2])
        )


def test_gates_of_other_weights_are_noted(tmp_path: Path) -> None:
    facts = {**fitted().parameters, "weights": "others", "task_settings": {"shots": 3}}
    CausalGates(fitted().layout, fitted().plus, fitted().minus, facts).save(tmp_path / "toy-0.json")
    _, (note,) = obtain(cell(), folder=str(tmp_path))
    assert "fitted to other weights and settings of the task" in note


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (None, r"has no gates of tiny on toy-0: it needs tiny/toy-0\.json"),
        ("seeds", "have 3 seeds, not 4: ask for fewer"),
        ("model", "of another model: they have 6 heads in 2 layers, and tiny has 8 in 2"),
        ("task", "fitted to the task toy-1, not to toy-0"),
        ("nan", "between 0 and 1"),
        ("broken", "Cannot read causal gates"),
        ("other", "not a file of causal gates"),
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
    with pytest.raises(HeadcountError, match=words):
        obtain(cell(), folder=str(tmp_path), seeds=4 if file == "seeds" else 2)


def test_of_our_own_gates_there_may_be_fewer_than_asked_for(own: Path) -> None:
    fitted().save(own / "tiny" / "toy-0.json")
    (found,), (note,) = obtain(cell(), seeds=4)
    assert found.seeds == 3
    assert "come with headcount have 3 seeds, not 4" in note


def test_our_own_gates_serve_the_weights_they_were_fitted_to(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted().save(own / "tiny" / "toy-0.json")
    with monkeypatch.context() as patch:
        patch.setattr(role_gates, "fit_gates", no_fit)
        (found,), notes = obtain(cell())
    np.testing.assert_allclose(found.plus, fitted().plus[:2], atol=1e-8)
    assert notes == []
    module = tiny_model("llama")
    module.lm_head.weight.data[0] += 1
    other = Cell(wrap(module, toy_tokenizer(), name="tiny"), "tiny", cell().task, "toy-0", "toy-0")
    (fresh,), (note,) = obtain(other)
    assert fresh.parameters["weights"] == other.model.identity["weights"]
    assert note.endswith("are not used: they were fitted to other weights.")


def test_refit_fits_whatever_there_is(own: Path) -> None:
    fitted().save(own / "tiny" / "toy-0.json")
    told: list[str] = []
    (found,), _ = obtain(cell(), refit=True, say=told.append)
    np.testing.assert_allclose(found.plus, fitted().plus[:2], atol=1e-4)
    assert len(told) == 1
    assert told[0].startswith("tiny, toy-0: fitting gates takes about ")


def test_hours_of_fitting_need_to_be_asked_for(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_gates, "fit_time", lambda *_, **__: 9000.0)
    with monkeypatch.context() as patch:
        patch.setattr(role_gates, "fit_gates", no_fit)
        with pytest.raises(
            HeadcountError,
            match=r"for tiny on toy-0, toy-1, and fitting them takes about 5\.0 hours on this "
            r"machine: say --refit .*--set gates=FOLDER",
        ):
            obtain(cell(), cell(key="toy-1"))
    told: list[str] = []
    found, _ = obtain(cell(), cell(key="toy-1"), refit=True, say=told.append)
    assert len(found) == 2
    assert told[-1] == "All together: about 5.0 hours."


def test_minutes_of_fitting_need_not(own: Path) -> None:
    told: list[str] = []
    (found,), _ = obtain(cell(), say=told.append)
    assert found.seeds == 2
    assert len(told) == 1


def test_small_batches_are_noted(own: Path) -> None:
    _, (note,) = obtain_gates(
        [cell()], seeds=1, options={**FIT, "batch": 64}, refit=True, progress=False
    )
    assert note.startswith("tiny, toy-0: the ranking part has")


def test_words_and_paths() -> None:
    assert duration(50) == "50 seconds"
    assert duration(5401) == "1.5 hours"
    assert file_name("org/Model 1.5:x") == "org-Model-1.5-x"
    assert file_name("..") == "--"
    assert committed_gates().parent.name == "studies"
