"""What each ranking method runs, told to a counter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headcount.engine.measure.cost import Counter
from headcount.models.model import Model
from headcount.rankings.ablation import single_heads
from headcount.rankings.causal_gates.fit import FitSettings, GateFit
from headcount.rankings.patterns import answer_positions
from headcount.rankings.probe import probe_tasks
from headcount.rankings.ranking import ranking_tokens
from headcount.tasks import Task, encode, require_twin

Settings = Mapping[str, Any]


def ranking_costs() -> dict[str, Callable[[Counter, Model, Task, Settings], None]]:
    """The cost of every method that is not one pass over the ranking part."""
    return {
        "random": lambda counter, model, task, settings: None,
        "attribution": _derivatives,
        "integrated-gradients": _derivatives,
        "ablation": _single_heads,
        "patching": _single_heads,
        "attention-induction": _induction,
        "attention-retrieval": _retrieval,
        "probe": _probe,
        **dict.fromkeys(("facilitation", "irrelevance", "interference"), _gates),
    }


def _single_heads(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    counter.sweep(single_heads(model, task, settings["metric"], settings["stand_in"]))


def _derivatives(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """One backward pass for each point of the path; both ends where there are several."""
    tokens, steps = ranking_tokens(model, task), settings.get("steps", 0)
    if settings["stand_in"] == "corrupted":
        require_twin(encode(task.part("ranking"), model.tokenizer))
    if settings["stand_in"] != "zero":
        counter.passes(model, tokens)
    counter.passes(model, tokens * max(steps, 1), "gradients")
    if steps:
        counter.passes(model, 2 * tokens)


def _induction(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    counter.passes(model, 2 * settings["length"] * settings["sequences"])


def _retrieval(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    answer_positions(task, model)  # refuses a task whose prompts do not hold their answers
    counter.passes(model, ranking_tokens(model, task))


def _probe(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Answers to the items of every function, and a pass over each; training is small beside."""
    new = settings["max_new_tokens"] if settings["answers"] == "generated" else 0
    for function in probe_tasks(model, task, settings["against"]).values():
        items = function.part("ranking")
        items = items.subset(settings["items"]) if len(items) > settings["items"] else items
        tokens = sum(len(item.prompt) + new for item in encode(items, model.tokenizer))
        if new:
            counter.passes(model, tokens, "writing")
        counter.passes(model, tokens)


def _gates(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    GateFit(model, task, FitSettings(**settings)).count(counter)
