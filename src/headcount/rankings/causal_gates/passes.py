"""Forward and backward passes under gates that are learned: from logits M to their gradients.

The prompts of a fit are on the device once. All rows of gates share passes: their prompts lie side
by side, as many at once as memory allows. How they are cut into passes changes no gradient, since
each is a sum over prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headcount.engine.measure.compiled import can_compile, compiled_blocks, static_gating
from headcount.engine.measure.forward import measuring
from headcount.engine.measure.plan import default_tokens
from headcount.errors import HeadcountError
from headcount.models.forward_modes import instead
from headcount.models.gate import gating
from headcount.models.memory import out_of_memory, too_large
from headcount.models.model import Model
from headcount.models.sites import accepted, coarsest_dtype, plain, probe_prompt, run
from headcount.models.slices import tolerance
from headcount.tasks import Encoded

ROOM = 0.6  # of the free memory of a GPU: allocators waste some, and passes differ
MOST_TOKENS = 131_072  # of one pass: beyond, no device gets faster

# From the mean log-probability per target token of some prompts, and their places in the layout, to
# what is to be made small, prompt by prompt.
Objective = Callable[[Tensor, slice], Tensor]


@dataclass(frozen=True, eq=False)
class LoadedPrompts:
    """Every prompt with its target, teacher-forced, filled up at the end to one length."""

    lengths: Int[np.ndarray, "examples"]
    counts: Int[np.ndarray, "examples"]  # target tokens
    ids: Int[Tensor, "examples tokens"]
    scored: Int[Tensor, "examples targets"]  # the positions that predict the target's tokens
    targets: Int[Tensor, "examples targets"]
    weights: Float[Tensor, "examples targets"]  # of each target token in its example's mean
    mixed: bool  # whether prompts of different lengths may share a pass

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Pass:
    """One pass over some of an update's prompts."""

    places: slice  # of the update's layout
    tokens: int  # of the longest prompt
    targets: int  # of the longest target


@dataclass(frozen=True, eq=False)
class Laid:
    """The prompts of one update, rows × batch, longest first."""

    prompts: LoadedPrompts
    examples: Int[Tensor, "places"]
    rows: Int[Tensor, "places"]  # whose gates each is under
    slots: Int[np.ndarray, "places"]  # row · batch + its place in the row's batch
    lengths: Int[np.ndarray, "places"]
    counts: Int[np.ndarray, "places"]


def load_prompts(model: Model, encoded: Sequence[Encoded]) -> LoadedPrompts:
    """Bring prompts and targets to the model's device."""
    lengths = np.array([len(one.prompt) + len(one.target) - 1 for one in encoded])
    counts = np.array([len(one.target) for one in encoded])
    ids = torch.zeros(len(encoded), int(lengths.max()), dtype=torch.long)
    targets = torch.zeros(len(encoded), int(counts.max()), dtype=torch.long)
    scored, weights = torch.zeros_like(targets), torch.zeros(targets.shape)
    for place, one in enumerate(encoded):
        length, count = int(lengths[place]), int(counts[place])
        ids[place, :length] = torch.tensor([*one.prompt, *one.target[:-1]])
        targets[place, :count] = torch.tensor(one.target)
        scored[place, :count] = torch.arange(length - count, length)
        weights[place, :count] = 1 / count
    on = model.device
    mixed = len(set(lengths.tolist())) > 1 and blind_to_what_follows(model)
    return LoadedPrompts(
        lengths, counts, ids.to(on), scored.to(on), targets.to(on), weights.to(on), mixed
    )


@torch.no_grad()
def blind_to_what_follows(model: Model) -> bool:
    """Whether right padding needs no mask, because later tokens do not change a prompt's logits.

    Filling up at the end needs no mask in such a model, and fused attention stays on.
    """
    ids = probe_prompt(model.module, 1)
    short = ids.shape[1] // 2
    with measuring(model):
        try:
            whole, part = run(model.module, ids), run(model.module, ids[:, :short])
        except Exception:  # a model that some length breaks does without it
            return False
    error = (whole[:, :short].float() - part.float()).abs().max() / part.float().abs().max()
    return bool(error <= tolerance(coarsest_dtype(model.module)))


def lay_out(prompts: LoadedPrompts, batches: Int[np.ndarray, "rows batch"]) -> Laid:
    """Lay out the batch of every row side by side, the longest prompts first.

    Longest first, so that what does not fit into memory is noticed at once.
    """
    examples = batches.reshape(-1)
    slots = np.lexsort((-prompts.counts[examples], -prompts.lengths[examples]))
    chosen = examples[slots]
    both = torch.from_numpy(np.stack([chosen, slots // batches.shape[1]]).astype(np.int64))
    on_device = both.to(prompts.ids.device, non_blocking=True)
    lengths, counts = prompts.lengths[chosen], prompts.counts[chosen]
    return Laid(prompts, on_device[0], on_device[1], slots, lengths, counts)


def passes(laid: Laid, tokens: int) -> Iterator[Pass]:
    """Cut an update into passes of up to `tokens` tokens, as even as can be.

    Unless lengths may be mixed, all prompts of a pass have one.
    """
    borders = [0, len(laid.lengths)]
    if not laid.prompts.mixed:
        borders[1:1] = (np.flatnonzero(np.diff(laid.lengths)) + 1).tolist()
    for first, last in pairwise(borders):
        start = first
        while start < last:
            longest = int(laid.lengths[start])
            left = last - start
            pieces = -(-left // max(1, tokens // longest))
            stop = start - (-left // pieces)
            yield Pass(slice(start, stop), longest, int(laid.counts[start:stop].max()))
            start = stop


class GatedPasses:
    """Runs updates of a fit on one model, and remembers how much of it fits at once."""

    def __init__(self, model: Model, *, tokens: int | None = None, compiled: bool = False) -> None:
        self.model = model
        self.tokens = tokens or default_tokens(model) // 2
        # On a GPU passes of a small model cost their launches: the larger they are, the better.
        self.unmeasured = tokens is None and model.device.type == "cuda"
        trunk = model.fast_paths.trunk
        self.compiled = compiled and trunk is not None and can_compile(model.sites)
        self.may_recompute = trunk is not None and all(site.runs == 1 for site in model.sites)
        self.recompute = False  # forgets what is inside blocks: half as fast, and needs far less
        self.options = accepted(model.module, use_cache=False)

    def gradient(
        self, logits: Float[Tensor, "rows heads"], laid: Laid, objective: Objective
    ) -> Float[Tensor, "rows heads"]:
        """The gradient in `logits` of the objective, summed over each row's prompts."""
        while True:
            try:
                if self.unmeasured:
                    self._measure(logits, laid, objective)
                total = torch.zeros_like(logits)
                for some in passes(laid, self.tokens):
                    total += self.one_pass(logits, laid, some, objective)
                return total
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
            self._shrink(laid)

    def one_pass(
        self, logits: Float[Tensor, "rows heads"], laid: Laid, some: Pass, objective: Objective
    ) -> Float[Tensor, "rows heads"]:
        """What one pass adds to the gradient."""
        leaf = logits.detach().requires_grad_()
        rows = torch.arange(len(logits), device=logits.device)
        # One-hot matmul instead of indexing: its backward pass is deterministic.
        chosen = (laid.rows[some.places, None] == rows).float()  # (places, rows)
        try:
            with torch.enable_grad():
                gates = chosen @ leaf.sigmoid()  # (places, heads)
                with self._gated(gates):
                    loss = objective(self._logprobs(laid, some), some.places).sum()
                    # Inside, since blocks that are recomputed need their gates once more.
                    (gradient,) = torch.autograd.grad(loss, leaf)
        except RuntimeError as error:
            if not out_of_memory(error):
                self._explain(error)
            raise
        return gradient

    def _logprobs(self, laid: Laid, some: Pass) -> Float[Tensor, "places"]:
        """The mean log-probability per target token of each prompt."""
        prompts, examples = laid.prompts, laid.examples[some.places]
        ids = prompts.ids[:, : some.tokens].index_select(0, examples)
        scored, targets, weights = (
            table[:, : some.targets].index_select(0, examples)
            for table in (prompts.scored, prompts.targets, prompts.weights)
        )
        module = self.model.module
        with ExitStack() as stack:
            if self.model.fast_paths.head:
                stack.enter_context(logits_at(module, scored))
            logits: Tensor = module(input_ids=ids, **self.options).logits
        if not self.model.fast_paths.head:
            logits = _at(logits, scored)
        # float32: half precision cannot hold small differences.
        losses = F.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten().to(logits.device), reduction="none"
        )
        by_token = losses.to(weights.device).view_as(weights)  # (places, targets)
        return -(by_token * weights).sum(-1)

    @contextmanager
    def _gated(self, gates: Float[Tensor, "places heads"]) -> Iterator[None]:
        model, trunk = self.model, self.model.fast_paths.trunk
        with ExitStack() as stack:
            if self.compiled and trunk is not None:
                stack.enter_context(
                    static_gating(model.module, model.sites, gates, None, model.dtype)
                )
                stack.enter_context(compiled_blocks(model.module, trunk, 0, len(trunk.blocks)))
            else:
                stack.enter_context(gating(model.module, model.sites, gates))
            if self.recompute and trunk is not None:
                named = dict(plain(model.module).named_modules())
                for name in trunk.blocks:
                    again = _recomputed(named[name].forward)
                    stack.enter_context(instead(named[name], again))
            yield

    def _measure(self, logits: Tensor, laid: Laid, objective: Objective) -> None:
        """Choose how many tokens run at once by what a first pass takes of a GPU's memory."""
        device = self.model.device
        first = next(passes(laid, self.tokens))
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        self.one_pass(logits, laid, first, objective)
        taken = torch.cuda.max_memory_allocated(device) - before
        free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - before
        fits = ROOM * free / taken * len(laid.lengths[first.places]) * first.tokens
        self.tokens = max(self.tokens // 2, min(int(fits), MOST_TOKENS))
        self.unmeasured = False

    def _shrink(self, laid: Laid) -> None:
        """Take less at once after memory ran out; recompute before giving up."""
        longest = int(laid.lengths[0])
        self.unmeasured = False
        if self.tokens > longest:
            self.tokens = max(longest, self.tokens // 2)
        elif self.may_recompute and not self.recompute:
            self.recompute = True
        else:
            raise too_large(self.model, longest)
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _explain(self, error: RuntimeError) -> None:
        """Say in words where a device cannot compute in half precision."""
        if self.model.dtype in (torch.float16, torch.bfloat16):
            kind = str(self.model.dtype).removeprefix("torch.")
            said = str(error).strip().split("\n", 1)[0]
            raise HeadcountError(
                f"{self.model.name} cannot be fitted in {kind} on this {self.model.device.type} "
                f"({said}): load it in float32."
            ) from error


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def again(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return again


@contextmanager
def logits_at(module: nn.Module, scored: Int[Tensor, "rows targets"]) -> Iterator[None]:
    """Compute logits at these positions only, which differ from row to row."""
    head = plain(module).get_output_embeddings()  # type: ignore[operator]

    def hook(_: nn.Module, args: tuple[Any, ...]) -> Any:
        return (_at(args[0], scored.to(args[0].device)), *args[1:])

    handle = head.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _at(x: Tensor, scored: Tensor) -> Tensor:
    return x.gather(1, scored[..., None].expand(-1, -1, x.shape[-1]))
