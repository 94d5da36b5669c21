"""Gates with a budget: for each number of heads k, the best k heads that learning finds.

The gates of a row are G = σ((M − θ) / T), with θ such that they sum to the budget: k for the goal
"keep", and all heads but k for the goal "mask". M is learned to make the metric as high as possible
("keep") or as low as possible ("mask"), and T falls from update to update, until each gate is
nearly open or shut: what is left is a set of k heads. The budget begins near all heads and falls to
k: while nearly all heads are masked, say, it shows that either of two backups would undo the
masking, which does not show while both are there. All budgets are fitted side by side, each as a
row of its own, so the sets need not be nested; they start from the order of a cheap ranking.

Learning may fail. So each set is measured on the ranking split, beside the k heads that the start
puts first, and the better one is kept. A budget has not converged if its soft gates do clearly
otherwise than its set does, or if its set does clearly worse than the start: a note names these
budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending
from headcount.engine.measure.sweep import Sweep
from headcount.errors import HeadcountError
from headcount.heads import HeadScores, check_counts
from headcount.lab import Lab
from headcount.metrics import get_logit_metric, get_metric
from headcount.metrics.answers import answer_rows
from headcount.models.model import Model
from headcount.rankings.attribution import check_derivatives
from headcount.rankings.causal_gates.fit import FitSettings, StagedFit, open_gates
from headcount.rankings.causal_gates.metric_passes import MakeMetricPasses
from headcount.rankings.causal_gates.schedule import Row, Schedule, Stage
from headcount.rankings.causal_gates.training import Gradient, fidelity
from headcount.rankings.ensemble import check_goal
from headcount.rankings.ranking import RANKINGS, Ranking, Settings
from headcount.tasks import Task, require_corrupted

HOT, COLD = 1.0, 0.05  # the temperature T of the first and of the last update
FULL, FALLING = 0.95, 0.6  # the share of heads in the first set, and of updates until it has k
SPREAD = 2.0  # of the first logits: the start's first head has this logit, its last head minus that
NOISE = 0.5  # of the first logits, for all seeds but the first
ROUNDED = 0.05  # of the effect of all heads: how much a set may differ from its gates


@dataclass(frozen=True)
class BudgetSchedule(Schedule):
    """One stage, in which the gates of a row sum to its budget and turn into a head set."""

    start: tuple[float, ...] = ()
    facts_of_loss: tuple[str, ...] = ()  # the metric and the ablation

    def first(self, row: Row, heads: int) -> Float[np.ndarray, "heads"]:
        """The initial logits: those of the start, with noise for all seeds but the first."""
        noise = np.random.default_rng([row.seed, 2]).normal(size=heads) * (NOISE * (row.seed > 0))
        return np.asarray(np.array(self.start) + noise, dtype=np.float32)

    def facts(self, row: Row) -> dict[str, Any]:
        """The parts of the schedule that determine the result of a row."""
        more = {"loss": self.facts_of_loss, "start": self.start, "path": (HOT, COLD, FULL, FALLING)}
        return super().facts(row) | more

    def temperature(self, update: int) -> float:
        """T at an update, counted from 0; it falls by the same factor each time."""
        return float(HOT * (COLD / HOT) ** (update / max(self.free.updates - 1, 1)))

    def applied(self, rows: Sequence[Row], gradient: Gradient) -> Gradient:
        """The gradient in M, from a function that gives it in the logits of the gates."""

        def in_logits(logits: Tensor, update: int) -> Tensor:
            temperature, total = self.temperature(update), logits.shape[1]
            left = max(0.0, 1 - update / (FALLING * self.free.updates))
            x = within_budget(logits, [opened(row, total, left) for row in rows], temperature)
            signs = torch.tensor([1.0 if row.stage.startswith("keep") else -1.0 for row in rows])
            slope = gradient(x, update) * signs.to(x)[:, None]
            gates = x.sigmoid()
            give = gates * (1 - gates) + 1e-9  # how far each gate yields when θ moves
            share = give / give.sum(1, keepdim=True)
            return (slope - share * slope.sum(1, keepdim=True)) / temperature

        return in_logits


def opened(row: Row, total: int, left: float = 0.0) -> float:
    """How many gates of a row are open: its stage is "keep 8", say, or "mask 8".

    `left` is how much is left of the way from nearly all heads to the budget.

    >>> opened(Row(0, "keep 8"), 12), opened(Row(0, "mask 8"), 12)
    (8.0, 4.0)
    """
    goal, count = row.stage.split()
    held = int(count) + left * max(FULL * total - int(count), 0)
    return held if goal == "keep" else total - held


def within_budget(
    logits: Float[Tensor, "rows heads"], opened: Sequence[float], temperature: float
) -> Float[Tensor, "rows heads"]:
    """(M − θ) / T, with θ such that the gates of these logits sum to each row's number.

    >>> x = within_budget(torch.tensor([[3.0, 1.0, 0.0, -9.0]]), [2], 0.5)
    >>> round(float(x.sigmoid().sum()), 4)
    2.0
    """
    x = logits / temperature
    wanted = torch.tensor(opened, dtype=x.dtype, device=x.device)
    low, high = x.amin(1) - 40, x.amax(1) + 40
    for _ in range(50):
        middle = (low + high) / 2
        over = (x - middle[:, None]).sigmoid().sum(1) > wanted
        low, high = torch.where(over, middle, low), torch.where(over, high, middle)
    return x - high[:, None]


@dataclass(frozen=True, eq=False)
class BudgetFit(StagedFit):
    """A request for gates with budgets, on the task's ranking split.

    `start` holds the scores of the ranking from which the gates start; None while a forecast does
    not know them.
    """

    goal: str = field(kw_only=True)
    metric: str = field(kw_only=True)
    ablation: str = field(kw_only=True)
    budgets: Sequence[int] = field(kw_only=True)
    start: HeadScores | None = field(kw_only=True, default=None)
    gradient = staticmethod(fidelity)
    target_alone = False  # the metric counts all right answers

    @cached_property
    def lengths(self) -> list[Int[np.ndarray, "examples"]]:
        """How many tokens run for each example: those of all its answers that run on their own."""
        answers = answer_rows(get_logit_metric(self.metric), self.examples[0])
        rows = [row.length for row in answers.rows]
        return [np.bincount(answers.owners, rows, len(self.examples[0])).astype(int)]

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]
        """One stage, with the rows of all budgets."""
        return (tuple(f"{self.goal} {count}" for count in self.budgets),)

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies this fit within one process."""
        return *super().key, self.stages, self.metric, self.ablation

    @cached_property
    def schedule(self) -> Schedule:
        """One stage, whose learning rate goes from 0.1 to 0.01."""
        stage = Stage(self.settings.updates, 0.1, 0.01)
        total = self.model.layout.total
        first = np.zeros(total)
        if self.start is not None:
            order = self.start.order()
            # Heads to mask have shut gates.
            first[order] = np.linspace(SPREAD, -SPREAD, total) * (1 if self.goal == "keep" else -1)
        how = tuple(map(float, first)), (self.metric, self.ablation)
        return BudgetSchedule(stage, stage, self.batch[0], 0.0, *how)

    @property
    def make_passes(self) -> MakeMetricPasses:
        """Passes that give the gradients of the metric under the ablation."""
        return MakeMetricPasses(self.metric, self.ablation, self.examples[0])

    def result(self, lab: Lab) -> HeadScores:
        """The best set of each budget, and scores that say how often a head is in these sets."""
        assert self.start is not None
        rows, total = self.fitted(lab), self.model.layout.total
        cold, keep = self.schedule.temperature(self.settings.updates), self.goal == "keep"  # type: ignore[attr-defined]
        candidates: dict[tuple[str, int, int], np.ndarray] = {("start", 0, 0): np.ones(total)}
        candidates["none", 0, 0] = np.zeros(total)
        for count in self.budgets:
            candidates["start", count, 0] = _gates(self.start.best(count), total, keep)
            for row in (Row(seed, f"{self.goal} {count}") for seed in range(self.settings.seeds)):
                logits = rows.logits([row])[0]
                order = np.argsort(-logits if keep else logits, kind="stable")
                candidates["gates", count, row.seed] = _gates(order[:count], total, keep)
                x = within_budget(torch.tensor(logits)[None], [opened(row, total)], cold)
                candidates["soft", count, row.seed] = open_gates(x[0].double().numpy()[None])[0]
        entries = [HeadSetEntry(label, g.astype(np.float32)) for label, g in candidates.items()]
        values = lab.measure(self._sweep(HeadSets.build(self.model.layout, entries)))
        quality = {
            label: float(values.of(label).mean()) * (1 if keep else -1) for label in candidates
        }
        return self._chosen(candidates, quality)

    def _chosen(
        self,
        candidates: dict[tuple[str, int, int], np.ndarray],
        quality: dict[tuple[str, int, int], float],
    ) -> HeadScores:
        assert self.start is not None
        total, keep = self.model.layout.total, self.goal == "keep"
        effect = abs(quality["start", 0, 0] - quality["none", 0, 0])
        sets, origins, failed = [], [], []
        for count in self.budgets:
            labels = [key for key in candidates if key[1] == count and key[0] != "soft"]
            best = max(labels, key=quality.__getitem__)
            sets.append((candidates[best] == 1) == keep)
            origins.append(best[0])
            soft = [("soft", count, seed) for seed in range(self.settings.seeds)]
            gaps = [abs(quality[s] - quality["gates", count, s[2]]) for s in soft]
            worse = quality[best] - max(quality["gates", count, s[2]] for s in soft)
            if max(min(gaps), worse) > ROUNDED * effect:
                failed.append(count)
        table: Bool[np.ndarray, "sets heads"] = np.array(sets)
        ties = np.argsort(self.start.order()) / total  # 0 for the start's first head
        values = (table.sum(0) + 1 - ties) / (len(table) + 1)
        facts: dict[str, Any] = {"budgets": list(self.budgets), "kept_from": origins}
        facts |= {"not_converged": failed, "batch": self.batch[0]}
        scores = HeadScores(self.model.layout, values, "budget-gates", facts, sets=table)
        return scores.with_note(_note(failed, self.batch[1].get(self.task.name, "")))

    def _sweep(self, head_sets: HeadSets) -> Sweep:
        metric = get_metric(self.metric)
        return Sweep(self.model, self.task, metric, head_sets, "ranking", self.ablation)

    def count(self, counter: Counter) -> None:
        """Count the remaining updates, and the sets that are measured."""
        if self.ablation == "corrupted":
            require_corrupted(self.examples[0])
        super().count(counter)
        empty = HeadSets.of([], self.model.layout)
        ends = [HeadSetEntry(name, np.full(self.model.layout.total, name)) for name in (0, 1)]
        labels = [(count, n) for count in self.budgets for n in range(1 + 2 * self.settings.seeds)]
        counter.sweep(
            self._sweep(empty),
            [*ends, *(HeadSetEntry(label, Pending((self.key, label))) for label in labels)],
        )


def _gates(heads: np.ndarray, total: int, keep: bool) -> np.ndarray:
    chosen = np.zeros(total, dtype=bool)
    chosen[heads] = True
    return np.where(chosen == keep, 1.0, 0.0)


def _note(failed: Sequence[int], about_batch: str) -> str:
    notes = [about_batch] * bool(about_batch)
    if failed:
        listed = ", ".join(map(str, failed))
        notes.append(
            f"the gates did not converge at a budget of {listed}: the best head set that was "
            "found is kept there; more updates or seeds may find a better one"
        )
    return "; ".join(notes)


@dataclass(frozen=True)
class BudgetSettings:
    """The settings of gates with a budget.

    goal       "keep" for the heads that are kept alone, "mask" for those that are masked
    metric     what is made as high ("keep") or as low ("mask") as possible
    ablation   what replaces the output of heads whose gates are shut
    budgets    the numbers of heads to fit (default: 1, 2, 3, 5, 8, … up to less than all)
    updates    the number of updates
    batch      the number of prompts in an update, for each budget
    seeds      the number of fits of each budget, of which the best is kept
    start      the ranking from whose order the gates start
    """

    goal: str = "keep"
    metric: str = "logprob"
    ablation: str = "zero"
    budgets: Sequence[int] = ()
    updates: int = 200
    batch: int = 32
    seeds: int = 1
    start: str = "attribution"

    def __post_init__(self) -> None:
        check_goal(vars(self))
        check_derivatives(vars(self))
        FitSettings(self.updates, self.batch, self.seeds)
        if 0 in check_counts(self.budgets) or self.start == "budget-gates":
            raise HeadcountError(
                "Budgets are numbers of heads from 1 on, and gates with a budget start from "
                "another ranking, such as attribution."
            )
        RANKINGS[self.start]


def budget_gates(model: Model, task: Task, settings: BudgetSettings, *, lab: Lab) -> HeadScores:
    """Learned gates that sum to a budget of heads: a head set of its own for each budget."""
    asked = _fit(model, task, settings, None)  # refuses before anything is ranked
    _ = asked.lengths, asked.batch
    return _fit(model, task, settings, _start(model, task, settings).result(lab)).result(lab)


def count_budget_gates(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the start, all updates, and the sets that are measured."""
    chosen = BudgetSettings(**settings)
    first = _start(model, task, chosen)
    first.count(counter)
    _fit(model, task, chosen, first.known(counter.store)).count(counter)


def _fit(model: Model, task: Task, settings: BudgetSettings, start: HeadScores | None) -> BudgetFit:
    total = model.layout.total
    budgets = check_counts(settings.budgets or usual_budgets(total), model.layout)
    between = [count for count in budgets if count < total]
    if not between:
        raise HeadcountError(f"Give a budget of less than all {total} heads of {model.name}.")
    of_fit = FitSettings(settings.updates, settings.batch, settings.seeds)
    how = {"metric": settings.metric, "ablation": settings.ablation}
    return BudgetFit(model, task, of_fit, goal=settings.goal, budgets=between, start=start, **how)


def _start(model: Model, task: Task, settings: BudgetSettings) -> Ranking:
    """The ranking from which the gates start, with the settings that it knows."""
    known = RANKINGS[settings.start].defaults()
    given = {"goal": settings.goal, "metric": settings.metric, "ablation": settings.ablation}
    own = {key: value for key, value in given.items() if key in known}
    return Ranking.of(model, task, settings.start, **own)


def usual_budgets(total: int) -> list[int]:
    """1, 2, 3, 5, 8, … up to less than all heads.

    >>> usual_budgets(14)
    [1, 2, 3, 5, 8, 13]
    """
    budgets, following = [1], 2
    while following < total:
        budgets.append(following)
        following += budgets[-2] if len(budgets) > 1 else 1
    return budgets
