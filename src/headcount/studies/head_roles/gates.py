"""The grid of the study, models × tasks, and the causal gates of its cells.

Gates are read from a folder of the user, come with headcount, or are fitted. A folder of gates has
one file for each task, `MODEL/TASK.json` or, for a single model, `TASK.json`; both may be
compressed (`.json.gz`). The gates that come with headcount are in the folder `fitted` and are used
only with the weights they were fitted to, whatever the model is called: a GGUF file may have been
renamed. `scripts/fit_role_gates.py` makes them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError, counted
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import FitSettings, GateFit
from headcount.rankings.causal_gates.result import CausalGates
from headcount.registry import settings_of
from headcount.studies.head_roles.config import ROWS, Config
from headcount.system.files import safe_name
from headcount.system.progress import duration
from headcount.tasks import TASKS, Task, make_task

_WORDS = {
    "model": "models by name",
    "weights": "weights",
    "task": "tasks",
    "task_version": "items of the task",
    "task_settings": "settings of the task",
}
UNASKED = 30 * 60  # seconds: a longer fit needs --refit


@dataclass(frozen=True, eq=False)
class Cell:
    """One cell of the grid: a model under its label, and a task under its key and name."""

    model: Model
    label: str
    task: Task
    key: str
    name: str

    def __str__(self) -> str:
        return f"{self.label}, {self.name}"

    @property
    def folder(self) -> str:
        """The model's label as the name of a folder."""
        return safe_name(self.label)

    @property
    def file(self) -> str:
        """The task's key as the name of a file."""
        return safe_name(self.key)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The facts that gates belong to: other weights or other task settings need other gates."""
        return {
            "model": self.model.name,
            "weights": self.model.identity["weights"],
            "task": self.key,
            "task_version": self.task.version,
            "task_settings": json.loads(json.dumps(dict(self.task.parameters), default=str)),
        }

    def validation(self, n: int) -> Task:
        """The task with `n` validation prompts (0: all), on which no gate was fitted."""
        test = self.task.split("test")
        return test.subset(n) if n and n < len(test) else test

    def foreign(self, gates: CausalGates) -> list[str]:
        """The facts in which gates differ from the cell; facts they do not record are trusted."""
        own = self.identity
        return [name for name, fact in own.items() if gates.parameters.get(name, fact) != fact]


def make_cells(models: Sequence[Model], config: Config) -> list[Cell]:
    """One cell for each model and task; a number is appended to a repeated model name."""
    cells: list[Cell] = []
    seen: Counter[str] = Counter()
    for model in models:
        seen[model.name] += 1
        number = seen[model.name]
        label = model.name if number == 1 else f"{model.name} ({number})"
        by_key: dict[str, Cell] = {}
        for spec in config.tasks:
            key = spec.name if isinstance(spec, Task) else Path(spec).name.removesuffix(".jsonl")
            if key in by_key:
                raise HeadcountError(f'Two tasks have the name "{key}": rename one of the files.')
            settings = settings_of(config.task_settings, str(spec))
            task = make_task(spec, model.tokenizer, **settings)
            row = ROWS.get(key, key)
            if row in {cell.name for cell in by_key.values()}:
                row = TASKS[key].name
            by_key[key] = Cell(model, label, task, key, row)
        cells += by_key.values()
    return cells


def fit_settings(config: Config) -> FitSettings:
    """The settings of a fit."""
    return FitSettings(
        config.updates, config.batch, config.seeds, config.variant, compiled=config.compiled
    )


def locate_gates(cell: Cell, config: Config) -> tuple[CausalGates | GateFit, list[str]]:
    """The gates of a cell, or the fit that makes them, and notes on where the gates come from.

    A folder that the user names must have the gates. The gates that come with headcount may have
    fewer seeds than the config asks for.
    """
    fit = GateFit(cell.model, cell.task, fit_settings(config))
    if config.refit:
        return fit, []
    if config.gates:
        return _given(cell, Path(config.gates), config.seeds)
    gates, notes = _shipped(cell, config)
    return gates or fit, notes


def shipped_gates() -> Path:
    """The folder of the gates that come with headcount."""
    return Path(str(files("headcount.studies.head_roles") / "fitted"))


def marked(gates: CausalGates, cell: Cell) -> CausalGates:
    """Add to newly fitted gates the facts that they belong to."""
    return replace(gates, parameters={**cell.identity, **gates.parameters})


def announce(fits: Mapping[Cell, GateFit], refit: bool, lab: Lab) -> None:
    """Say how long fitting will take; refuse a long fit unless `refit` asks for it."""
    times = {cell: fit.seconds(lab.store) for cell, fit in fits.items()}
    total = sum(times.values())
    if not refit and total > UNASKED:
        which = "; ".join(
            f"{label} on {', '.join(cell.name for cell in fits if cell.label == label)}"
            for label in dict.fromkeys(cell.label for cell in fits)
        )
        raise HeadcountError(
            f"There are no fitted gates for {which}, and fitting them takes about "
            f"{duration(total)} on this machine: add --refit to fit them (a GPU is far faster, and "
            "fewer --seeds take less time), or name a folder of gates with --set gates=FOLDER."
        )
    for cell, seconds in times.items():
        if seconds:
            lab.say(f"{cell}: fitting gates takes about {duration(seconds)} on this machine.")
    if len(fits) > 1 and total:
        lab.say(f"All fits together take about {duration(total)}.")


def _given(cell: Cell, folder: Path, seeds: int) -> tuple[CausalGates, list[str]]:
    """Read gates from the folder that the user named; missing or other gates are refused."""
    path = _gates_file(folder / cell.folder, cell) or _gates_file(folder, cell)
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
            f"{len(layout.counts)}; name a folder with gates of {cell.label}."
        )
    foreign = cell.foreign(gates)
    if "task" in foreign:
        raise HeadcountError(
            f"The gates in {path} were fitted to the task {gates.parameters['task']}, not to "
            f"{cell.key}: name the file after its task."
        )
    if seeds > gates.seeds:
        raise HeadcountError(
            f"The gates in {path} have {counted(gates.seeds, 'seed')}, not {seeds}: lower --seeds, "
            "or fit your own with --refit."
        )
    return gates.first(seeds), _noted(foreign, cell, path)


def _shipped(cell: Cell, config: Config) -> tuple[CausalGates | None, list[str]]:
    """The gates that come with headcount, if they fit the cell and the config."""
    path = _shipped_file(cell)
    if path is None:
        return None, []
    gates = CausalGates.load(path)
    unused = f"The gates that come with headcount for {cell.label} on {cell.name} are not used: "
    foreign = cell.foreign(gates)
    if set(foreign) - {"model"} or gates.layout != cell.model.layout:
        return None, [f"{unused}they were fitted to other {_words(foreign)}."]
    wanted = {"variant": config.variant, "updates": config.updates}
    other = [name for name in wanted if gates.parameters.get(name, wanted[name]) != wanted[name]]
    if other:
        return None, [f"{unused}they were fitted with other settings ({', '.join(other)})."]
    notes = _noted(foreign, cell, path)
    if config.seeds > gates.seeds:
        seeds = f"{counted(gates.seeds, 'seed')}, not {config.seeds}"
        note = f"{cell}: the gates that come with headcount have {seeds}; --refit fits more."
        notes = [note, *notes]
    return gates.first(config.seeds), notes


def _shipped_file(cell: Cell) -> Path | None:
    """The gates of the cell's weights among those that come along, else those of its name."""
    named = _gates_file(shipped_gates() / cell.folder, cell)
    others = [_gates_file(folder, cell) for folder in sorted(shipped_gates().glob("*"))]
    for path in filter(None, (named, *others)):
        if CausalGates.load(path).parameters.get("weights") == cell.identity["weights"]:
            return path
    return named


def _gates_file(folder: Path, cell: Cell) -> Path | None:
    """The file of a task's gates in a folder, if there is one."""
    paths = [folder / f"{cell.file}{suffix}" for suffix in (".json", ".json.gz")]
    return next((path for path in paths if path.exists()), None)


def _noted(foreign: Sequence[str], cell: Cell, path: Path) -> list[str]:
    if not foreign:
        return []
    return [f"{cell}: the gates in {path} were fitted to other {_words(foreign)}."]


def _words(foreign: Sequence[str]) -> str:
    return " and ".join(_WORDS[name] for name in foreign)
