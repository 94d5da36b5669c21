"""Measure a metric with only the first edges of each order kept.

A unit of work are prompts of equal length that share their orders: prompts of one template and
length where edges are ranked for the task, or a batch where each prompt ranks its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.engine.edges.attention import (
    EdgePass,
    attending,
    edge_scores,
    register,
    sites_of,
)
from headcount.engine.measure.batch import Batch, make_batches
from headcount.engine.measure.executor import Emit
from headcount.engine.measure.forward import check_finite, fits, frozen, measuring, score
from headcount.errors import HeadcountError
from headcount.metrics import Metric
from headcount.models.memory import too_large
from headcount.models.model import Model
from headcount.models.sites import coarsest_dtype
from headcount.models.slices import tolerance
from headcount.tasks import Encoded

RANDOM = "random"
ABSOLUTE = ", absolute"  # the end of the name of an order by absolute scores
# The points of the path from the corrupted to the clean edges at which each ranking takes slopes.
STEPS = {"attribution": 0, "integrated-gradients": 8}

Values = Mapping[str, Float[np.ndarray, "draws counts examples"]]
Emitted = tuple[tuple[int, ...], Values]


@dataclass(frozen=True, eq=False)
class EdgeJob:
    """The metric of each example at every count of kept edges, by order.

    examples  the tested examples
    ranked    the examples that edges are ranked on; the tested ones where each ranks its own
    orders    the orders, by name: that of a ranking's scores, or of their absolute values
    counts    how many edges are kept; a count beyond the edges of a prompt keeps all of them
    seeds     the number of random orders
    own       each example keeps its own first edges; otherwise those of its unit's mean scores
    tokens    about how many tokens run at once
    """

    examples: Sequence[Encoded]
    ranked: Sequence[Encoded]
    metric: Metric
    orders: tuple[str, ...]
    counts: tuple[int, ...]
    seeds: int
    own: bool
    tokens: int

    def ready(
        self, model: Model
    ) -> Callable[[tuple[tuple[int, ...], tuple[int, ...]], Emit], None]:
        """Make a function that measures some examples, ranked on some others, and emits values."""
        register()
        runner = _Runner(model, self.metric, self.tokens)

        def work(places: tuple[tuple[int, ...], tuple[int, ...]], emit: Emit) -> None:
            tested, ranked = places
            examples = [self.examples[place] for place in tested]
            longest = examples[0].length
            with measuring(model, longest), frozen(model):
                runner.prove(examples[:1])
                orders = self._orders(runner, examples, [self.ranked[p] for p in ranked])
                values = {
                    name: np.stack([runner.values(examples, order, self.counts) for order in some])
                    for name, some in orders.items()
                }
            emit((tested, values))

        return work

    def _orders(
        self, runner: _Runner, examples: Sequence[Encoded], ranked: Sequence[Encoded]
    ) -> dict[str, list[Tensor]]:
        """The orders of a unit by name: each has (examples, heads, queries, keys)."""
        found: dict[str, list[Tensor]] = {}
        known: dict[str, Tensor] = {}
        for name in self.orders:
            ranking = name.removesuffix(ABSOLUTE)
            if ranking not in known:
                scores = runner.scores(examples if self.own else ranked, STEPS[ranking])
                known[ranking] = scores if self.own else scores.mean(0, keepdim=True)
            by = known[ranking].abs() if name.endswith(ABSOLUTE) else known[ranking]
            placed = torch.stack([order_of(one) for one in by])
            found[name] = [placed.expand(len(examples), -1, -1, -1)]
        heads, tokens = runner.model.layout.total, examples[0].length
        for seed in range(self.seeds):
            numbers = np.random.default_rng([seed, heads, tokens]).random((heads, tokens, tokens))
            order = order_of(torch.from_numpy(numbers))
            found.setdefault(RANDOM, []).append(order.expand(len(examples), -1, -1, -1))
        return found


def order_of(scores: Float[Tensor, "heads queries keys"]) -> Tensor:
    """The place of each edge, the highest score first; pairs that are no edges come last.

    >>> order_of(torch.tensor([[[0.1, 9.0], [0.3, 0.2]]])).tolist()
    [[[2, 3], [0, 1]]]
    """
    tokens = scores.shape[-1]
    edges = torch.ones(tokens, tokens, dtype=torch.bool, device=scores.device).tril()
    flat = scores.masked_fill(~edges, -torch.inf).flatten()
    order = torch.empty_like(flat, dtype=torch.int32)
    places = torch.arange(flat.numel(), dtype=torch.int32, device=scores.device)
    order[flat.argsort(descending=True, stable=True)] = places
    return order.view_as(scores)


class _Runner:
    """Passes of one model: corrupted ones, whole ones, and ones with some edges kept."""

    def __init__(self, model: Model, metric: Metric, tokens: int) -> None:
        self.model, self.metric, self.tokens = model, metric, tokens
        self.sites = sites_of(model)
        self._proven = False

    def prove(self, examples: Sequence[Encoded]) -> None:
        """Refuse a model whose logits this attention function does not reproduce."""
        if self._proven:
            return
        (batch,) = make_batches(examples, tokens=1 << 60, device=self.model.device)
        with torch.no_grad():
            own = score(self.model, batch).logits
            with attending(self.model, EdgePass(self.sites)):
                again = score(self.model, batch).logits
        allowed = 10 * tolerance(coarsest_dtype(self.model.module)) * float(own.abs().max())
        if not float((own - again).abs().max()) <= allowed:
            raise HeadcountError(
                f"Attention of {self.model.name} is not softmax(q·k) v alone, so its edges cannot "
                "be kept one by one: keep whole heads instead (heads-kept)."
            )
        self._proven = True

    def _pass(self, batch: Batch, now: EdgePass) -> Tensor:
        with attending(self.model, now):
            values = self.metric.function(score(self.model, batch))
        check_finite(values, self.model)
        if len(now.runs) != len(self.sites):
            raise HeadcountError(
                f"{self.model.name} did not run attention at all its head sites, so its edges "
                "cannot be kept one by one: keep whole heads instead (heads-kept)."
            )
        return values

    @torch.no_grad()
    def _corrupted(self, examples: Sequence[Encoded]) -> EdgePass:
        (batch,) = make_batches(examples, tokens=1 << 60, device=self.model.device, corrupted=True)
        now = EdgePass(self.sites)
        self._pass(batch, now)
        return EdgePass(
            self.sites,
            corrupted={i: (call, now.outputs[i]) for i, call in now.calls.items()},
        )

    def scores(
        self, examples: Sequence[Encoded], steps: int
    ) -> Float[Tensor, "examples heads queries keys"]:
        """What each edge adds to the metric, to first order; along a path if there are `steps`."""
        points, weights = np.ones(1), np.ones(1)
        if steps:
            points, weights = np.polynomial.legendre.leggauss(steps)
            points, weights = (points + 1) / 2, weights / 2
        rows = max(1, self.tokens // examples[0].length)
        found = []
        for start in range(0, len(examples), rows):
            some = examples[start : start + rows]
            known = self._corrupted(some)
            (batch,) = make_batches(some, tokens=1 << 60, device=self.model.device)
            total: Tensor | float = 0.0
            for point, weight in zip(points, weights, strict=True):
                total = total + float(weight) * self._slopes(batch, known, float(point))
            assert isinstance(total, Tensor)
            found.append(total.cpu())
        return torch.cat(found)

    def _slopes(self, batch: Batch, known: EdgePass, point: float) -> Tensor:
        share = torch.full((), point, device=self.model.device, requires_grad=True)
        now = replace(known, share=share, calls={}, outputs={}, runs={})
        with torch.enable_grad():
            value = self._pass(batch, now).sum()
            indices = list(now.outputs)
            slopes = torch.autograd.grad(value, [now.outputs[index] for index in indices])
        with torch.no_grad():
            by_site = dict(zip(indices, slopes, strict=True))
            return torch.cat(edge_scores(now.calls, known.corrupted, by_site), 1)

    @torch.no_grad()
    def values(
        self, examples: Sequence[Encoded], order: Tensor, counts: Sequence[int]
    ) -> Float[np.ndarray, "counts examples"]:
        """The metric of each example with its first edges kept, at every count."""
        rows = max(1, self.tokens // examples[0].length)
        columns = [
            self._values(examples[start : start + rows], order[start : start + rows], counts)
            for start in range(0, len(examples), rows)
        ]
        return np.concatenate(columns, axis=1)

    def _values(
        self, examples: Sequence[Encoded], order: Tensor, counts: Sequence[int]
    ) -> Float[np.ndarray, "counts examples"]:
        known = self._corrupted(examples)
        (batch,) = make_batches(examples, tokens=1 << 60, device=self.model.device)
        placed = order.to(self.model.device)
        copies = max(1, self.tokens // (len(examples) * examples[0].length))
        table: list[np.ndarray] = []
        while len(table) < len(counts):
            some = counts[len(table) : len(table) + copies]
            kept = torch.tensor(some, device=self.model.device)
            now = replace(known, order=placed, kept=kept, runs={})

            def run(now: EdgePass = now, times: int = len(some)) -> None:
                values = self._pass(repeated(batch, times), now)
                table.extend(values.double().cpu().numpy().reshape(times, -1))

            if not fits(self.model, run):
                if copies == 1:
                    raise too_large(self.model, examples[0].length)
                copies //= 2
        return np.stack(table)


def repeated(batch: Batch, times: int) -> Batch:
    """The batch's rows several times over, one copy after the other."""
    parts = {
        item.name: getattr(batch, item.name).repeat(times, 1)
        for item in fields(batch)
        if item.name != "examples"
    }
    return Batch(batch.examples * times, **parts)
