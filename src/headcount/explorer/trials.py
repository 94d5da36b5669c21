"""A task in an explorer: each head set that was tried is a point beside its random controls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from headcount.curves import Curve, CurveRequest, CurveSettings
from headcount.engine.measure.executor import Job, Local, Unit
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.engine.measure.measuring import MeasuringJob
from headcount.engine.measure.plan import best_plan, default_tokens
from headcount.engine.measure.sweep import Sweep, Values
from headcount.errors import HeadcountError
from headcount.explorer.inquiries import Inquiry
from headcount.explorer.state import ExplorerState
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics import get_logit_metric
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import FitJob
from headcount.rankings.causal_gates.training import TICK
from headcount.stats import Interval, paired_difference
from headcount.tasks import Task

DRAWS = 5  # random controls of a trial
MOST_TRIALS = 200


@dataclass
class Pausing(Local):
    """Carries out jobs in this process, and pauses between their passes for what is more urgent."""

    inquiry: Inquiry

    def run(
        self, model: Model, job: Job, units: Sequence[Unit], keep: Callable[[Unit, Any], None]
    ) -> None:
        """Carry out the units, and tell how much is done: of values, updates, or units."""
        do = job.ready(model)
        sizes = [_size(job, unit) for unit in units]
        of, done = sum(sizes), 0

        def keep_and_pause(unit: Unit, result: Any) -> None:
            nonlocal done
            keep(unit, result)
            if more := _more(job, result):
                done += more
                self.inquiry.emit("progress", {"done": min(done, of), "of": of})
            # A job of another kind may emit under its gates, which would gate the other inquiry.
            (self.inquiry.check if model.hooked else self.inquiry.pause)()

        for number, unit in enumerate(units):
            self.inquiry.pause()
            self.inquiry.emit("progress", {"done": sum(sizes[:number]), "of": of})
            do(unit.work, partial(keep_and_pause, unit))
        self.inquiry.emit("progress", {"done": of, "of": of})


def lab_that_pauses(lab: Lab, inquiry: Inquiry, model: Model) -> Lab:
    """The lab with pauses between passes; on a CPU these are short, since a click waits for one."""
    on_cpu = model.device.type == "cpu"
    plan = best_plan(model, tokens=default_tokens(model) // 4) if on_cpu else None
    return replace(lab, executor=Pausing(inquiry), plan=plan)


def _size(job: Job, unit: Unit) -> int:
    """How many values a unit measures or updates it makes; 1 for other work."""
    if isinstance(job, MeasuringJob):
        return sum(len(share.rows) * len(share.columns) for share in unit.work)
    return job.settings.updates * len(job.stages) if isinstance(job, FitJob) else 1


def _more(job: Job, result: Any) -> int:
    """How many values or updates a result adds."""
    if isinstance(job, MeasuringJob):
        return len(result[0]) * len(result[1])
    return int(result[2]) if isinstance(job, FitJob) and result[0] == TICK else 0


@dataclass(frozen=True, eq=False)
class Trial:
    """One head set on the test split of the task."""

    number: int
    state: ExplorerState
    values: Values  # labels: whole, set, random (several draws)
    note: str

    def to_json(self) -> dict[str, Any]:
        """What a page shows of it."""
        values = self.values
        return {
            "number": self.number,
            "name": short_name(self.state),
            "heads": list(self.state.heads),
            "keep": self.state.keep,
            "gate": self.state.gate,
            "ablation": self.state.ablation,
            "metric": values.metric.key,
            "metric_name": values.metric.name,
            "shares": values.metric.binary,
            "examples": len(values.examples),
            "whole": _ends(values.interval("whole")),
            "set": _ends(values.interval("set")),
            "random": _ends(values.interval("random")),
            "draws": np.round(values.of("random").mean(1), 4).tolist(),
            "against_random": _ends(values.difference("set", "random")),
            "note": self.note,
            "chance": values.at_chance,
        }


@dataclass(frozen=True, eq=False)
class TriedCurve:
    """A curve along a ranking, as the state ablates, gates, and masks or keeps."""

    state: ExplorerState
    metric: str
    curve: Curve

    def to_json(self) -> dict[str, Any]:
        """What a page draws of it."""
        kept = ("series", "count", "value", "low", "high")
        return {
            "name": self.name,
            "metric": self.metric,
            "shares": self.curve.values.metric.binary,
            "points": [{name: row[name] for name in kept} for row in self.curve.rows],
        }

    @property
    def name(self) -> str:
        """The ranking, and how its heads are masked."""
        how = [f"ablation {self.state.ablation}"]
        how += [f"gate {self.state.gate:g}"] * bool(self.state.gate)
        how += ["only these heads kept"] * self.state.keep
        return f"{self.state.colour} ({', '.join(how)})"


@dataclass
class Trials:
    """All head sets that were tried on a task in this session, and the curves."""

    model: Model
    task: Task
    tried: list[Trial] = field(default_factory=list)
    curves: list[TriedCurve] = field(default_factory=list)

    def measure(self, state: ExplorerState, metric: str, lab: Lab, inquiry: Inquiry) -> Trial:
        """Measure a head set, the whole model, and random heads of the same layers."""
        settings = (metric, state.head_set, state.ablation, state.seed)
        for known in self.tried:  # measured before: no second point of the same head set
            own = known.state
            if (known.values.metric.key, own.head_set, own.ablation, own.seed) == settings:
                return known
        if len(self.tried) >= MOST_TRIALS:
            raise HeadcountError(f"A session keeps at most {MOST_TRIALS} head sets: start it anew.")
        layout = self.model.layout
        controls, note = state.controls(layout, DRAWS)
        entries = [
            HeadSetEntry("whole", np.ones(layout.total, dtype=np.float32)),
            HeadSetEntry("set", state.gates(layout)),
            *(HeadSetEntry("random", gates) for gates in controls),
        ]
        sets = HeadSets.build(layout, entries)
        chosen = get_logit_metric(metric)
        sweep = Sweep(self.model, self.task, chosen, sets, "test", state.ablation)
        values = lab_that_pauses(lab, inquiry, self.model).measure(sweep)
        trial = Trial(len(self.tried) + 1, state, values, note)
        self.tried.append(trial)
        return trial

    def compare(self, one: int, other: int) -> dict[str, Any]:
        """The difference of two tried head sets, paired by example."""
        first, second = self._trial(one), self._trial(other)
        if first.values.metric.key != second.values.metric.key:
            raise HeadcountError("These two were measured by different metrics: choose others.")
        clusters = first.values.clusters
        found = paired_difference(
            first.values.of("set"), second.values.of("set"), clusters=clusters
        )
        shared = set(first.state.heads) & set(second.state.heads)
        return {
            "one": one,
            "other": other,
            "difference": _ends(found),
            "metric_name": first.values.metric.name,
            "shared": sorted(shared),
            "only_one": [head for head in first.state.heads if head not in shared],
            "only_other": [head for head in second.state.heads if head not in shared],
        }

    def curve(
        self,
        state: ExplorerState,
        scores: HeadScores,
        metric: str,
        lab: Lab,
        inquiry: Inquiry,
    ) -> TriedCurve:
        """The curve along the ranking that colours the map, as the state ablates and gates."""
        asked = (state.colour, metric, state.keep, state.gate, state.ablation)
        for known in self.curves:
            own = known.state
            if (own.colour, known.metric, own.keep, own.gate, own.ablation) == asked:
                return known
        settings = CurveSettings(
            series=("top", "matched"),
            seeds=3,
            mode="keep" if state.keep else "mask",
            ablation=state.ablation,
            epsilon=state.gate,
        )
        chosen = get_logit_metric(metric)
        request = CurveRequest(self.model, self.task, scores, chosen, settings)
        curve = request.result(lab_that_pauses(lab, inquiry, self.model))
        self.curves.append(TriedCurve(state, metric, curve))
        return self.curves[-1]

    def _trial(self, number: int) -> Trial:
        if not 1 <= number <= len(self.tried):
            raise HeadcountError(f"There is no head set number {number} in this session.")
        return self.tried[number - 1]


def short_name(state: ExplorerState) -> str:
    """A head set in few words."""
    if not (state.heads or state.keep):
        return "whole model"
    count = len(state.heads)
    listed = " ".join(state.heads[:4]) + (f" … ({count} heads)" if count > 4 else "")
    how = f", gate {state.gate:g}" if state.gate else ""
    how += f", {state.ablation}" if state.ablation != "zero" else ""
    return ("only " if state.keep else "without ") + (listed or "no head") + how


def _ends(found: Interval) -> dict[str, float]:
    return {"value": found.value, "low": found.low, "high": found.high}
