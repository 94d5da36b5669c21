"""How a measurement is carried out: which fast paths are taken, and how much runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.engine.measure.batch import Batch
from headcount.engine.measure.rates import fastest_tokens
from headcount.errors import counted, span_text
from headcount.models.fast_paths import FastPaths
from headcount.models.model import Model

MEASUREMENT = 1  # raise this when the engine's numbers change, so that old values are not reused

PLAIN = FastPaths()
SHORTEST_PREFIX = 8  # tokens: running a shorter prefix separately costs more than it saves
WORTH_MEASURING = 200  # passes of work: measuring the best size takes as long as about 12 passes
WORTH_COMPILING = 60  # seconds of work: compiling takes up to half of that
GPU_RATE = 2e14  # operations per second of a data-centre GPU without compiling


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

    def prefix(self, batch: Batch) -> int:
        """How many tokens at the start of a batch run once for all its rows."""
        if not self.fast_paths.cache or batch.rows < 2:
            return 0
        shared = batch.shared_prefix()
        return shared if shared >= SHORTEST_PREFIX else 0

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
        prefixes = [prefix for batch in batches if (prefix := self.prefix(batch))]
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
            f"the first {span_text(prefixes)} tokens, where a batch (and its ablations) shares "
            "them, once per head set"
            if prefixes
            else "no tokens that a batch shares at its start",
            f"up to {self.tokens} tokens at once, "
            + ("head sets side by side" if self.fold else "one head set after the other"),
        ]
        if self.compile:
            steps.append("compiled blocks where all heads lie plainly side by side")
        return "\n".join(f"  {step}" for step in steps)


def default_tokens(model: Model) -> int:
    """How many tokens run at once by default."""
    return 512 if model.device.type == "cpu" else 32_768


def best_plan(model: Model, work: int = 0, *, tokens: int | None = None) -> Plan:
    """The plan with every fast path that the model has been proven to support.

    `work` is the number of tokens to run. For much work it pays to measure first how many tokens at
    once the device runs fastest, and, on a GPU, to compile.
    """
    if tokens is None and work > WORTH_MEASURING * default_tokens(model):
        tokens = fastest_tokens(model)
    on_gpu = model.device.type == "cuda"
    parameters = sum(p.numel() for p in model.module.parameters())
    seconds = 2 * parameters * work / GPU_RATE
    return Plan(
        tokens or default_tokens(model),
        model.fast_paths,
        fold=True,
        compile=on_gpu and seconds > WORTH_COMPILING and not model.spread,
    )
