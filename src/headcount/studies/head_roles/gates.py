"""The causal gates of a study: given in a folder, brought along by headcount, or fitted here.

A folder of gates has one file for each task, `MODEL/TASK.json` or, for a single model, `TASK.json`.
Those that come with headcount are in `studies/gates`, and serve only the weights they were fitted
to; `scripts/fit_role_gates.py` makes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import fit_gates, fit_time
from headcount.rankings.causal_gates.result import CausalGates
from headcount.store import Store
from headcount.system.progress import duration
from headcount.tasks import Task

_WORDS = {
    "model": "models by name",
    "weights": "weights",
    "task": "tasks",
    "task_version": "items of the task",
    "task_settings": "settings of the task",
}
UNASKED = 30 * 60  # seconds of fitting that need no --refit


@dataclass(frozen=True, eq=False)
class Cell:
    """One cell of the study's grid: a model under its label, and a task under its key and name."""

    model: Model
    label: str
    task: Task
    key: str
    name: str


def obtain_gates(
    cells: Sequence[Cell],
    *,
    seeds: int,
    folder: str = "",
    refit: bool = False,
    options: Mapping[str, Any],
    store: Store | None = None,
    progress: bool = True,
    say: Callable[[str], object] = lambda text: None,
) -> tuple[list[CausalGates], list[str]]:
    """The gates of each cell, and sentences on where they come from.

    What has to be fitted is fitted after all else was found: nobody waits for hours to hear that
    another cell's file cannot be read. `options` are those of `fit_gates`.
    """
    notes: list[str] = []
    found = [None if refit else _find(folder, cell, seeds, options, notes) for cell in cells]
    missing = [cell for cell, gates in zip(cells, found, strict=True) if gates is None]
    options = {**options, "seeds": seeds, "store": store}
    if missing:
        times = [fit_time(cell.model, cell.task, **options) for cell in missing]
        _announce(missing, times, refit, say)
    fitted = [
        gates or fit_for(cell.model, cell.key, cell.task, progress=progress, **options)
        for cell, gates in zip(cells, found, strict=True)
    ]
    for cell, gates in zip(cells, fitted, strict=True):
        if gates.parameters.get("note"):
            notes.append(f"{cell.label}, {cell.name}: {gates.parameters['note']}.")
    return fitted, notes


def fit_for(model: Model, key: str, task: Task, **options: Any) -> CausalGates:
    """Fit gates, and note what they belong to."""
    gates = fit_gates(model, task, **options)
    return replace(gates, parameters={**_facts(model, key, task), **gates.parameters})


def file_name(name: str) -> str:
    """A name as part of a path: no slashes, and not a step up.

    >>> file_name("Qwen/Qwen3-0.6B"), file_name("..")
    ('Qwen-Qwen3-0.6B', '--')
    """
    kept = "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in name)
    return kept if kept.strip(".") else "-" * len(kept)


def committed_gates() -> Path:
    """The folder of the gates that come with headcount."""
    return Path(str(files("headcount.studies") / "gates"))


def _facts(model: Model, key: str, task: Task) -> dict[str, Any]:
    """What gates belong to: other weights, or the task in another form, need their own."""
    return {
        "model": model.name,
        "weights": model.identity["weights"],
        "task": key,
        "task_version": task.version,
        "task_settings": json.loads(json.dumps(dict(task.parameters), default=str)),
    }


def _announce(
    missing: Sequence[Cell],
    times: Sequence[float],
    refit: bool,
    say: Callable[[str], object],
) -> None:
    """Say how long fitting will take; refuse what takes long and nobody asked for."""
    total = sum(times)
    if not refit and total > UNASKED:
        which = "; ".join(
            f"{label} on {', '.join(cell.name for cell in missing if cell.label == label)}"
            for label in dict.fromkeys(cell.label for cell in missing)
        )
        raise HeadcountError(
            f"There are no fitted gates for {which}, and fitting them takes about "
            f"{duration(total)} on this machine: say --refit to do so (a GPU is far faster, fewer "
            "--seeds help), or name a folder of fitted ones with --set gates=FOLDER."
        )
    for cell, seconds in zip(missing, times, strict=True):
        if seconds:
            say(f"{cell.label}, {cell.name}: fitting gates takes about {duration(seconds)} here.")
    if len(missing) > 1 and total:
        say(f"All together: about {duration(total)}.")


def _find(
    folder: str, cell: Cell, seeds: int, options: Mapping[str, Any], notes: list[str]
) -> CausalGates | None:
    """Gates from a file, of as many seeds as asked for; None where there are none to be had.

    A folder that is named must have them all; of those that come along, there may be fewer.
    """
    base = Path(folder) if folder else committed_gates()
    path = base / file_name(cell.label) / f"{file_name(cell.key)}.json"
    if folder and not path.exists():
        path = base / f"{file_name(cell.key)}.json"
    if not path.exists():
        if not folder:
            return None
        raise HeadcountError(
            f"The folder {folder} has no gates of {cell.label} on {cell.key}: it needs "
            f"{file_name(cell.label)}/{file_name(cell.key)}.json, or {file_name(cell.key)}.json "
            "for a single model."
        )
    gates = CausalGates.load(path)
    facts = _facts(cell.model, cell.key, cell.task)
    other = [name for name, fact in facts.items() if gates.parameters.get(name, fact) != fact]
    if not folder and (set(other) - {"model"} or gates.layout != cell.model.layout):
        notes.append(
            f"The gates that come with headcount for {cell.label} on {cell.name} are not used: "
            f"they were fitted to other {' and '.join(_WORDS[name] for name in other)}."
        )
        return None
    how = [
        name
        for name in ("variant", "updates")
        if gates.parameters.get(name, options.get(name)) != options.get(name)
    ]
    if not folder and how:
        notes.append(
            f"The gates that come with headcount for {cell.label} on {cell.name} are not used: "
            f"they were fitted with other settings ({', '.join(how)})."
        )
        return None
    if gates.layout != cell.model.layout:
        raise HeadcountError(
            f"The gates in {path} are of another model: they have {gates.layout.total} heads in "
            f"{len(gates.layout.counts)} layers, and {cell.label} has {cell.model.layout.total} in "
            f"{len(cell.model.layout.counts)}."
        )
    if "task" in other:
        raise HeadcountError(
            f"The gates in {path} were fitted to the task {gates.parameters['task']}, not to "
            f"{cell.key}."
        )
    if seeds > gates.seeds and not folder:
        notes.append(
            f"{cell.label}, {cell.name}: the gates that come with headcount have {gates.seeds} "
            f"seed{'s' * (gates.seeds > 1)}, not {seeds}; --refit fits more."
        )
    elif seeds > gates.seeds:
        raise HeadcountError(
            f"The gates in {path} have {gates.seeds} seed{'s' * (gates.seeds > 1)}, not {seeds}: "
            "ask for fewer with --seeds, or fit your own with --refit."
        )
    if other:
        words = " and ".join(_WORDS[name] for name in other)
        notes.append(
            f"{cell.label}, {cell.name}: the gates in {path} were fitted to other {words}."
        )
    return CausalGates(gates.layout, gates.plus[:seeds], gates.minus[:seeds], gates.parameters)
