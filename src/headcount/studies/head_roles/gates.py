"""The causal gates of a study: given in a folder, brought along by headcount, or to be fitted.

A folder of gates has one file for each task, `MODEL/TASK.json` or, for a single model, `TASK.json`.
Those that come with headcount are in `fitted` beside this file, and serve only the weights they
were fitted to; `scripts/fit_role_gates.py` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.rankings.causal_gates.fit import FitSettings, GateFit
from headcount.rankings.causal_gates.result import CausalGates
from headcount.studies.head_roles.cells import Cell
from headcount.studies.head_roles.config import Config
from headcount.system.progress import duration

_WORDS = {
    "model": "models by name",
    "weights": "weights",
    "task": "tasks",
    "task_version": "items of the task",
    "task_settings": "settings of the task",
}
UNASKED = 30 * 60  # seconds of fitting that need no --refit


def locate_gates(cell: Cell, config: Config) -> tuple[CausalGates | GateFit, list[str]]:
    """The gates of a cell, or the fit that makes them; and sentences on where they come from.

    A folder that is named must have them; of those that come along, there may be fewer seeds.
    """
    fit = GateFit(cell.model, cell.task, config.fit)
    if config.refit:
        return fit, []
    if config.gates:
        return _given(cell, Path(config.gates), config.seeds)
    gates, notes = _shipped(cell, config.fit)
    return gates or fit, notes


def shipped_gates() -> Path:
    """The folder of the gates that come with headcount."""
    return Path(str(files("headcount.studies.head_roles") / "fitted"))


def marked(gates: CausalGates, cell: Cell) -> CausalGates:
    """Freshly fitted gates that say what they belong to."""
    return replace(gates, parameters={**cell.identity, **gates.parameters})


def announce(fits: Mapping[Cell, GateFit], refit: bool, lab: Lab) -> None:
    """Say how long fitting will take; refuse what takes long and nobody asked for."""
    times = {cell: fit.seconds(lab.store) for cell, fit in fits.items()}
    total = sum(times.values())
    if not refit and total > UNASKED:
        which = "; ".join(
            f"{label} on {', '.join(cell.name for cell in fits if cell.label == label)}"
            for label in dict.fromkeys(cell.label for cell in fits)
        )
        raise HeadcountError(
            f"There are no fitted gates for {which}, and fitting them takes about "
            f"{duration(total)} on this machine: say --refit to do so (a GPU is far faster, fewer "
            "--seeds help), or name a folder of fitted ones with --set gates=FOLDER."
        )
    for cell, seconds in times.items():
        if seconds:
            lab.say(f"{cell}: fitting gates takes about {duration(seconds)} here.")
    if len(fits) > 1 and total:
        lab.say(f"All together: about {duration(total)}.")


def _given(cell: Cell, folder: Path, seeds: int) -> tuple[CausalGates, list[str]]:
    """Gates from a folder that was named; refuses what it does not have."""
    paths = folder / cell.folder / f"{cell.file}.json", folder / f"{cell.file}.json"
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise HeadcountError(
            f"The folder {folder} has no gates of {cell.label} on {cell.key}: it needs "
            f"{cell.folder}/{cell.file}.json, or {cell.file}.json for a single model."
        )
    gates, layout = CausalGates.load(path), cell.model.layout
    if gates.layout != layout:
        raise HeadcountError(
            f"The gates in {path} are of another model: they have {gates.layout.total} heads in "
            f"{len(gates.layout.counts)} layers, and {cell.label} has {layout.total} in "
            f"{len(layout.counts)}."
        )
    other = _other(gates, cell)
    if "task" in other:
        raise HeadcountError(
            f"The gates in {path} were fitted to the task {gates.parameters['task']}, not to "
            f"{cell.key}."
        )
    if seeds > gates.seeds:
        raise HeadcountError(
            f"The gates in {path} have {_seeds(gates)}, not {seeds}: ask for fewer with --seeds, "
            "or fit your own with --refit."
        )
    return gates.first(seeds), _noted(other, cell, path)


def _shipped(cell: Cell, asked: FitSettings) -> tuple[CausalGates | None, list[str]]:
    """Gates that come with headcount, unless they are of something else than what is asked."""
    path = shipped_gates() / cell.folder / f"{cell.file}.json"
    if not path.exists():
        return None, []
    gates = CausalGates.load(path)
    unused = f"The gates that come with headcount for {cell.label} on {cell.name} are not used: "
    other = _other(gates, cell)
    if set(other) - {"model"} or gates.layout != cell.model.layout:
        return None, [f"{unused}they were fitted to other {_words(other)}."]
    wanted = {"variant": asked.variant, "updates": asked.updates}
    how = [name for name in wanted if gates.parameters.get(name, wanted[name]) != wanted[name]]
    if how:
        return None, [f"{unused}they were fitted with other settings ({', '.join(how)})."]
    notes = _noted(other, cell, path)
    if asked.seeds > gates.seeds:
        few = f"{cell}: the gates that come with headcount have {_seeds(gates)}, not {asked.seeds}"
        notes = [f"{few}; --refit fits more.", *notes]
    return gates.first(asked.seeds), notes


def _other(gates: CausalGates, cell: Cell) -> list[str]:
    """What gates were fitted to that is not the cell's; what they do not say is taken on trust."""
    own = cell.identity
    return [name for name, fact in own.items() if gates.parameters.get(name, fact) != fact]


def _noted(other: Sequence[str], cell: Cell, path: Path) -> list[str]:
    if not other:
        return []
    return [f"{cell}: the gates in {path} were fitted to other {_words(other)}."]


def _words(other: Sequence[str]) -> str:
    return " and ".join(_WORDS[name] for name in other)


def _seeds(gates: CausalGates) -> str:
    return f"{gates.seeds} seed{'s' * (gates.seeds > 1)}"
