"""What `contrast` asks for: what the whole model can do, and gates with what they do to a skill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending
from headcount.engine.measure.sweep import Sweep
from headcount.errors import HeadcountError
from headcount.heads import HeadLayout
from headcount.lab import Lab
from headcount.metrics import get_metric
from headcount.metrics.chance import Chance, chance_of
from headcount.models.model import Model
from headcount.rankings.causal_gates.contrast import ContrastFit, ContrastiveGates
from headcount.rankings.causal_gates.fit import FitSettings
from headcount.stats import Resampling, share_interval
from headcount.store import Store
from headcount.studies.contrast.config import FORMS, Config, other_form
from headcount.tasks import Task, make_task
from headcount.tasks.skills import SHOWN, joined

METRICS = ("logprob_per_token", "accuracy")
WHOLE = "whole model"
GATES, HEADS = "gates", "heads"  # the learned gates, and the binary head sets that they are
RANDOM, MATCHED = "random heads", "layer-matched heads"
LEARNED, CONTROLS = (GATES, HEADS), (RANDOM, MATCHED)
Tables = dict[tuple[str, str, str], Float[np.ndarray, "draws prompts"]]  # by form, metric, series


@dataclass(frozen=True, eq=False)
class Skills:
    """The tasks of all skills in both forms, for one model."""

    model: Model
    config: Config

    @cached_property
    def tasks(self) -> dict[tuple[str, str], Task]:
        """The task of each skill and form."""
        names = dict.fromkeys((*self.config.skills, *self.config.left_out))
        shots = {SHOWN: {"shots": self.config.shots}}
        return {
            (skill, form): make_task(f"{skill}-{form}", self.model, **shots.get(form, {}))
            for skill in names
            for form in FORMS
        }

    def tested(self, skill: str, form: str) -> Task:
        """The prompts on which gates are tested."""
        return _few(self.tasks[skill, form].split("test"), self.config.n)

    def fit(self, skills: list[str], keep: str, left_out: str) -> ContrastFit:
        """The fit that keeps one form of these skills and forgets the other."""
        config = self.config
        settings = FitSettings(config.updates, config.batch, config.seeds, compiled=config.compiled)
        kept, forgotten = (
            joined(f"{form} without {left_out}", [self.tasks[skill, form] for skill in skills])
            for form in (keep, other_form(keep))
        )
        fit = ContrastFit(self.model, kept, settings, forget=forgotten, variant=config.variant)
        return fit.checked()

    def whole(self, task: Task, metric: str) -> Sweep:
        """The whole model on all examples of a task."""
        everything = HeadSets.of([], self.model.layout)
        return Sweep(self.model, task, get_metric(metric), everything, "all")


@dataclass(frozen=True)
class Tried:
    """The accuracy of the whole model on ranking prompts of a skill and form, beside chance."""

    accuracy: float
    low: float
    high: float
    chance: Chance
    able: bool


@dataclass(frozen=True, eq=False)
class AbleRequest:
    """A request for which skills and forms the whole model does above chance.

    Ranking prompts decide, which are no test prompts.
    """

    skills: Skills

    @cached_property
    def sweeps(self) -> dict[tuple[str, str], Sweep]:
        """The whole model's accuracy on some ranking prompts of each skill and form."""
        tried = self.skills.config.tried
        return {
            key: self.skills.whole(_few(task.split("ranking"), tried), "accuracy")
            for key, task in self.skills.tasks.items()
        }

    def count(self, counter: Counter) -> None:
        """Count one value for each prompt."""
        for sweep in self.sweeps.values():
            counter.sweep(sweep)

    def known(self, store: Store | None) -> dict[tuple[str, str], Tried] | None:
        """The result, if the store holds all that it needs."""
        counter = Counter(store)
        self.count(counter)
        if store is None or any(item.count for item in counter.cost.items):
            return None
        return self.result(Lab(store, progress=False))

    def result(self, lab: Lab) -> dict[tuple[str, str], Tried]:
        """Each skill and form with its accuracy; it is able if that is clearly above chance."""
        found = {}
        for key, sweep in self.sweeps.items():
            values, chance = lab.measure(sweep), chance_of(sweep.metric, self.skills.tasks[key])
            assert chance is not None  # accuracy is right or wrong
            items = Resampling(values.clusters)
            share = share_interval(items.estimate(values.values), items)
            able = not chance.sentence(share, "Accuracy")
            found[key] = Tried(share.value, share.low, share.high, chance, able)
        return found


@dataclass(frozen=True, eq=False)
class WholeRequest:
    """A request for both metrics of the whole model on the test prompts of a skill and form."""

    skills: Skills
    skill: str
    form: str

    def count(self, counter: Counter) -> None:
        """Count one value of each metric for each prompt."""
        for metric in METRICS:
            counter.sweep(self._sweep(metric))

    def result(self, lab: Lab) -> dict[str, Float[np.ndarray, "1 prompts"]]:
        """The values by metric."""
        return {metric: lab.measure(self._sweep(metric)).values for metric in METRICS}

    def _sweep(self, metric: str) -> Sweep:
        return self.skills.whole(self.skills.tested(self.skill, self.form), metric)


@dataclass(frozen=True, eq=False)
class Contrasted:
    """Gates, the skills that they were fitted to, and what they do to the skill left out."""

    gates: ContrastiveGates
    skills: list[str]
    values: Tables


@dataclass(frozen=True, eq=False)
class ContrastRequest:
    """A request for gates that keep a form, without one skill, and their test on that skill.

    Skills that the whole model cannot do in both forms are left out of the fit; where it cannot do
    the tested skill either, nothing is fitted.
    """

    skills: Skills
    able: AbleRequest
    left_out: str
    keep: str

    def count(self, counter: Counter) -> None:
        """Count the fit on all skills but one, and all head sets of its test."""
        self.able.count(counter)
        able = self.able.known(counter.store)
        if able and not all(able[self.left_out, form].able for form in FORMS):
            return
        if not (skills := self._others(able)):
            return
        fit, config = self.skills.fit(skills, self.keep, self.left_out), self.skills.config
        fit.count(counter)
        layout = self.skills.model.layout
        if gates := fit.known(counter.store):
            entries = list(head_sets(gates, config.random))
        else:
            draws = len(LEARNED) + len(CONTROLS) * config.random
            labels = product(range(config.seeds), range(draws))
            entries = [HeadSetEntry(label, Pending((fit.key, label))) for label in labels]
        for form in FORMS:
            for metric in METRICS:
                counter.sweep(self._sweep(form, metric, HeadSets.of([], layout)), entries)

    def result(self, lab: Lab) -> Contrasted | None:
        """Fit and test; None where the whole model cannot do the skill that is left out."""
        able = self.able.result(lab)
        if not all(able[self.left_out, form].able for form in FORMS):
            return None
        skills = self._others(able)
        if not skills:
            raise HeadcountError(
                f"{self.skills.model.name} does no skill but {self.left_out} above chance both "
                "with an instruction and with solved examples, so there is nothing to keep and "
                "forget: choose a larger model, or other --skills."
            )
        gates = self.skills.fit(skills, self.keep, self.left_out).result(lab)
        entries = head_sets(gates, self.skills.config.random)
        table = HeadSets.build(gates.layout, entries)
        values: Tables = {}
        for form in FORMS:
            for metric in METRICS:
                measured = lab.measure(self._sweep(form, metric, table))
                for series in (*LEARNED, *CONTROLS):
                    values[form, metric, series] = measured.of(series)
        return Contrasted(gates, skills, values)

    def _others(self, able: Mapping[tuple[str, str], Tried] | None) -> list[str]:
        """The skills of the fit: all others, or those of them that the model can do."""
        others = [skill for skill in self.skills.config.skills if skill != self.left_out]
        if able is None:
            return others
        return [skill for skill in others if all(able[skill, form].able for form in FORMS)]

    def _sweep(self, form: str, metric: str, table: HeadSets) -> Sweep:
        task = self.skills.tested(self.left_out, form)
        return Sweep(self.skills.model, task, get_metric(metric), table, "all")


def head_sets(gates: ContrastiveGates, random: int) -> Iterator[HeadSetEntry]:
    """The learned gates of each fit, its binary head set, and random head sets of the same size.

    Random heads are drawn from all heads, those that the gates shut among them.
    """
    for seed, (soft, shut) in enumerate(zip(gates.gates, gates.shut, strict=True)):
        yield HeadSetEntry(GATES, soft.astype(np.float32))
        yield HeadSetEntry(HEADS, np.where(shut, 0, 1).astype(np.float32))
        for draw in range(random):
            rng = np.random.default_rng([seed, draw])
            yield HeadSetEntry(RANDOM, np.where(rng.permutation(shut), 0, 1).astype(np.float32))
            matched = within_layers(shut, gates.layout, rng)
            yield HeadSetEntry(MATCHED, np.where(matched, 0, 1).astype(np.float32))


def within_layers(shut: np.ndarray, layout: HeadLayout, rng: np.random.Generator) -> np.ndarray:
    """The same number of heads in each layer, drawn at random.

    >>> rng = np.random.default_rng(0)
    >>> within_layers(np.array([True, False, True, True]), HeadLayout((2, 2)), rng)[2:].tolist()
    [True, True]
    """
    drawn = shut.copy()
    for layer in range(len(layout.counts)):
        own = np.flatnonzero(layout.layers == layer)
        drawn[own] = rng.permutation(shut[own])
    return drawn


def facts_of(able: Mapping[tuple[str, str], Tried]) -> list[dict[str, Any]]:
    """What the whole model can do, as facts of a result."""
    return [{"task": skill, "form": form, **asdict(own)} for (skill, form), own in able.items()]


def _few(task: Task, n: int) -> Task:
    return task.subset(n) if n and n < len(task) else task
