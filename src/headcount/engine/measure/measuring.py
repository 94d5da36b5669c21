"""Cut a sweep into units for an executor, and measure the units.

A unit is made of whole passes, the same passes that a single process would run, so no value depends
on how the work is distributed. For workers, units are small enough that each worker gets several
and that little is lost when a worker dies, but not smaller: every share of a batch first runs the
batch with all heads, to start the gated passes from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from headcount.engine.measure.ablations import Ablation, make_ablation
from headcount.engine.measure.batch import Batch, make_batches, shared_start
from headcount.engine.measure.executor import Emit, Unit
from headcount.engine.measure.forward import check_finite, fits, measuring
from headcount.engine.measure.plan import SHORTEST_PREFIX, Plan, Work
from headcount.engine.measure.runner import Runner, chunks
from headcount.heads import HeadLayout
from headcount.metrics import Metric
from headcount.models.memory import too_large
from headcount.models.model import Model
from headcount.system.files import canonical, digest
from headcount.tasks import Encoded

UNITS_EACH = 8  # for each worker, so that no worker waits long for the last unit
FEWEST, MOST = 4, 64  # passes in a unit

# The numbers of some head sets (rows) and examples (columns), and their values.
Measured = tuple[list[int], list[int], Float[np.ndarray, "sets examples"]]


class Share(NamedTuple):
    """Part number `part` of `of` equal parts of the passes that one batch needs."""

    rows: tuple[int, ...]  # the head sets of all parts together
    columns: tuple[int, ...]  # the examples of the batch
    part: int = 0
    of: int = 1


@dataclass(frozen=True, eq=False)
class MeasuringJob:
    """The data that all units of a sweep need; a mean ablation is taken over `ranking`."""

    gates: Float[np.ndarray, "sets heads"]
    examples: Sequence[Encoded]
    ranking: Sequence[Encoded]
    metric: Metric
    ablation: str
    ablation_tokens: int  # tokens that run at once when the ablation's outputs are computed
    plan: Plan
    positions: str = "all"  # where gates act

    def ready(self, model: Model) -> Callable[[Sequence[Share], Emit], None]:
        """Make a function that measures shares with a model."""
        ablation = make_ablation(
            self.ablation, model, self.examples, self.ranking, self.ablation_tokens
        )
        # All units use the same object, because it remembers how much fits into memory.
        examples = len(self.examples)
        how = self.metric, ablation, self.plan, self.positions
        passes = Passes(model, self.gates, examples, *how)
        longest = max((example.length for example in self.examples), default=0)

        def measure(shares: Sequence[Share], emit: Emit) -> None:
            passes.emit = emit
            with measuring(model, longest):
                try:
                    for share in shares:
                        # A share's examples always make one batch, as when the unit was cut.
                        (batch,) = self._batches(model, share.columns, tokens=1 << 60)
                        passes.run(batch, share.rows, share.part, share.of)
                finally:
                    passes.flush()  # also after an interruption: measured values are kept

        return measure

    def _batches(self, model: Model, examples: Sequence[int], tokens: int = 0) -> list[Batch]:
        return make_batches(
            self.examples,
            tokens=tokens or self.plan.tokens,
            device=model.device,
            places=examples,
            min_prefix=SHORTEST_PREFIX if self.plan.fast_paths.cache else None,
            long_tokens=None if tokens else self.plan.long_tokens,
        )

    def parts(
        self,
        model: Model,
        asked: Bool[np.ndarray, "sets examples"],
        missing: Bool[np.ndarray, "sets examples"],
    ) -> list[tuple[np.ndarray, Batch]]:
        """Batches of the examples with missing values, each with the head sets to run it under.

        A head set for all examples runs on batches of many; one for some, on each of them alone.
        """
        common = asked.all(axis=1)
        batches = self._batches(model, np.flatnonzero(missing[common].any(axis=0)).tolist())
        with_own_sets = np.flatnonzero(missing[~common].any(axis=0)).tolist()
        singles = [batch for index in with_own_sets for batch in self._batches(model, [index])]
        return [
            *((np.flatnonzero(common), batch) for batch in batches),
            *((np.flatnonzero(~common), batch) for batch in singles),
        ]

    def units(
        self,
        context: dict[str, Any],
        missing: Bool[np.ndarray, "sets examples"],
        parts: Iterable[tuple[np.ndarray, Batch]],
        workers: int,
    ) -> list[Unit]:
        """Cut batches into units: one unit per batch in this process, smaller ones for workers."""
        work: list[tuple[float, tuple[int, ...], Batch]] = []  # passes, head sets, examples
        for sets, batch in parts:
            whole = batch, batch, self.plan.most_tokens, batch.rows
            for piece in self.plan.pieces(*whole) if workers else [batch]:
                rows = sets[missing[sets][:, list(piece.examples)].any(axis=1)].tolist()
                if rows:
                    work.append((self._count_passes(piece, len(rows)), tuple(rows), piece))
        if not workers:
            return [self._unit(context, [Share(rows, p.examples)]) for _, rows, p in work]
        total = sum(count for count, _, _ in work)
        size = min(max(total / (UNITS_EACH * workers), FEWEST), MOST)
        units: list[list[Share]] = []
        together: list[Share] = []  # small shares, collected until they are as large as a unit
        gathered = 0.0
        for count, rows, piece in work:
            of = max(1, round(count / size))
            shares = [Share(rows, piece.examples, part, of) for part in range(of)]
            if of > 1:
                units += [[share] for share in shares]
                continue
            together += shares
            gathered += count
            if gathered >= size:
                units.append(together)
                together, gathered = [], 0.0
        units += [together] if together else []
        return [self._unit(context, shares) for shares in units]

    def _count_passes(self, piece: Batch, rows: int) -> float:
        """About how many passes it takes to run a piece of a batch under `rows` head sets."""
        if not self.plan.fold:
            return rows
        once = self.plan.prefix(piece) + self.plan.late_start(self.positions, *piece.lengths)
        length = piece.ids.shape[1]
        at_once = self.plan.tokens_at_once(length, self.plan.tokens)
        return rows / max(1, at_once // (piece.rows * (length - once)))

    def _unit(self, context: dict[str, Any], shares: Sequence[Share]) -> Unit:
        asked = [
            {
                "head_sets": digest(self.gates[list(share.rows)].astype("<f4").tobytes()),
                "examples": [self.examples[column].key for column in share.columns],
                "share": [share.part, share.of],
            }
            for share in shares
        ]
        columns = [column for share in shares for column in share.columns]
        first = self.examples[columns[0]].example.id
        which = first if len(columns) == 1 else f"{first} and {len(columns) - 1} more"
        part = f", part {shares[0].part + 1} of {shares[0].of}" if shares[0].of > 1 else ""
        sets = len({row for share in shares for row in share.rows})
        name = f"{context['task']}, {self.metric.key}: {which} under {sets} head sets{part}"
        return Unit(digest(canonical({"context": context, "asked": asked})), name, tuple(shares))


class Passes:
    """Measures batches; results go to `emit` as (head sets, examples, values)."""

    def __init__(
        self,
        model: Model,
        sets: Float[np.ndarray, "sets heads"],
        examples: int,
        metric: Metric,
        ablation: Ablation,
        plan: Plan,
        positions: str = "all",
    ) -> None:
        self.model, self.sets, self.metric = model, sets, metric
        self.ablation, self.plan, self.positions = ablation, plan, positions
        self.cut_tokens = plan.tokens  # never lowered, so that all workers cut a batch alike
        self.starts = first_sites(sets, model.layout)
        self.rows: list[int] = []  # the head sets of the current share
        self.records = False  # whether passes start late, from a recorded pass of the whole model
        self.missing = np.zeros((len(sets), examples), dtype=bool)
        # Limits that are lowered when memory runs out.
        self.most_tokens, self.most_rows = plan.most_tokens, examples
        self.pending: list[tuple[list[int], list[int], torch.Tensor]] = []
        self.emit: Emit = lambda measured: None
        self.last_fetch = time.monotonic()

    def run(self, batch: Batch, rows: Sequence[int], part: int = 0, of: int = 1) -> None:
        """Measure part number `part` of `of` equal parts of the passes of a batch under head sets.

        When memory runs out, the batch is run in smaller pieces.
        """
        # Decided by the head sets of all parts, so that all parts cut passes alike.
        gated, _ = self._by_gating(rows)
        skipped = sum(self.starts[row] for row in gated) / len(self.model.sites)
        self.records = self.plan.fast_paths.trunk is not None and skipped >= 1  # passes
        self.rows = self._part(batch, rows, part, of)
        self.missing[np.ix_(self.rows, batch.examples)] = True
        length = batch.ids.shape[1]
        pieces = [batch]
        while pieces:
            piece = pieces.pop()
            smaller = self.plan.pieces(piece, batch, self.most_tokens, self.most_rows)
            if len(smaller) > 1:  # memory ran out before, perhaps in another batch
                pieces += reversed(smaller)
            elif not fits(self.model, partial(self._run, piece)):
                tried = min(self.plan.tokens, piece.ids.numel() * len(self.rows))
                half = piece.rows // 2
                if tried > length:
                    self.most_tokens = max(length, tried // 2)
                    self.plan = replace(self.plan, tokens=self.most_tokens)
                elif half:
                    self.most_rows = half
                else:
                    raise too_large(self.model, length)
                pieces.append(piece)

    def _part(self, batch: Batch, rows: Sequence[int], part: int, of: int) -> list[int]:
        """The head sets of one part of the passes; no pass is divided between two parts."""
        gated, untouched = self._by_gating(rows)
        if of == 1:
            return gated + untouched
        passes = list(self._passes(self._runner(batch, gated), gated, self.cut_tokens))
        chosen = passes[len(passes) * part // of : len(passes) * (part + 1) // of]
        return (untouched if part == 0 else []) + [row for rows, _ in chosen for row in rows]

    @torch.no_grad()
    def _run(self, batch: Batch) -> None:
        columns = list(batch.examples)
        # A head set that misses one example of the batch is measured on the whole batch.
        missing = [row for row in self.rows if self.missing[row, columns].any()]
        gated, untouched = self._by_gating(missing)
        if not (gated or untouched):
            return
        runner = self._runner(batch, gated)
        passes = list(self._passes(runner, gated, self.plan.tokens))
        for rows, scored in runner.run(passes, self.sets, whole=bool(untouched)):
            values = self.metric.function(scored)
            measured = untouched if rows is None else rows
            self._finish(measured, columns, values.view(-1, len(columns)).expand(len(measured), -1))

    def _by_gating(self, rows: Sequence[int]) -> tuple[list[int], list[int]]:
        """The head sets that gate at least one head, and those that gate none."""
        sites = len(self.model.sites)
        gated = [row for row in rows if self.starts[row] < sites]
        return gated, [row for row in rows if self.starts[row] == sites]

    def _runner(self, batch: Batch, gated: list[int]) -> Runner:
        ablations = self.ablation.provide(batch) if gated else None
        return Runner(self.model, batch, self.plan, ablations, self.positions)

    def _passes(
        self, runner: Runner, gated: list[int], tokens: int
    ) -> Iterator[tuple[list[int], int]]:
        """The head sets of each pass of up to `tokens` tokens, and the site where it starts."""
        starts = [self.starts[row] if self.records else 0 for row in gated]
        most, free = runner.folds(tokens), self.plan.free // max(1, runner.rest.ids.numel())
        for places, start in chunks(starts, most, len(self.model.sites), free):
            yield [gated[place] for place in places], start

    def _finish(
        self, rows: list[int], columns: list[int], values: Float[torch.Tensor, "sets examples"]
    ) -> None:
        if rows:
            self.pending.append((rows, columns, values))
        # Fetching results from a GPU interrupts its work, so fetch them at most once a second.
        if self.model.device.type == "cpu" or time.monotonic() - self.last_fetch > 1:
            self.flush()

    def flush(self) -> None:
        """Fetch and check the values measured so far, and emit them."""
        pending, self.pending = self.pending, []
        for rows, columns, values in pending:
            check_finite(values, self.model)
            self.missing[np.ix_(rows, columns)] = False
            self.emit((rows, columns, values.double().cpu().numpy()))
        self.last_fetch = time.monotonic()


def first_sites(sets: Float[np.ndarray, "sets heads"], layout: HeadLayout) -> list[int]:
    """The first site at which each head set gates a head, or the number of sites if it gates none.

    >>> first_sites(np.array([[1, 1, 0.5], [1, 1, 1]]), HeadLayout((1, 2)))
    [1, 2]
    """
    gated = sets != 1
    starts = np.where(gated.any(axis=1), layout.layers[gated.argmax(axis=1)], len(layout.counts))
    return [int(start) for start in starts]


def work_ahead(
    gates: Float[np.ndarray, "sets heads"],
    layout: HeadLayout,
    examples: Sequence[Encoded],
    missing: Bool[np.ndarray, "sets examples"],
    positions: str = "all",
) -> Work:
    """The tokens of the missing values, and how many of them fast paths leave out.

    These are late starts and prefixes or, where gates act at late positions only, whatever comes
    before these.
    """
    lengths = np.array([example.length for example in examples])
    if positions != "all":
        last = late_lengths(examples, positions)
        earlier = ((lengths - last) * missing.any(axis=0)).sum()  # run once for all head sets
        tokens, late_tokens = ((missing * some).sum() for some in (lengths, last))
        return Work(int(tokens), max(0, int(tokens - late_tokens - earlier)))
    sites, starts = len(layout.counts), np.array(first_sites(gates, layout))
    late = np.where(starts < sites, starts / sites, 0)[:, None]  # the share before the first head
    groups: dict[tuple[int, int], list[int]] = {}
    for place in np.flatnonzero(missing.any(axis=0)).tolist():
        example = examples[place]
        groups.setdefault((len(example.prompt), len(example.target)), []).append(place)
    prefixes = np.zeros(len(examples))
    for group in groups.values():
        shared = shared_start([examples[place].prompt for place in group])
        if shared >= SHORTEST_PREFIX:
            prefixes[group] = shared * (1 - 1 / len(group))  # it runs once for all
    skipped = missing * (lengths * late + prefixes * (1 - late))
    gated = missing[starts < sites].any(axis=0)
    recorded = lengths[gated].sum()  # fast paths begin with a pass of the whole model
    return Work(int((missing * lengths).sum()), max(0, int(skipped.sum() - recorded)))


def late_lengths(examples: Sequence[Encoded], positions: str) -> Int[np.ndarray, "examples"]:
    """How many tokens of each example run once for each head set, if late passes are possible."""
    plan = Plan(1, late=True)
    lengths = [(len(example.prompt), len(example.target)) for example in examples]
    return np.array([sum(n) - 1 - plan.late_start(positions, *n) for n in lengths])
