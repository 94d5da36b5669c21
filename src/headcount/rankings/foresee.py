"""What rankings will run, for a forecast, and scores that stand where theirs will be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headcount.engine.measure.forecast import Forecast, placeholders
from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.rankings.probe import probe_tasks
from headcount.tasks import Task, encode

MEASURED = ("ablation", "patching", "random")  # by `evaluate`, or not at all: foreseen there
FITTED = ("facilitation", "irrelevance", "interference")  # by `fit_gates`: foreseen there


def foresee_ranking(
    expected: Forecast, model: Model, task: Task, method: str, parameters: Mapping[str, Any]
) -> HeadScores:
    """Note the passes of a ranking, and give back placeholders."""
    ranking = encode(task.part("ranking"), model.tokenizer)
    tokens = sum(one.length for one in ranking)
    if parameters.get("stand_in", "zero") != "zero":
        expected.add(model, "pass", 0, tokens)  # the twins, once
    if method == "attribution":
        expected.add(model, "pass", 0, tokens, kind="gradients")
    elif method == "integrated-gradients":
        expected.add(model, "pass", 0, tokens * parameters["steps"], kind="gradients")
        expected.add(model, "pass", 0, 2 * tokens)  # both ends
    elif method == "attention-induction":
        expected.add(model, "pass", 0, 2 * parameters["length"] * parameters["sequences"])
    elif method == "probe":
        _foresee_probe(expected, model, task, parameters)
    else:
        expected.add(model, "pass", 0, tokens)
    samples = placeholders(len(ranking), model.layout.total)
    return HeadScores(model.layout, samples.mean(0), method, samples=samples)


def _foresee_probe(
    expected: Forecast, model: Model, task: Task, parameters: Mapping[str, Any]
) -> None:
    """Answers to the items of every function, and a pass over each; training is small beside."""
    new = parameters["max_new_tokens"] if parameters["answers"] == "generated" else 0
    for one in probe_tasks(model, task, parameters["against"]).values():
        part = one.part("ranking")
        part = part.subset(parameters["items"]) if len(part) > parameters["items"] else part
        tokens = sum(len(some.prompt) + new for some in encode(part, model.tokenizer))
        if new:
            expected.add(model, "pass", 0, tokens, kind="writing")
        expected.add(model, "pass", 0, tokens)
