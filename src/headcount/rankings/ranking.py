"""The registry of rankings, and a ranking as a request that can be counted and carried out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.plan import MEASUREMENT
from headcount.engine.measure.sweep import whole_model
from headcount.errors import HeadcountError
from headcount.heads import UNITS, HeadList, HeadScores, same_name
from headcount.lab import Lab, check_asked, lab_for
from headcount.metrics import METRICS, get_metric
from headcount.models.model import Model
from headcount.models.sites import is_unloaded, plain
from headcount.models.streaming import Streaming
from headcount.registry import Factory, Registry, check_made, own_code
from headcount.store import Store
from headcount.system.files import digest
from headcount.tasks import Encoded, Task

RANKINGS: Registry[Factory[HeadScores]] = Registry("ranking", Factory)
"""Rankings: each takes model and task, its settings by keyword, and a `lab`."""

Settings = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Ranking:
    """A request for the scores of one ranking on one task; `settings` are bound and checked."""

    model: Model
    task: Task
    name: str
    settings: Settings

    @classmethod
    def of(cls, model: Model, task: Task, name: str, **settings: Any) -> Ranking:
        """The request with all settings of the ranking; refuses settings that it does not have."""
        bound = RANKINGS[name].bind(**settings)
        if streaming := Streaming.read(str(bound.get("ablation"))):
            bound["ablation"] = str(streaming)  # with its sink and window, for keys and results
        return cls(model, task, name, bound)

    @cached_property
    def examples(self) -> list[Encoded]:
        """The examples of the ranking split."""
        return self.model.encode(self.task.split("ranking"))

    @cached_property
    def context(self) -> dict[str, Any]:
        """All that determines the scores."""
        entry = RANKINGS[self.name]
        context = entry.context
        further = context(self.model, self.task, self.settings) if context else {}
        return {
            "model": self.model.name,
            **self.model.identity,
            "task": self.task.name,
            "task_version": self.task.version,
            "examples": examples_key(self.examples),
            "ranking": self.name,
            **self.settings,
            **self._metric_version,
            "measurement": MEASUREMENT,
            **({"further": further} if further else {}),
            **own_code(entry.function),
        }

    @property
    def _metric_version(self) -> dict[str, Any]:
        """The version of the metric that heads are ranked by, if it is not the first."""
        metric = str(self.settings.get("metric"))
        version = getattr(METRICS[metric], "version", 1) if metric in METRICS else 1
        return {"metric_version": version} if version > 1 else {}

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Identifies this ranking within one process, without computing the model's fingerprint."""
        examples = examples_key(self.examples)
        return id(self.model), examples, self.name, repr(sorted(self.settings.items()))

    def known(self, store: Store | None) -> HeadScores | None:
        """The scores, if the store holds them."""
        found = None if store is None else store.get_document("ranking", self.context)
        try:
            scores = None if found is None else HeadScores.from_json(found)
            return scores and self._saying_its_goal(fitting(scores, self.model))
        except HeadcountError:  # a document of another form: new scores will replace it
            return None

    def _saying_its_goal(self, scores: HeadScores) -> HeadScores:
        """The scores with the goal of their ranking, unless they have one of their own."""
        goal = RANKINGS[self.name].goal
        if not goal or scores.goal:
            return scores
        return replace(scores, parameters={**scores.parameters, "goal": goal})

    def count(self, counter: Counter) -> None:
        """Count what will run, unless the store holds the scores or they were counted before."""
        if self.known(counter.store) is not None or not counter.first(self.key):
            return
        if count := RANKINGS[self.name].count:
            count(counter, self.model, self.task, self.settings)
        else:
            counter.passes(self.model, ranking_tokens(self.model, self.task))

    def result(self, lab: Lab) -> HeadScores:
        """The scores: read from the store, or computed and stored."""
        known = self.known(lab.store)
        if known is not None:
            return known
        entry = RANKINGS[self.name]
        means = {"lab": lab} if "lab" in inspect.signature(entry.function).parameters else {}
        made = entry.function(self.model, self.task, **entry.arguments(self.settings), **means)
        scores = fitting(check_made(f'the ranking "{self.name}"', made, HeadScores), self.model)
        provenance = {
            "model": self.model.name,
            "task": self.task.name,
            "task_settings": dict(self.task.parameters),
            "prefix": self.model.prefix_of(self.task),
            **self.settings,
            **scores.parameters,
        }
        scores = replace(scores, ranking=self.name, parameters=provenance)
        scores = self._saying_its_goal(scores)
        if lab.store is not None:
            lab.store.put_document("ranking", self.context, scores.to_json())
        return scores


def rank(
    model: Model,
    task: Task,
    ranking: str | Callable[[Model, Task], HeadScores] | HeadScores = "attribution",
    *,
    lab: Lab | None = None,
    **settings: Any,
) -> HeadScores:
    """Score every head of `model` for `task`, on the task's ranking split.

    `ranking` is a name, a function of model and task, or scores. Scores that the lab's store holds
    are not computed again. If the whole model is at chance, the parameter "note" says so.

    >>> from headcount import load_model, make_task, rank
    >>> model = load_model("smollm2-135m-q4")
    >>> scores = rank(model, make_task("ioi", model.tokenizer, n=8), "attribution")
    >>> scores.values.shape
    (270,)
    """
    check_asked(model, task)
    if isinstance(ranking, str):
        asked, own = Ranking.of(model, task, ranking, **settings), lab_for(lab, model)
        metric = get_metric(asked.settings.get("metric", "accuracy"))
        whole = own.measure(whole_model(model, task, metric, "ranking"))
        return asked.result(own).with_note(whole.at_chance)
    if settings:
        raise HeadcountError(
            f"Settings ({', '.join(settings)}) go with the name of a ranking: leave them out for "
            "scores or a function."
        )
    scores: Any = ranking(model, task) if callable(ranking) else ranking
    return fitting(check_made("the ranking", scores, HeadScores), model)


def fitting(scores: HeadScores, model: Model) -> HeadScores:
    """Return scores that fit the model; refuse those of a model with other layers or heads."""
    if scores.layout != model.layout:
        other = "model" if scores.layout.unit == model.layout.unit else "unit (--unit)"
        named = str(scores.parameters.get("model", ""))
        named = f" ({named})" if named and other == "model" else ""
        raise HeadcountError(
            f'The scores "{scores.ranking}" belong to another {other}{named}: they are for '
            f"{scores.layout}, and {model.name} has {model.layout}."
        )
    return scores


def fit_list(
    found: HeadScores | HeadList, model: Model, *, other_model: bool = False
) -> HeadScores:
    """Scores or a list from a file, as scores of this model; refuses those of another model.

    Another model has other layers or heads; or, unless `other_model` allows it, another fingerprint
    or, where the file has none, another name. A file that names no model fits by its heads alone.

    >>> from headcount import load_model
    >>> from headcount.heads import Head
    >>> model = load_model("smollm2-135m-q4")
    >>> fit_list(HeadList((Head(3, 4),), "mine"), model).top(1)
    [Head(layer=3, index=4)]
    """
    if isinstance(found, HeadList):
        if found.unit != model.unit:
            words = f"{UNITS[found.unit]}s, and {model.name} is measured by {model.layout.word}s"
            raise HeadcountError(f'The list "{found.ranking}" names {words} (--unit).')
        scores = found.scores(model.layout, model.name)
    else:
        scores = fitting(found, model)
    named, weights = (str(scores.parameters.get(key, "")) for key in ("model", "fingerprint"))
    mine = "" if other_model or not weights else loaded_weights(model)
    weights = weights if mine else ""  # names must do where a model was not loaded
    if other_model or not named or (weights == mine if weights else same_name(named, model.name)):
        return scores
    theirs, own = named, model.name
    if same_name(named, model.name):
        theirs, own = f"{named} with weights {weights[:8]}", f"{own} with weights {mine[:8]}"
    raise HeadcountError(
        f'The list "{scores.ranking}" is for {theirs}, and this model is {own}: add --other-model '
        "to use it all the same."
    )


def loaded_weights(model: Model) -> str:
    """The fingerprint of a model's weights; empty for one that was not loaded."""
    return "" if is_unloaded(plain(model.module)) else model.identity["weights"]


def examples_key(examples: Iterable[Encoded]) -> str:
    """The sha256 of the keys of these examples."""
    return digest("".join(example.key for example in examples))


def ranking_tokens(model: Model, task: Task) -> int:
    """How many tokens a pass over the ranking split has."""
    return sum(example.length for example in model.encode(task.split("ranking")))
