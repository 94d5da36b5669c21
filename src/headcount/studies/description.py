"""The skeleton of every study: a config, the requests that it makes, and its conclusions.

A study's config is one frozen dataclass. The command line, the table in the docs, the settings in
`run.json` and the key that identifies a finished run are all derived from it. `describe` turns
models and a config into a `Description`, whose cost can be counted before it is carried out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headcount.engine.measure.cost import Cost, Counter
from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.metrics import TextMetric, get_metric
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.stats import Interval
from headcount.system.files import canonical, digest, to_json

Results = Mapping[Hashable, Any]


class StudyRequest(Protocol):
    """A measurement that a study needs: it can be counted, and carried out in a lab."""

    def count(self, counter: Counter) -> None:
        """Tell the counter what will be measured."""

    def result(self, lab: Lab) -> Any:
        """Carry the request out."""


@dataclass(frozen=True, eq=False)
class Tolerated:
    """A request that needs another one `first`, which may be refused.

    If `first` raises a `HeadcountError`, such as a ranking that does not suit the task, that error
    is the result and the study goes on. An error of `request` itself ends the study.
    """

    first: StudyRequest
    request: StudyRequest

    def count(self, counter: Counter) -> None:
        """Count both requests, unless the first is refused."""
        try:
            self.first.count(counter)
        except HeadcountError:
            return
        self.request.count(counter)

    def result(self, lab: Lab) -> Any:
        """The result of `request`, or the error that refused `first`."""
        try:
            self.first.result(lab)
        except HeadcountError as refusal:
            return refusal
        return self.request.result(lab)


@dataclass(frozen=True, eq=False)
class Description:
    """Everything that a study will measure, in order, and the function that concludes from it.

    requests   the requests by key; `conclude` gets their results under the same keys
    conclude   makes estimates, claims, tables and figures from the results, and measures nothing
    before     is called before the first request; it may refuse, for example a run of many hours
    sayings    messages that the lab prints before the requests of these keys
    """

    requests: Mapping[Hashable, StudyRequest]
    conclude: Callable[[Results], Study]
    before: Callable[[Lab], None] = lambda lab: None
    sayings: Mapping[Hashable, str] = field(default_factory=dict)

    def cost(self, lab: Lab) -> Cost:
        """An upper bound of what the study will measure."""
        return lab.cost(self.requests.values())

    def carry_out(self, lab: Lab) -> Study:
        """Carry out all requests, and conclude from their results."""
        self.before(lab)
        results = {}
        with lab.remembering() as remembering:
            for key, request in self.requests.items():
                if key in self.sayings:
                    lab.say(self.sayings[key])
                results[key] = request.result(remembering)
        return self.conclude(results)


def resume_key(study: str, config: Any, models: Sequence[Model]) -> str:
    """The key that identifies a finished run: a hash of study, config, and the models' weights."""
    facts = {
        "study": study,
        "config": to_json(dataclasses.asdict(config)),
        "models": [{"name": model.name, **model.identity} for model in models],
    }
    return digest(canonical(facts))


def columns(interval: Interval) -> dict[str, float]:
    """An interval as three columns of a table."""
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def text_metric(name: str, instead: str) -> TextMetric:
    """The metric of this name, which must grade written texts; logit metrics are refused."""
    metric = get_metric(name)
    if not isinstance(metric, TextMetric):
        raise HeadcountError(
            f"The metric {name} scores logits, and this study grades texts: choose {instead}."
        )
    return metric


def only_model(models: Sequence[Model], study: str) -> Model:
    """The single model of a study whose figure shows one model."""
    if len(models) != 1:
        raise HeadcountError(
            f"{study} takes one model at a time, not {len(models)}: run the study once per model."
        )
    return models[0]
