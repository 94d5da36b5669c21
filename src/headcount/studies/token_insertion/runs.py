"""The runs of the study `token-insertion`: problems asked under every condition, and graded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.engine.write.answers import Answers, Sampled, answers
from headcount.engine.write.decode import context_limit
from headcount.errors import HeadcountError, did_you_mean
from headcount.figures.inserts import Bar
from headcount.metrics import TextMetric, Written
from headcount.models.model import Model
from headcount.stats import Interval, accuracy_interval
from headcount.store import Store
from headcount.studies.token_insertion.claims import Outcome, difference
from headcount.studies.token_insertion.redistribution import Redistribution
from headcount.tasks import TASKS, Task, encode, make_task
from headcount.tasks.inserts import LENGTHS, PLACES, Insert, with_insert


def entry_of(spec: str) -> tuple[str, dict[str, Any]]:
    """The name of a task and its settings, from a name or a file of problems.

    >>> entry_of("my/problems.jsonl")
    ('problems', {'path': 'my/problems.jsonl'})
    """
    if spec not in TASKS.entries and spec.endswith((".json", ".jsonl")):
        return "problems", {"path": spec}
    return spec, {}


@dataclass(frozen=True, eq=False)
class Runs:
    """What is the same for every condition."""

    metric: TextMetric
    draws: Sequence[Sampled]
    n: int
    tasks: Sequence[str]
    task_settings: dict[str, Any]
    store: Store | None
    progress: bool

    def task(
        self,
        model: Model,
        spec: str,
        longest: int,
        notes: list[str],
    ) -> Task:
        """The problems, without those that do not fit into the model with the longest insert."""
        name, more = entry_of(spec)
        known = {key for one in self.tasks for key in TASKS[entry_of(one)[0]].defaults()}
        for key in self.task_settings:
            if key not in known:
                raise HeadcountError(
                    f'Neither the study nor its tasks have a setting "{key}".'
                    f"{did_you_mean(key, known)}"
                )
        own = TASKS[name].defaults()
        more |= {key: value for key, value in self.task_settings.items() if key in own}
        task = make_task(name, model.tokenizer, **more)
        if task.until != "boxed" or len(task.examples[0].pieces) != 2:
            raise HeadcountError(
                f'The task "{task.name}" asks no problems with an answer in a box: choose '
                "word-problems, math-500 or a file of problems."
            )
        limit = context_limit(model)
        if limit is not None:
            room = limit + 1 - task.max_new_tokens - longest  # the last token is not read
            fits = {e.example.id for e in encode(task, model.tokenizer) if len(e.prompt) <= room}
            if not fits:
                raise HeadcountError(
                    f"No problem of {task.name} fits into the {limit} tokens that {model.name} can "
                    f"read, with {longest} inserted and {task.max_new_tokens} new ones: ask for "
                    "fewer."
                )
            if len(fits) < len(task):
                notes.append(
                    f"{len(task) - len(fits)} of {len(task)} problems of {task.name} are left out: "
                    f"with insert and answer they do not fit into {limit} tokens."
                )
                left = tuple(e for e in task.examples if e.id in fits)
                task = replace(task, examples=left)
        return task.subset(self.n) if 0 < self.n < len(task) else task

    def grade(
        self,
        model: Model,
        task: Task,
        gates: Float[np.ndarray, "heads"],
        series: str,
        length: int,
        place: str,
        rows: list[dict[str, Any]],
        arm: Redistribution | None = None,
    ) -> Float[np.ndarray, "seeds problems"]:
        """Right or wrong, for every run and problem; adds a row to the table."""
        found = [
            answers(
                model,
                task,
                gates[None],
                part="all",
                sampled=sampled,
                redistribution=arm,
                store=self.store,
                progress=self.progress,
            )
            for sampled in self.draws
        ]
        golds = [example.target.strip() for example in task]
        asked = [example.prompt for example in task]
        right = np.stack(
            [self.metric.function(Written(t, golds, t, asked)) for t in map(_texts, found)]
        )
        finished = np.stack([one.finished[0] for one in found])
        empty = series == "w/o" or place == "none" or not length
        rows.append(
            _row(model, task, series, accuracy_interval(right, clusters=task.clusters))
            | {
                "metric": self.metric.key,
                "count": 0 if empty else length,
                "place": "none" if empty else place,
                "n": len(task),
                "seeds": len(self.draws),
                "truncated": int((finished == 0).sum()),
            }
        )
        return right

    def sweep(
        self,
        model: Model,
        task: Task,
        gates: Float[np.ndarray, "heads"],
        inserts: dict[str, Insert | None],
        sweep: str,
        rows: list[dict[str, Any]],
    ) -> dict[str, list[tuple[str, Bar]]]:
        """Accuracy by length or by place, for each kind of insert."""
        lines: dict[str, list[tuple[str, Bar]]] = {}
        for series, insert in inserts.items():
            if insert is None:
                continue
            for value in LENGTHS if sweep == "length" else PLACES:
                by_length = sweep == "length"
                one = Insert(
                    insert.text,
                    int(value) if by_length else insert.length,
                    insert.place if by_length else value,  # type: ignore[arg-type]
                )
                asked = with_insert(task, model.tokenizer, one)
                self.grade(model, asked, gates, series, one.length, one.place, rows)
                rows[-1]["series"] = f"{series}, by {sweep}"
                ends = (100 * rows[-1][end] for end in ("value", "low", "high"))
                lines.setdefault(series, []).append((str(value), Bar(*ends)))
        return lines


def _texts(found: Answers) -> list[str]:
    return [str(text) for text in found.texts[0]]


def _row(model: Model, task: Task, series: str, found: Interval) -> dict[str, Any]:
    return {
        "model": model.name,
        "task": task.name,
        "series": series,
        "metric": "",
        "count": 0,
        "place": "",
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "n": found.n,
        "seeds": 1,
        "truncated": 0,
    }


def difference_rows(
    right: dict[str, Float[np.ndarray, "seeds problems"]],
    task: Task,
    model: Model,
    rows: list[dict[str, Any]],
) -> None:
    """Rows of the paired differences to the condition without an insert."""
    outcome = Outcome(model.name, model.layout, right, task.clusters, None, 0, None)
    for series in right:
        if series != "w/o":
            row = _row(model, task, f"{series} less w/o", difference(outcome, series))
            source = next(r for r in reversed(rows) if r["series"] == series)
            kept = {name: source[name] for name in ("metric", "count", "place", "n", "seeds")}
            rows.append(row | kept)
