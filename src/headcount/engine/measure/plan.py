"""How a measurement is carried out: which fast paths are taken, and how much runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headcount.engine.measure.batch import LONG, Batch
from headcount.engine.measure.compiled import can_compile
from headcount.engine.measure.positions import acting
from headcount.engine.measure.rates import (
    Speed,
    fastest_tokens,
    known_tokens,
    proven_paths,
    speed_of,
)
from headcount.errors import counted, span_text
from headcount.models.fast_paths import FastPaths
from headcount.models.model import Model
from headcount.models.sites import is_unloaded

MEASUREMENT = 1  # raise this when the engine's numbers change, so that old values are not reused

PLAIN = FastPaths()
SHORTEST_PREFIX = 8  # tokens: running a shorter prefix separately costs more than it saves
WORTH_MEASURING = 200  # passes of work: measuring the best size takes as long as about 12 passes
BUSY = 1e13  # operations in a pass that keeps a data-centre GPU busy


@dataclass(frozen=True)
class Plan:
    """The fast paths to take and the tokens to run at once. No plan changes a value.

    `Plan(tokens=512, fast_paths=PLAIN)` is the plain loop: one head set after the other, every
    layer, all logits.
    """

    tokens: int
    fast_paths: FastPaths = PLAIN
    fold: bool = False  # whether one pass runs several head sets side by side, as further rows
    compile: bool = False  # only for long sweeps on a GPU: compiling takes up to a minute
    free: int = 0  # tokens that a pass runs on a GPU while Python launches its kernels
    late: bool = False  # whether positions before all gates run once for all head sets
    long_tokens: int | None = None  # tokens to run at once where texts are `LONG`

    def prefix(self, batch: Batch) -> int:
        """How many tokens at the start of a batch run once for all its rows."""
        if not self.fast_paths.cache or batch.rows < 2:
            return 0
        shared = batch.shared_prefix()
        return shared if shared >= SHORTEST_PREFIX else 0

    def at_positions(self, model: Model) -> Plan:
        """The plan where gates act at some positions only: late passes, if the model is proven."""
        late = self.fast_paths.cache and model.late
        paths = replace(self.fast_paths, cache=False)
        return replace(self, fast_paths=paths, compile=False, late=late)

    def streaming(self) -> Plan:
        """The plan where ablated heads attend anew in every pass.

        Their attention runs in the block where a pass starts, late passes lay out tokens otherwise,
        and a compiled block keeps the attention that it was compiled with.
        """
        paths = replace(self.fast_paths, attention=False)
        return replace(self, fast_paths=paths, compile=False, late=False)

    def late_start(self, positions: str, prompt: int, target: int) -> int:
        """How many tokens of a text run once for all head sets, because no gate acts on them."""
        start = acting(positions, prompt, target).start if self.late else 0
        return start if start >= SHORTEST_PREFIX else 0

    def tokens_at_once(self, length: int, tokens: int) -> int:
        """How many of up to `tokens` tokens run at once, in texts of this length."""
        if self.long_tokens is None or length < LONG:
            return tokens
        return min(tokens, self.long_tokens)

    @property
    def most_tokens(self) -> int:
        """The largest number of tokens that a piece of a batch may have."""
        return 5 * self.tokens // 4

    def pieces(self, batch: Batch, parent: Batch, most_tokens: int, most_rows: int) -> list[Batch]:
        """Cut `batch`, which is `parent` or a piece of it, into pieces that are small enough."""
        # A prefix that all rows of the parent share does not count, because it runs once.
        tokens_per_row = parent.ids.shape[1] - self.prefix(parent)
        rows = max(1, min(most_tokens // tokens_per_row, most_rows))
        return [batch.part(start, start + rows) for start in range(0, batch.rows, rows)]

    def explain(self, batches: Sequence[Batch], sets: int, known: int = 0) -> str:
        """Describe in words how these batches will be measured under `sets` head sets.

        `known` is the number of values that the store already holds.
        """
        examples = sum(batch.rows for batch in batches)
        lengths = span_text([batch.ids.shape[1] for batch in batches])
        start = "output projection" if self.fast_paths.attention else "block"
        more = " and the last block's MLP" if self.fast_paths.scored else ""
        steps = [
            f"{counted(sets, 'head set')} × {counted(examples, 'example')} of {lengths} tokens"
            + (f"; {counted(known, 'value')} known already" if known else ""),
            f"passes start at the first gated head, at its {start}"
            if self.fast_paths.trunk is not None
            else "every pass runs all blocks",
            f"only at the last positions of each pass: logits{more}"
            if self.fast_paths.head
            else "logits at all positions",
            self._shared_tokens(batches),
            f"up to {self.tokens} tokens at once, "
            + ("head sets side by side" if self.fold else "one head set after the other"),
        ]
        if self.compile:
            steps.append("compiled blocks where all heads lie plainly side by side")
        return "\n".join(f"  {step}" for step in steps)

    def _shared_tokens(self, batches: Sequence[Batch]) -> str:
        """Describe in words which tokens run once for several examples or head sets."""
        if self.late:
            return "tokens before all positions where gates act: once for all head sets"
        prefixes = [prefix for batch in batches if (prefix := self.prefix(batch))]
        if not prefixes:
            return "no tokens that a batch shares at its start"
        shared = f"the first {span_text(prefixes)} tokens, where a batch (and its ablations)"
        return f"{shared} shares them, once per head set"


def default_tokens(model: Model) -> int:
    """How many tokens run at once by default."""
    return 512 if model.device.type == "cpu" else 32_768


@dataclass(frozen=True)
class Work:
    """The tokens that a sweep would run in a plain loop, and how many fast paths would leave out.

    A token counts once for every head set.
    """

    tokens: int
    skipped: int = 0


def worth_proving(work: Work, speed: Speed) -> bool:
    """Whether the fast paths save more time than their proof takes.

    >>> speed = Speed(token=1e-5, compiled_token=8e-6, launch=0.02, prove=1.5, compile=30.0)
    >>> worth_proving(Work(300_000, 140_000), speed), worth_proving(Work(300_000, 160_000), speed)
    (False, True)
    """
    return speed.prove < work.skipped * speed.token or not speed.prove


def worth_compiling(work: Work, speed: Speed) -> bool:
    """Whether compiled blocks save more time than compiling takes.

    >>> speed = Speed(token=1e-5, compiled_token=8e-6, launch=0.02, prove=1.5, compile=30.0)
    >>> worth_compiling(Work(14_000_000), speed), worth_compiling(Work(16_000_000), speed)
    (False, True)
    """
    return speed.compile < work.tokens * (speed.token - speed.compiled_token)


def best_plan(model: Model, work: Work | None = None, *, tokens: int | None = None) -> Plan:
    """The plan that carries out the `work` in the least time, what it prepares included.

    Fast paths are proven, sizes are measured and blocks are compiled only where that pays within
    the work, by what is remembered of this machine. Without `work`: every fast path that the model
    is proven to support. A model that is not loaded is measured by a server, value by value.
    """
    if is_unloaded(model.module):
        return Plan(1)
    if work is None or any(site.ranks > 1 for site in model.sites):  # all ranks need the same plan
        return Plan(tokens or default_tokens(model), model.fast_paths, fold=True)
    if tokens is None:
        long = work.tokens > WORTH_MEASURING * default_tokens(model)
        tokens = fastest_tokens(model) if long else known_tokens(model)
    speed, on_gpu = speed_of(model), model.device.type == "cuda"
    proves = worth_proving(work, speed)
    parameters = sum(p.numel() for p in model.module.parameters())
    return Plan(
        tokens or default_tokens(model),
        proven_paths(model) if proves else FastPaths(head=model.scores_alone),
        fold=True,
        compile=on_gpu
        and proves
        and not model.spread
        and can_compile(model.sites)
        and worth_compiling(work, speed),
        free=int(speed.launch / speed.token) if speed.token else 0,
        long_tokens=int(BUSY / (2 * parameters)) if on_gpu else None,
    )
