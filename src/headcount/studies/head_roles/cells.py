"""The grid of the study `head-roles`: models × tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.models.model import Model
from headcount.studies.head_roles.config import ROWS, Config
from headcount.system.files import safe_name
from headcount.tasks import Task, make_task


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
        """What gates belong to: other weights, or the task in another form, need their own."""
        return {
            "model": self.model.name,
            "weights": self.model.identity["weights"],
            "task": self.key,
            "task_version": self.task.version,
            "task_settings": json.loads(json.dumps(dict(self.task.parameters), default=str)),
        }

    def validation(self, n: int) -> Task:
        """The task with `n` of its validation prompts, 0 meaning all: no gate has seen them."""
        test = self.task.part("test")
        return test.subset(n) if n and n < len(test) else test


def make_cells(models: Sequence[Model], config: Config) -> list[Cell]:
    """Models × tasks; models that share a name are told apart by a number."""
    cells: list[Cell] = []
    seen: Counter[str] = Counter()
    for model in models:
        seen[model.name] += 1
        times = seen[model.name]
        label = model.name if times == 1 else f"{model.name} ({times})"
        by_key: dict[str, Cell] = {}
        for spec in config.tasks:
            key = spec.name if isinstance(spec, Task) else Path(spec).name.removesuffix(".jsonl")
            if key in by_key:
                raise HeadcountError(f'Two tasks have the name "{key}": rename one of the files.')
            task = make_task(spec, model.tokenizer, **(config.task_settings or {}))
            by_key[key] = Cell(model, label, task, key, ROWS.get(key, key))
        cells += by_key.values()
    return cells
