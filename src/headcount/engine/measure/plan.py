"""How a measurement is carried out: which fast paths are taken, and how much runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.engine.measure.batch import Batch
from headcount.engine.measure.rates import liked_tokens
from headcount.models.fast_paths import FastPaths
from headcount.models.model import Model

MEASUREMENT = 1  # raised when the engine's numbers change: stored values of another are not reused

PLAIN = FastPaths()
SHORTEST_PREFIX = 8  # tokens: below this a pass of its own costs more than it saves
WORTH_MEASURING = 200  # passes: measuring takes about as long as a dozen
WORTH_COMPILING = 60  # seconds of work: compiling takes up to half of that
GPU_RATE = 2e14  # operations in a second that a data-centre GPU does without compiling


@dataclass(frozen=True)
class Plan:
    """The fast paths to take and the tokens to run at once. No plan changes a value.

    `Plan(tokens=512, fast_paths=PLAIN)` is the plain loop: one head set after the other, every
    layer, all logits.
    """

    tokens: int
    fast_paths: FastPaths = PLAIN
    fold: bool = False
    compile: bool = False  # pays for long sweeps on a GPU: compiling takes up to a minute

    def prefix(self, batch: Batch) -> int:
        """How many tokens of a batch run once for all its rows."""
        if not self.fast_paths.cache or batch.rows < 2:
            return 0
        shared = batch.shared_prefix()
        return shared if shared >= SHORTEST_PREFIX else 0

    @property
    def most_tokens(self) -> int:
        """How many tokens a piece of a batch may have."""
        return 5 * self.tokens // 4

    def pieces(self, batch: Batch, around: Batch, most_tokens: int, most_rows: int) -> list[Batch]:
        """A batch in pieces that are small enough, by the tokens that the one around it shares."""
        fresh = around.ids.shape[1] - self.prefix(around)  # of each row; a shared start runs once
        rows = max(1, min(most_tokens // fresh, most_rows))
        return [batch.part(start, start + rows) for start in range(0, batch.rows, rows)]

    def explain(self, batches: Sequence[Batch], sets: int, known: int = 0) -> str:
        """What will be done, in words, to measure these batches under so many head sets.

        So many values are `known` already, from the store.
        """
        examples = sum(batch.rows for batch in batches)
        lengths = _span([batch.ids.shape[1] for batch in batches])
        prefixes = [prefix for batch in batches if (prefix := self.prefix(batch))]
        start = "output projection" if self.fast_paths.attention else "block"
        more = " and the last block's MLP" if self.fast_paths.scored else ""
        steps = [
            f"{_count(sets, 'head set')} × {_count(examples, 'example')} of {lengths} tokens"
            + (f"; {_count(known, 'value')} known already" if known else ""),
            f"passes start at the first gated head, at its {start}"
            if self.fast_paths.trunk is not None
            else "every pass runs all blocks",
            f"only at the last positions of each pass: logits{more}"
            if self.fast_paths.head
            else "logits at all positions",
            f"the first {_span(prefixes)} tokens, where a batch (and its ablations) shares them, "
            "once per head set"
            if prefixes
            else "no tokens that a batch shares at its start",
            f"up to {self.tokens} tokens at once, "
            + ("head sets side by side" if self.fold else "one head set after the other"),
        ]
        if self.compile:
            steps.append("compiled blocks where all heads lie plainly side by side")
        return "\n".join(f"  {step}" for step in steps)


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def default_tokens(model: Model) -> int:
    """How many tokens run at once unless told otherwise."""
    return 512 if model.device.type == "cpu" else 32_768


def best_plan(model: Model, work: int = 0, *, tokens: int | None = None) -> Plan:
    """Every fast path that the model is proven to carry.

    `work` is how many tokens there are to run. Where it is much, it pays to measure first how many
    tokens the device likes at once, and, on a GPU, to compile.
    """
    if tokens is None and work > WORTH_MEASURING * default_tokens(model):
        tokens = liked_tokens(model)
    on_gpu = model.device.type == "cuda"
    numbers = sum(p.numel() for p in model.module.parameters())
    seconds = 2 * numbers * work / GPU_RATE
    return Plan(
        tokens or default_tokens(model),
        model.fast_paths,
        fold=True,
        compile=on_gpu and seconds > WORTH_COMPILING and not model.spread,
    )
