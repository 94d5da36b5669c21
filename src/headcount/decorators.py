"""The decorators by which users add tasks, rankings, metrics and studies.

All have one shape: `@headcount.KIND(key, name, …)`. The key is what users type, the name is what
lists and figures print. The decorated function is returned unchanged. Each decorator first imports
the names that headcount has itself, so that a plug-in cannot take one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from headcount.errors import unknown
from headcount.heads import Goal
from headcount.registry import Function
from headcount.studies.presets import Preset


def task(key: str, name: str, *, config: type | None = None) -> Callable[[Function], Function]:
    """Register a function that makes a `Task` for a tokenizer.

    The settings of the task are the function's keyword arguments that have a default. If there are
    many, `config` is a dataclass of them, and the function takes such an object as `settings`.

    >>> import headcount
    >>> @headcount.task("capitals", "Capitals")
    ... def capitals(tokenizer, *, n: int = 2) -> headcount.Task:
    ...     '''The capital of a country.'''
    ...     pairs = [("France", "Paris"), ("Italy", "Rome")][:n]
    ...     asked = [
    ...         headcount.Example(land, f"The capital of {land} is", f" {city}")
    ...         for land, city in pairs
    ...     ]
    ...     return headcount.Task("capitals", version=1, examples=tuple(asked))
    >>> model = headcount.load_model("smollm2-135m-q4")
    >>> headcount.make_task("capitals", model.tokenizer, n=1).examples[0].target
    ' Paris'
    """
    from headcount.tasks import TASKS

    return TASKS.register(key, name, config=config)


def ranking(
    key: str,
    name: str,
    *,
    config: type | None = None,
    count: Callable[..., None] | None = None,
    context: Callable[..., dict[str, Any]] | None = None,
    goal: str = "",
) -> Callable[[Function], Function]:
    """Register a function that scores every head of a model for a task, as `HeadScores`.

    The function takes model and task, its settings in the same two ways as a task, and a `lab` if
    it has an argument of that name. `count(counter, model, task, settings)` tells the counter what
    will run, if that is not one pass over the ranking split. `context(model, task, settings)`
    returns what else determines the scores, which becomes part of their key in the store. `goal`
    says what the heads are ranked for: "keep", "mask", "both" or "neither".

    >>> import numpy as np
    >>> import headcount
    >>> @headcount.ranking("late-first", "Late layers first")
    ... def late_first(model, task) -> headcount.HeadScores:
    ...     '''Heads in the order of their layers, the last layer first.'''
    ...     order = np.arange(model.layout.total, dtype=float)
    ...     return headcount.HeadScores(model.layout, order, "late-first")
    >>> model = headcount.load_model("smollm2-135m-q4")
    >>> ioi = headcount.make_task("ioi", model.tokenizer, n=8)
    >>> headcount.rank(model, ioi, "late-first").top(1)
    [Head(layer=29, index=8)]
    """
    from headcount.rankings import RANKINGS

    if goal not in get_args(Goal):
        raise unknown("goal of a ranking", goal, filter(None, get_args(Goal)))
    return RANKINGS.register(key, name, config=config, count=count, context=context, goal=goal)


def metric(
    key: str, name: str, *, text: bool = False, **facts: Any
) -> Callable[[Function], Function]:
    """Register a function that gives one number per example.

    The function takes `Scored`, the logits where the answer is predicted; with `text=True` it takes
    `Written`, the answers that the model wrote. `facts` are the other fields of `Metric`
    (`differentiable`, `needs_foils`, `binary`, `answers`) or `TextMetric` (`binary`, `identity`,
    `require`, `golds`). A metric of logits refuses examples with several right answers, unless
    `answers` says that it counts them; a metric of texts takes the best value over them.

    >>> import headcount
    >>> @headcount.metric("probability", "Probability of the first token")
    ... def probability(scored):
    ...     shares = scored.logits[:, 0].float().softmax(-1)  # (rows, vocab)
    ...     return shares.gather(-1, scored.targets[:, :1])[:, 0]  # (rows)
    >>> model = headcount.load_model("smollm2-135m-q4")
    >>> ioi = headcount.make_task("ioi", model.tokenizer, n=8)
    >>> gates = model.layout.gates(off=[])
    >>> value = headcount.evaluate(model, ioi, gates, metric="probability").mean()[0]
    >>> bool(0 < value < 1)
    True
    """
    from headcount.metrics import METRICS

    return METRICS.register(key, name, text=text, **facts)


def study(
    key: str,
    name: str,
    *,
    config: type,
    presets: Mapping[str, Mapping[str, Any] | Preset] | None = None,
    models: Sequence[str] = ("smollm2-135m-q4",),
) -> Callable[[Function], Function]:
    """Register a function that takes models and a config, and returns a `Description`.

    `config` is a frozen dataclass whose fields, made by `headcount.registry.setting`, become the
    options on the command line. `presets` holds settings, or a `Preset`, by the name of the preset,
    of which "quick" is the default. `models` are the models that the study runs on by default.

    >>> from dataclasses import asdict, dataclass
    >>> import headcount
    >>> from headcount.registry import setting
    >>> from headcount.report.study import Study
    >>> from headcount.studies.description import Description
    >>> @dataclass(frozen=True)
    ... class Config:
    ...     unit: str = setting("heads", "what is counted")
    >>> @headcount.study("size", "how many heads a model has", config=Config)
    ... def size(models, config):
    ...     rows = [{"model": model.name, config.unit: model.layout.total} for model in models]
    ...     study = Study("size", "Size", rows, [], {}, asdict(config), {})
    ...     return Description({}, lambda results: study)  # nothing has to be measured
    >>> headcount.run_study("size", headcount.load_model("smollm2-135m-q4")).rows
    [{'model': 'smollm2-135m-q4', 'heads': 270}]
    """
    from headcount.studies import STUDIES

    chosen = {"quick": {}, **(presets or {})}
    several = (models,) if isinstance(models, str) else tuple(models)
    return STUDIES.register(key, name, config=config, presets=chosen, models=several)
