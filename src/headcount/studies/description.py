"""What every study is: a config, the requests that it describes, and what it concludes from them.

A study's config is one frozen dataclass. From it come the command line, the table in the docs, the
settings in `run.json` and the key by which a finished run is known again. `describe` turns models
and a config into a `Description`, which can be counted before it is carried out.
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
    """Something that a study asks for: it can be counted, and carried out in a lab."""

    def count(self, counter: Counter) -> None:
        """Tell the counter what will be measured."""

    def result(self, lab: Lab) -> Any:
        """Carry it out."""


@dataclass(frozen=True, eq=False)
class Tolerated:
    """A request for which another one may be refused: its result is then the refusal itself.

    A failure of the request itself ends the study as any other does.
    """

    first: StudyRequest
    request: StudyRequest

    def count(self, counter: Counter) -> None:
        """Count both, unless the first is refused."""
        try:
            self.first.count(counter)
        except HeadcountError:
            return
        self.request.count(counter)

    def result(self, lab: Lab) -> Any:
        """Its result, or the refusal."""
        try:
            self.first.result(lab)
        except HeadcountError as refusal:
            return refusal
        return self.request.result(lab)


@dataclass(frozen=True, eq=False)
class Description:
    """All that a study will measure, in order, and what it makes of the results.

    requests   by a key that `conclude` finds their results under
    conclude   estimates, claims, tables and figures: nothing is measured any more
    before     a last look before anything is measured, such as a refusal of many hours
    sayings    what the lab says when it comes to a request
    """

    requests: Mapping[Hashable, StudyRequest]
    conclude: Callable[[Results], Study]
    before: Callable[[Lab], None] = lambda lab: None
    sayings: Mapping[Hashable, str] = field(default_factory=dict)

    def cost(self, lab: Lab) -> Cost:
        """What the study will measure, at most."""
        return lab.cost(self.requests.values())

    def carry_out(self, lab: Lab) -> Study:
        """Measure all requests, and conclude."""
        self.before(lab)
        results = {}
        with lab.remembering() as remembering:
            for key, request in self.requests.items():
                if key in self.sayings:
                    lab.say(self.sayings[key])
                results[key] = request.result(remembering)
        return self.conclude(results)


def resume_key(study: str, config: Any, models: Sequence[Model]) -> str:
    """What a finished run is known by: the study, its whole config, and the models' weights."""
    facts = {
        "study": study,
        "config": to_json(dataclasses.asdict(config)),
        "models": [{"name": model.name, **model.identity} for model in models],
    }
    return digest(canonical(facts))


def columns(interval: Interval) -> dict[str, float]:
    """An interval as columns of a table."""
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def span_text(numbers: Sequence[int]) -> str:
    """From the least to the most of some numbers.

    >>> span_text([60, 48, 52]), span_text([16, 16])
    ('48 to 60', '16')
    """
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def text_metric(name: str, instead: str) -> TextMetric:
    """A metric of written texts; refuses those that are read off logits."""
    metric = get_metric(name)
    if not isinstance(metric, TextMetric):
        raise HeadcountError(
            f"{name} is read off logits, and this study grades texts: choose {instead}."
        )
    return metric


def only_model(models: Sequence[Model], study: str) -> Model:
    """The one model of a study whose figure shows one."""
    if len(models) != 1:
        raise HeadcountError(
            f"{study} takes one model at a time, not {len(models)}: run it once for each."
        )
    return models[0]
