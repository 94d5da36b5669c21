"""Gates between full and streaming attention: which heads need the whole text.

A head's output is G · full + (1 − G) · streaming with G = σ(M), and M is learned while the weights
are frozen, from gates that are nearly open:

    loss = −mean over prompts(mean over target tokens of log p) + λ · mean over heads(clamp(M, ±4))

The second term pushes every gate shut; a head whose gate stays open needs more of the text than the
first and the most recent tokens. With key/value heads these are the gates of DuoAttention (Xiao et
al. 2024) and RLKV (Du et al. 2025), which have other losses: the distance of the last hidden states
from those of the whole model, and the reward of written answers, both with a penalty on ΣG.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.ablations import check_ablation
from headcount.engine.measure.cost import Counter
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.models.streaming import Streaming
from headcount.rankings.causal_gates.fit import FitSettings, StagedFit, open_gates
from headcount.rankings.causal_gates.metric_passes import MakeMetricPasses
from headcount.rankings.causal_gates.schedule import PUSH, Row, Schedule, Stage
from headcount.rankings.causal_gates.training import fidelity
from headcount.rankings.ranking import Settings
from headcount.tasks import Task

OPEN = 2.0  # the first logit of every gate: G = 0.88
NOISE = 0.5  # of the first logits, for all seeds but the first
SHUTTING = "minus"  # the stage in which gates are pushed shut
METRIC = "logprob_per_token"


@dataclass(frozen=True)
class StreamingGateSettings:
    """The settings of gates between full and streaming attention.

    ablation   streaming:SINK:WINDOW, the numbers of first and of recent tokens that a head sees
    updates    the number of updates
    batch      the number of prompts in an update
    seeds      the number of fits, whose mean gate is the score
    push       λ, how strongly gates are pushed shut
    """

    ablation: str = "streaming"
    updates: int = 200
    batch: int = 32
    seeds: int = 1
    push: float = PUSH

    def __post_init__(self) -> None:
        if Streaming.read(check_ablation(self.ablation)) is None:
            raise HeadcountError(
                "streaming-gates are gates between full and streaming attention: leave the "
                f"ablation at streaming:SINK:WINDOW, not {self.ablation} (facilitation learns "
                "gates for zero ablation, and budget-gates for any)."
            )
        FitSettings(self.updates, self.batch, self.seeds)
        if not 0 < self.push < np.inf:
            raise HeadcountError(f"The push of streaming-gates is above 0, not {self.push}.")


@dataclass(frozen=True)
class StreamingSchedule(Schedule):
    """One stage, in which nearly open gates are pushed shut."""

    ablation: str = ""

    def first(self, row: Row, heads: int) -> Float[np.ndarray, "heads"]:
        """The initial logits: all the same, with noise for all seeds but the first."""
        noise = np.random.default_rng([row.seed, 5]).normal(size=heads) * (NOISE * (row.seed > 0))
        return np.asarray(OPEN + noise, dtype=np.float32)

    def facts(self, row: Row) -> dict[str, Any]:
        """The parts of the schedule that determine the result of a row."""
        return super().facts(row) | {"loss": (METRIC, self.ablation), "start": OPEN}


@dataclass(frozen=True, eq=False)
class StreamingFit(StagedFit):
    """A request for gates between full and streaming attention, on the task's ranking split."""

    ablation: str = field(kw_only=True)
    push: float = field(kw_only=True)
    stages = ((SHUTTING,),)
    gradient = staticmethod(fidelity)

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies this fit within one process."""
        return *super().key, self.ablation, self.push

    @cached_property
    def schedule(self) -> Schedule:
        """One stage, whose learning rate goes from 0.5 to 0.1."""
        stage = Stage(self.settings.updates, 0.5, 0.1)
        return StreamingSchedule(stage, stage, self.batch[0], self.push, self.ablation)

    @property
    def make_passes(self) -> MakeMetricPasses:
        """Passes that give the gradients of the log-probability of the answer."""
        return MakeMetricPasses(METRIC, self.ablation, self.examples[0])

    def result(self, lab: Lab) -> HeadScores:
        """The mean gate of each head: how much of its full attention it keeps."""
        self.model.require_streaming()
        gates = open_gates(self.fitted(lab).logits(self.rows([SHUTTING])))
        facts = {"batch": self.batch[0]}
        scores = HeadScores.averaged(self.model.layout, gates, "streaming-gates", facts)
        return scores.with_note(self.batch[1].get(self.task.name, ""))


def streaming_gates(
    model: Model, task: Task, settings: StreamingGateSettings, *, lab: Lab
) -> HeadScores:
    """Learned gates between full and streaming attention: how far a head's gate stays open."""
    return _fit(model, task, settings).result(lab)


def count_streaming_gates(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the updates of the fit; refuses a model whose heads cannot stream."""
    model.require_streaming()
    _fit(model, task, StreamingGateSettings(**settings)).count(counter)


def _fit(model: Model, task: Task, settings: StreamingGateSettings) -> StreamingFit:
    of_fit = FitSettings(settings.updates, settings.batch, settings.seeds)
    ablation = check_ablation(settings.ablation)
    return StreamingFit(model, task, of_fit, ablation=ablation, push=settings.push)
