"""What a model writes to the prompts of a task, under each head set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.decode import Scope, check_scope, generate, rows_at_once
from headcount.engine.plan import MEASUREMENT
from headcount.heads import check_gates
from headcount.models.model import Model
from headcount.progress import progress as progress_bar
from headcount.store import Store
from headcount.tasks import Encoded, Task, encode
from headcount.tasks.task import Part

BATCHES = 4  # decoded between two writes to the store: what a killed run may lose


@dataclass(frozen=True, eq=False)
class Answers:
    """One text per head set and example."""

    texts: np.ndarray  # (sets, examples), of str
    examples: tuple[str, ...]
    clusters: Int[np.ndarray, "examples"]


def answers(
    model: Model,
    task: Task,
    gates: Any,
    *,
    scope: Scope = "all",
    part: Part = "test",
    store: Store | None = None,
    progress: bool = True,
) -> Answers:
    """Let the model answer every example of one part of `task` under each head set, greedily.

    A text ends before one of the task's stop strings, or after its number of new tokens. With a
    store, what it holds is not written again.

    >>> import numpy as np
    >>> from headcount import Example, Task, load_model
    >>> model = load_model("smollm2-135m")
    >>> task = Task("capitals", 1, (Example("0", "The capital of France is", " Paris"),))
    >>> answers(model, task, np.ones((1, 270)), part="all").texts[0, 0].startswith("Paris")
    True
    """
    check_scope(scope)
    sets, place = np.unique(check_gates(gates, model.layout) + 0, axis=0, return_inverse=True)
    chosen = task.part(part)
    examples = encode(chosen, model.tokenizer)
    texts = np.full((len(sets), len(examples)), None, dtype=object)
    shelf = None
    if store is not None:
        shelf = store.context(writing_context(model, task, scope), layout=model.layout)
        texts = shelf.read_texts(sets, [one.key for one in examples])
    missing = np.array([[text is None for text in row] for row in texts])
    with progress_bar(f"{task.name}: answers", int(missing.sum()), show=progress) as bar:
        rows = rows_at_once(model, [one.prompt for one in examples], task.max_new_tokens)
        step = max(1, BATCHES * rows // len(examples))
        wanted = np.flatnonzero(missing.any(axis=1))
        for start in range(0, len(wanted), step):
            some = wanted[start : start + step]
            _write(model, task, sets, some, examples, texts, scope)
            if shelf is not None:
                keys, names = [one.key for one in examples], [one.example.id for one in examples]
                shelf.write_texts(sets[some], keys, names, texts[some])
            bar.update(int(missing[some].sum()))
    ids = tuple(one.example.id for one in examples)
    return Answers(texts[place.reshape(-1)], ids, chosen.clusters)


def _write(
    model: Model,
    task: Task,
    sets: Float[np.ndarray, "sets heads"],
    some: Int[np.ndarray, "some"],
    examples: list[Encoded],
    texts: np.ndarray,
    scope: Scope,
) -> None:
    """Fill in the texts that are missing under some of the head sets."""
    cells = [(row, e) for row in some.tolist() for e in range(len(examples))]
    cells = [cell for cell in cells if texts[cell] is None]
    written = generate(
        model,
        [examples[e].prompt for _, e in cells],
        sets[[row for row, _ in cells]],
        max_new_tokens=task.max_new_tokens,
        stop=task.stop,
        scope=scope,
        progress=False,
    )
    for cell, text in zip(cells, written, strict=True):
        texts[cell] = text.text.strip()


def writing_context(model: Model, task: Task, scope: Scope) -> dict[str, Any]:
    """Everything but gates and examples that determines a text."""
    return {
        "model": model.name,
        **model.identity,
        "task": task.name,
        "task_version": task.version,
        "metric": "text",
        "stand_in": "zero",
        "scope": scope,
        "stop": list(task.stop),
        "max_new_tokens": task.max_new_tokens,
        "measurement": MEASUREMENT,
    }
