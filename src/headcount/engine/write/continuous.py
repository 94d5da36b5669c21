"""Continuous decoding on a GPU: a text that has ended makes room for a waiting prompt at once."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from headcount.engine.measure.forward import check_finite
from headcount.engine.measure.plan import default_tokens
from headcount.engine.write.prefix import Prefix, Prompt
from headcount.engine.write.sampling import Sampling
from headcount.engine.write.settings import Decoding
from headcount.engine.write.slots import BUCKET, Slots, layer_samples, may_use_slots, slots_for
from headcount.models.forward_modes import logits_at
from headcount.models.gpu_kernels import kernels_run, without_kernels
from headcount.models.memory import out_of_memory, too_large
from headcount.models.model import Model
from headcount.models.sites import accepted, coarsest_dtype, probe_prompt, run
from headcount.models.slices import tolerance

CHECK = 16  # steps between two looks at the new tokens: the GPU waits for Python at each of them
REFILL = 8  # prompts are admitted when a slot in this many is free: a pass over few does not pay
MOST_SLOTS = 1024  # more would not be faster, since a step is then bound by arithmetic
ROOM = 0.5  # the share of the free memory that keys and values may take

Ended = Callable[[list[list[int]], int], list[bool]]
Finished = Callable[[int, list[int]], None]  # the number of a prompt, and its new tokens


@dataclass
class _Busy:
    """A prompt that is in a slot, and how many new tokens it has."""

    number: int
    length: int
    new: int = 1


@dataclass
class Continuous:
    """Decodes prompts, each under its own head set, in as many slots as fit."""

    prefix: Prefix
    decoding: Decoding
    ended: Ended | None  # tells which rows have ended, from their tokens and how many are new
    finished: Finished
    prompts: Sequence[Prompt] = ()
    sets: Sequence[int] = ()  # the head set of each prompt
    slots: Slots = field(init=False)

    @cached_property
    def sampling(self) -> Sampling:
        """The random numbers of every prompt."""
        return Sampling(self.decoding, self.prompts, self.decoding.max_new_tokens)

    def run(self, order: Sequence[int], most: int = MOST_SLOTS) -> None:
        """Decode the prompts, in this order, and hand out each finished text.

        Where memory does not suffice, the texts that are not finished start again in fewer slots.
        """
        waiting = list(order)
        count = self._affordable(min(most, len(waiting)))
        while waiting:
            try:
                self._decode(waiting, count)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                if count == 1:
                    length = max(len(self.prompts[number]) for number in waiting)
                    length += self.decoding.max_new_tokens
                    raise too_large(self.prefix.model, length) from None
                count //= 2
                vars(self).pop("slots", None)
                gc.collect()
                torch.cuda.empty_cache()

    def _affordable(self, rows: int) -> int:
        """How many slots the free memory holds."""
        model = self.prefix.model
        if model.device.type != "cuda":
            return rows
        free, _ = torch.cuda.mem_get_info(model.device)
        unused = torch.cuda.memory_reserved(model.device)
        unused -= torch.cuda.memory_allocated(model.device)
        token = sum(k.nbytes + v.nbytes for k, v in layer_samples(model))
        return slots_that_fit(rows, int(ROOM * (free + unused) / (token * self._positions())))

    def _positions(self) -> int:
        longest = max(map(len, self.prompts))
        return -(-(longest + self.decoding.max_new_tokens + CHECK) // BUCKET) * BUCKET

    def _decode(self, waiting: list[int], count: int) -> None:
        """Decode; a prompt leaves `waiting` when its text is finished."""
        self.slots = slots_for(self.prefix.model, count, self._positions())
        queue = list(waiting)
        busy: dict[int, _Busy] = {}
        empty = list(range(count))
        new = self.decoding.max_new_tokens
        while queue or busy:
            if queue and (not busy or len(empty) * REFILL >= count):
                take = min(len(queue), len(empty))
                self._admit(busy, [empty.pop() for _ in range(take)], queue[:take])
                del queue[:take]
            steps = max(new - text.new for text in busy.values())
            if self.ended is not None:
                steps = min(steps, CHECK)
            elif queue:
                steps = min(new - text.new for text in busy.values())
            self._run(busy, steps)
            for slot in self._collect(busy, steps, waiting):
                empty.append(slot)

    def _run(self, busy: dict[int, _Busy], steps: int) -> None:
        if not steps:
            return
        highest = max(text.length + text.new for text in busy.values()) + steps
        length = min(-(-highest // BUCKET) * BUCKET, self.slots.capacity)
        draw = None
        if self.decoding.temperature:
            rows, first = (torch.zeros(self.slots.count, dtype=torch.long) for _ in range(2))
            for slot, text in busy.items():
                rows[slot], first[slot] = text.number, text.length - 1
            rows, first = rows.to(self.slots.ids.device), first.to(self.slots.ids.device)
            last = self.decoding.max_new_tokens - 1

            def draw(logits: Tensor, positions: Tensor) -> Tensor:
                return self.sampling.draw(logits, rows, (positions - first).clamp(0, last))

        self.slots.run(steps, length, self.prefix.gates is not None, draw)
        for text in busy.values():
            text.new += steps

    def _collect(self, busy: dict[int, _Busy], steps: int, waiting: list[int]) -> list[int]:
        """Hand out the texts that are finished, and free their slots."""
        most = self.decoding.max_new_tokens
        if self.ended is None and all(text.new < most for text in busy.values()):
            return []
        check_finite(torch.where(self.slots.broken, torch.nan, 0.0), self.prefix.model)
        written = self.slots.written.cpu().numpy()
        rows = {
            slot: written[slot, text.length - 1 :][: min(text.new, most)].tolist()
            for slot, text in busy.items()
        }
        over = [len(row) == most for row in rows.values()]
        if self.ended is not None:
            ended = self.ended(list(rows.values()), steps + 1)
            over = [a or b for a, b in zip(over, ended, strict=True)]
        done = [slot for slot, end in zip(rows, over, strict=True) if end]
        for slot in done:
            number = busy.pop(slot).number
            waiting.remove(number)
            self.finished(number, rows[slot])
        if done:
            self.slots.release(done)
        return done

    @torch.no_grad()
    def _admit(self, busy: dict[int, _Busy], slots: list[int], numbers: list[int]) -> None:
        """Run prompts, as many at once as a pass should hold, and put them into slots."""
        model, prefix = self.prefix.model, self.prefix
        start = len(prefix.tokens)
        width = max(len(self.prompts[number]) for number in numbers) - start
        step = max(1, default_tokens(model) // width)
        for first in range(0, len(numbers), step):
            some, at = numbers[first : first + step], slots[first : first + step]
            rests = [self.prompts[number][start:] for number in some]
            # Causal attention: what follows a prompt, here padding, changes nothing in it.
            ids = torch.zeros(len(some), max(map(len, rests)), dtype=torch.long)
            for row, rest in enumerate(rests):
                ids[row, : len(rest)] = torch.tensor(rest)
            sets = [self.sets[number] for number in some]
            cache = prefix.spread(sets)
            last = torch.tensor([len(rest) - 1 for rest in rests], device=model.device)
            with prefix.gating(np.asarray(sets), prompt=True), self.slots.fewer_kernels():
                logits = _logits_at(model, ids.to(model.device), cache, last)
            self.slots.broken |= ~logits.amax(-1).isfinite().all()
            if self.decoding.temperature:
                logits = self.sampling.draw(logits, torch.tensor(some), 0)
            gates = None if prefix.gates is None else torch.from_numpy(prefix.gates[sets])
            lengths = [len(self.prompts[number]) for number in some]
            self.slots.admit(at, cache, lengths, logits.argmax(-1), gates)
            for slot, number, length in zip(at, some, lengths, strict=True):
                busy[slot] = _Busy(number, length)


def _logits_at(model: Model, ids: Tensor, cache: object, last: Tensor) -> Tensor:
    """The logits of each row after its token `last`."""
    module = model.module
    with logits_at(module, last) if model.fast_paths.head else nullcontext():
        logits: Tensor = module(
            input_ids=ids, **accepted(module, past_key_values=cache, use_cache=True)
        ).logits
    rows = torch.arange(len(ids), device=logits.device)
    return logits[:, 0] if model.fast_paths.head else logits[rows, last]


def decodes_in_slots(model: Model, gated: bool) -> bool:
    """Whether the logits of steps in slots are those of whole passes (tested once per model)."""
    if not may_use_slots(model, gated):
        return False
    way = "slots, gated" if gated else "slots"
    if way not in model.proven:
        try:
            model.proven[way] = _agrees_somehow(model, gated)
        except Exception as error:  # a model that fails in slots decodes in another way
            if out_of_memory(error):
                return False  # for now: the memory may be free next time
            model.proven[way] = False
        if not model.proven[way] and model.device.type == "cuda":
            warnings.warn(
                f"{model.name} decodes in its slower way: steps side by side failed their proof.",
                stacklevel=2,
            )
    return model.proven[way]


def slots_that_fit(rows: int, fit: int) -> int:
    """How many of `fit` slots to use for these rows: `slots_for` rounds up to a power of two.

    >>> [slots_that_fit(rows, fit=40) for rows in (3, 32, 33, 1000)]
    [3, 32, 32, 32]
    """
    return max(1, min(rows, 1 << max(fit, 1).bit_length() - 1))


def _agrees_somehow(model: Model, gated: bool) -> bool:
    """Whether steps in slots agree with whole passes: without our kernels if these are at fault."""
    why = "they gave other numbers"
    try:
        agrees = _agrees(model, gated)
    except Exception as error:
        if out_of_memory(error) or not kernels_run(model.device):
            raise
        agrees, why = False, f"{type(error).__name__}: {error}".splitlines()[0]
    if agrees or not kernels_run(model.device):
        return agrees
    with without_kernels() as stay:
        agrees = _agrees(model, gated)
        if agrees:
            stay()
            warnings.warn(f"Decoding uses torch's kernels, not ours: {why}.", stacklevel=2)
    return agrees


@torch.no_grad()
def _agrees(model: Model, gated: bool) -> bool:
    ids = tuple(probe_prompt(model.module, 1)[0].tolist())
    prompts, gates = [ids, ids[:6]], None
    if gated:
        gates = np.random.default_rng(0).uniform(0, 1.5, (2, model.layout.total))
    prefix = Prefix(model, gates, ids[:3], ungated=False)
    decoding = Decoding(max_new_tokens=5)
    writer = Continuous(prefix, decoding, None, lambda *_: None, prompts, [0, 1])
    writer.slots = slots = slots_for(model, 2, BUCKET)
    writer._admit({}, [0, 1], [0, 1])
    # On a GPU the first step runs, the second one is captured, and the third is a replay.
    steps = [slots.run(1, BUCKET, gated, None).float().clone() for _ in range(3)]
    got = torch.stack(steps, 1)  # (rows, steps, vocab)
    usual = tolerance(coarsest_dtype(model.module))
    limit = usual if usual < 1e-3 else 5 * usual  # as for other fast paths in half precision
    for row, prompt in enumerate(prompts):
        new = slots.written[row, len(prompt) - 1 :][:3].tolist()
        whole = torch.tensor([[*prompt, *new]], device=model.device)
        with prefix.gating(np.array([row]), prompt=True):
            expected = run(model.module, whole)[0, len(prompt) :].float()
        error = (got[row] - expected).abs().max() / expected.abs().max()
        if not error <= limit:
            return False
    return not bool(slots.broken)
