"""Rankings by derivative: how fast the metric falls when a head's gate is turned down.

A gated head says z' = g·z + (1 − g)·z₀, with z₀ its ablation. So the derivative of the metric in g
at g = 1 is a first-order estimate of metric(whole model) − metric(head ablated): positive for heads
that help. Each example has its own row of gates: one backward pass differentiates every example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from headcount.engine.measure.ablations import Ablation, check_ablation, make_ablation
from headcount.engine.measure.batch import Batch, make_batches
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.executor import Emit, Unit
from headcount.engine.measure.forward import check_finite, frozen, measuring, score
from headcount.engine.measure.plan import default_tokens
from headcount.engine.measure.sweep import check_answers
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics import Metric, get_logit_metric, logit_metrics
from headcount.metrics.answers import AnswerRows, answer_rows
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.rankings.prove_derivative import require_derivative
from headcount.rankings.ranking import Settings, examples_key
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Encoded, Task, require_corrupted

MOST_STEPS = 1_000  # of the path: the points and weights of more take minutes to compute


def attribution(
    model: Model, task: Task, *, metric: str = "logprob", ablation: str = "zero", lab: Lab
) -> HeadScores:
    """The derivative of the metric in each head's gate at 1, averaged over the ranking split."""
    samples, _ = _derivatives(model, task, metric, ablation, lab)
    return HeadScores.averaged(model.layout, samples, "attribution")


def integrated_gradients(
    model: Model,
    task: Task,
    *,
    metric: str = "logprob",
    ablation: str = "zero",
    steps: int = 16,
    lab: Lab,
) -> HeadScores:
    """The derivative averaged along the path on which all gates go together from 0 to 1.

    For each example the scores of all heads sum to metric(all heads) − metric(no head), up to the
    error of the numerical integration; the result's parameters `sum` and `difference` hold the two.
    """
    _check_steps(steps)
    samples, ends = _derivatives(model, task, metric, ablation, lab, steps)
    facts = {"sum": float(samples.sum(1).mean()), "difference": float(ends.mean())}
    return HeadScores.averaged(model.layout, samples, "integrated-gradients", facts)


def check_derivatives(settings: Settings) -> None:
    """Refuse a metric without a derivative, an unknown ablation, and too few or too many steps."""
    _differentiable(settings["metric"])
    check_ablation(settings["ablation"])
    if "steps" in settings:
        _check_steps(settings["steps"])


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise HeadcountError(f"Integrated gradients need at least 1 step, not {steps}.")
    if steps > MOST_STEPS:
        raise HeadcountError(
            f"Integrated gradients take at most {MOST_STEPS:,} steps, not {steps:,}."
        )


def _differentiable(metric: str) -> Metric:
    """The metric of this name, which must have a derivative."""
    chosen = get_logit_metric(metric)
    if not chosen.differentiable:
        usable = ", ".join(m.key for m in logit_metrics() if m.differentiable)
        raise HeadcountError(
            f'The metric "{chosen.key}" has no derivative to rank heads by: use one of {usable}.'
        )
    return chosen


def count_derivatives(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count a backward pass for each point of the path; integration also runs both of its ends."""
    examples, steps = model.encode(task.split("ranking")), settings.get("steps", 0)
    answers = answer_rows(get_logit_metric(settings["metric"]), examples)
    check_answers(model, task, answers)
    tokens = sum(row.length for row in answers.rows)
    if settings["ablation"] == "corrupted":
        require_corrupted(examples)
    if settings["ablation"] != "zero":
        counter.passes(model, tokens)
    counter.passes(model, tokens * max(steps, 1), "gradients")
    if steps:
        counter.passes(model, 2 * tokens)


@dataclass(frozen=True, eq=False)
class DerivativeJob:
    """The weighted sum of the derivatives with the gates at each of `points` times `gates`.

    The work of a unit is some examples; all rows of their answers are differentiated together. With
    `ends` it also computes metric(all heads) − metric(no head); otherwise this difference is 0.
    """

    examples: Sequence[Encoded]
    metric: Metric
    ablation: str
    tokens: int
    points: Float[np.ndarray, "points"]
    weights: Float[np.ndarray, "points"]
    ends: bool
    gates: Float[np.ndarray, "heads"]

    @cached_property
    def answers(self) -> AnswerRows:
        """The rows of the examples' answers."""
        return answer_rows(self.metric, self.examples)

    def ready(self, model: Model) -> Callable[[Sequence[int], Emit], None]:
        """Make a function that emits (examples, slopes, differences) for some examples.

        Before each point it emits an empty result, where an executor can pause: no gate is on then.
        """
        rows, owners = self.answers.rows, self.answers.owners
        ablation = make_ablation(self.ablation, model, rows, self.examples, self.tokens)

        def derive(places: Sequence[int], emit: Emit) -> None:
            own = np.flatnonzero(np.isin(owners, places)).tolist()
            batches = make_batches(rows, tokens=1 << 60, device=model.device, places=own)
            with measuring(model, max(b.ids.shape[1] for b in batches)), frozen(model):
                pause = partial(emit, ())
                emit((places, *self._derive(model, list(places), batches, ablation, pause)))

        return derive

    def _derive(
        self,
        model: Model,
        places: list[int],
        batches: Sequence[Batch],
        ablation: Ablation,
        pause: Callable[[], object],
    ) -> tuple[Float[np.ndarray, "examples heads"], Float[np.ndarray, "examples"]]:
        z0, total = [ablation.provide(batch) for batch in batches], model.layout.total
        rows = [row for batch in batches for row in batch.examples]

        def run(gates: torch.Tensor) -> torch.Tensor:
            """The metric of each example, with one row of gates for each of `rows`."""
            values = []
            own = gates.split([batch.rows for batch in batches])
            every_site = gates.requires_grad
            for batch, g, z in zip(batches, own, z0, strict=True):
                with gating(model.module, model.sites, g, ablations=z, every_site=every_site):
                    values.append(self.metric.function(score(model, batch)))
            each = torch.cat(values)
            check_finite(each, model)
            table = each.new_zeros(len(self.answers.rows)).index_put((torch.tensor(rows),), each)
            return self.answers.combined(table)[places]

        differences = np.zeros(len(places))
        if self.ends:
            with torch.no_grad():
                whole = torch.ones(len(rows), total)
                difference = run(whole) - run(torch.zeros_like(whole))
            differences = difference.double().cpu().numpy()
        by_row = np.zeros((len(rows), total))
        for point, weight in zip(self.points, self.weights, strict=True):
            pause()
            at = torch.from_numpy(self.gates * point).float().to(model.device)
            gates = at.repeat(len(rows), 1).requires_grad_()
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(run(gates).sum(), gates)
            by_row += weight * slope.double().cpu().numpy()
        slopes = np.zeros((len(self.examples), total))
        np.add.at(slopes, self.answers.owners[rows], by_row)
        return slopes[places], differences


def slopes_at(
    model: Model,
    task: Task,
    metric: str,
    ablation: str,
    gates: Float[np.ndarray, "heads"],
    lab: Lab,
) -> Float[np.ndarray, "heads"]:
    """The mean derivative of the metric in each head's gate, with all gates as given."""
    return np.asarray(_derivatives(model, task, metric, ablation, lab, gates=gates)[0].mean(0))


def _derivatives(
    model: Model,
    task: Task,
    metric: str,
    ablation: str,
    lab: Lab,
    steps: int = 0,
    gates: Float[np.ndarray, "heads"] | None = None,
) -> tuple[Float[np.ndarray, "examples heads"], Float[np.ndarray, "examples"]]:
    """The derivatives at gates of 1; with `steps`, their mean from 0 to 1 and the difference.

    If `gates` are given, they take the place of gates of 1.
    """
    chosen = _differentiable(metric)
    examples = model.encode(task.split("ranking"))
    require_derivative(model)
    points, weights = np.ones(1), np.ones(1)
    if steps:
        # Gauss–Legendre points: for smooth functions they err far less than equal steps.
        points, weights = np.polynomial.legendre.leggauss(steps)
        points, weights = (points + 1) / 2, weights / 2
    # A backward pass keeps the activations of every layer, so run half as many tokens at once.
    tokens = default_tokens(model) // 2
    base = np.ones(model.layout.total) if gates is None else gates
    job = DerivativeJob(examples, chosen, ablation, tokens, points, weights, bool(steps), base)
    check_answers(model, task, job.answers)
    units = [
        Unit(
            examples_key(examples[place] for place in places)
            + ("" if gates is None else gates.tobytes().hex()),
            f"{task.name}, derivatives of {len(places)} examples",
            places,
        )
        for places in _together(job.answers, len(examples), tokens)
    ]
    samples, differences = np.zeros((len(examples), model.layout.total)), np.zeros(len(examples))
    with progress_bar("ranking", len(examples), show=lab.progress) as bar:

        def keep(unit: Unit, derived: Any) -> None:
            if not derived:
                return
            places = list(derived[0])
            samples[places], differences[places] = derived[1], derived[2]
            bar.update(len(places))

        ahead = sum(row.length for row in job.answers.rows) * len(points)
        lab.run(model, job, units, keep, tokens=ahead, kind="gradients")
    return samples, differences


def _together(answers: AnswerRows, examples: int, tokens: int) -> list[tuple[int, ...]]:
    """The examples of each unit: all their rows together have about `tokens` tokens."""
    if len(answers.rows) == examples:
        return [batch.examples for batch in make_batches(answers.rows, tokens=tokens)]
    shapes: list[list[int]] = [[] for _ in range(examples)]
    for owner, row in zip(answers.owners, answers.rows, strict=True):
        shapes[owner].append(row.length)
    units: list[list[int]] = []
    filled = tokens
    for place in sorted(range(examples), key=shapes.__getitem__):  # equal lengths run together
        if filled + sum(shapes[place]) > tokens:
            units.append([])
            filled = 0
        units[-1].append(place)
        filled += sum(shapes[place])
    return [tuple(unit) for unit in units]
