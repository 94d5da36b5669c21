"""What a model writes, in the order in which head sets are asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.write.writing import Answers, Writing
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.tasks import Task


def answers(
    model: Model, task: Task, gates: Any, *, lab: Lab | None = None, **more: Any
) -> Answers:
    """The texts under each head set; `more` goes to the request."""
    table = HeadSets.of(gates, model.layout)
    found = (lab or Lab()).write(Writing(model, task, table, **more))
    rows = [row for rows in table.rows.values() for row in rows]
    return replace(found, texts=found.texts[rows], finished=found.finished[rows])
