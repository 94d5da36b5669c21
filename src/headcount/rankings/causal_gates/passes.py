"""Forward and backward passes under learned gates: from the gates' logits M to their gradients.

The prompts of a fit are loaded to the device once. One pass runs prompts of several rows of gates
side by side, as many as fit into memory. The cut into passes changes no gradient, because each
gradient is a sum over prompts.
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

MEMORY_SHARE = 0.6  # of a GPU's free memory to use: allocators waste some, and passes differ
MOST_TOKENS = 131_072  # in one pass: larger passes are not faster on any device

# The loss of each prompt of a pass, given the mean log-probability per target token of each prompt
# and the prompts' places in the layout.
Objective = Callable[[Tensor, slice], Tensor]


@dataclass(frozen=True, eq=False)
class LoadedPrompts:
    """All prompts of a task on the device, each followed by its target, padded on the right."""

    lengths: Int[np.ndarray, "examples"]
    counts: Int[np.ndarray, "examples"]  # the number of target tokens
    ids: Int[Tensor, "examples tokens"]
    scored: Int[Tensor, "examples targets"]  # the positions that predict the target's tokens
    targets: Int[Tensor, "examples targets"]
    weights: Float[Tensor, "examples targets"]  # the weight of each target token: 1/count, or 0
    mixed: bool  # whether prompts of different lengths may share a pass

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Pass:
    """One pass over some of an update's prompts."""

    places: slice  # the prompts' places in the update's layout
    tokens: int  # the length of the longest prompt
    targets: int  # the length of the longest target


@dataclass(frozen=True, eq=False)
class LaidOut:
    """The prompts of one update (rows of gates × batch), from the longest to the shortest."""

    prompts: LoadedPrompts
    examples: Int[Tensor, "places"]
    rows: Int[Tensor, "places"]  # the row of gates that each prompt runs under
    slots: Int[np.ndarray, "places"]  # row · batch + the prompt's index in the row's batch
    lengths: Int[np.ndarray, "places"]
    counts: Int[np.ndarray, "places"]


def load_prompts(model: Model, encoded: Sequence[Encoded]) -> LoadedPrompts:
    """Load prompts and targets to the model's device."""
    lengths = np.array([len(e.prompt) + len(e.target) - 1 for e in encoded])
    counts = np.array([len(e.target) for e in encoded])
    ids = torch.zeros(len(encoded), int(lengths.max()), dtype=torch.long)
    targets = torch.zeros(len(encoded), int(counts.max()), dtype=torch.long)
    scored, weights = torch.zeros_like(targets), torch.zeros(targets.shape)
    for row, example in enumerate(encoded):
        length, count = int(lengths[row]), int(counts[row])
        ids[row, :length] = torch.tensor([*example.prompt, *example.target[:-1]])
        targets[row, :count] = torch.tensor(example.target)
        scored[row, :count] = torch.arange(length - count, length)
        weights[row, :count] = 1 / count
    ids, scored, targets, weights = (t.to(model.device) for t in (ids, scored, targets, weights))
    mixed = len(set(lengths.tolist())) > 1 and ignores_later_tokens(model)
    return LoadedPrompts(lengths, counts, ids, scored, targets, weights, mixed)


@torch.no_grad()
def ignores_later_tokens(model: Model) -> bool:
    """Whether a prompt's logits stay the same when other tokens follow it (the model is causal).

    Then padding on the right needs no attention mask, and fused attention can be used.
    """
    ids = probe_prompt(model.module, 1)
    short = ids.shape[1] // 2
    with measuring(model):
        try:
            whole, part = run(model.module, ids), run(model.module, ids[:, :short])
        except Exception:  # a model that fails at some length runs equal lengths together
            return False
    error = (whole[:, :short].float() - part.float()).abs().max() / part.float().abs().max()
    return bool(error <= tolerance(coarsest_dtype(model.module)))


def lay_out(prompts: LoadedPrompts, batches: Int[np.ndarray, "rows batch"]) -> LaidOut:
    """Lay out the batches of all rows side by side.

    The longest prompts come first, so that a lack of memory is noticed in the first pass.
    """
    examples = batches.reshape(-1)
    slots = np.lexsort((-prompts.counts[examples], -prompts.lengths[examples]))
    chosen = examples[slots]
    indices = torch.from_numpy(np.stack([chosen, slots // batches.shape[1]]).astype(np.int64))
    on_device = indices.to(prompts.ids.device, non_blocking=True)
    lengths, counts = prompts.lengths[chosen], prompts.counts[chosen]
    return LaidOut(prompts, on_device[0], on_device[1], slots, lengths, counts)


def passes(laid: LaidOut, tokens: int) -> Iterator[Pass]:
    """Cut an update into passes of up to `tokens` tokens and of similar size.

    If lengths must not be mixed, all prompts of a pass have the same length.
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
    """Computes the gradients of updates on one model, and remembers how many tokens fit at once."""

    def __init__(self, model: Model, *, tokens: int | None = None, compiled: bool = False) -> None:
        self.model = model
        self.tokens = tokens or default_tokens(model) // 2
        # On a GPU the passes of a small model mostly launch kernels, so larger passes are better.
        self.unmeasured = tokens is None and model.device.type == "cuda"
        trunk = model.fast_paths.trunk
        self.compiled = compiled and trunk is not None and can_compile(model.sites)
        self.may_recompute = trunk is not None and all(site.runs == 1 for site in model.sites)
        self.recompute = False  # recompute blocks in the backward pass: slower, but less memory
        self.options = accepted(model.module, use_cache=False)
        self.before_pass: Callable[[], object] = lambda: None  # no gate is on the model then

    def gradient(
        self, logits: Float[Tensor, "rows heads"], laid: LaidOut, objective: Objective
    ) -> Float[Tensor, "rows heads"]:
        """The gradient in `logits` of the objective, summed over each row's prompts."""
        while True:
            try:
                if self.unmeasured:
                    self._measure(logits, laid, objective)
                total = torch.zeros_like(logits)
                for piece in passes(laid, self.tokens):
                    self.before_pass()
                    total += self.one_pass(logits, laid, piece, objective)
                return total
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
            self._shrink(laid)

    def one_pass(
        self, logits: Float[Tensor, "rows heads"], laid: LaidOut, piece: Pass, objective: Objective
    ) -> Float[Tensor, "rows heads"]:
        """The part of the gradient that comes from one pass."""
        leaf = logits.detach().requires_grad_()
        rows = torch.arange(len(logits), device=logits.device)
        # A one-hot product instead of indexing, because its backward pass is deterministic.
        one_hot = (laid.rows[piece.places, None] == rows).float()  # (places, rows)
        try:
            with torch.enable_grad():
                gates = one_hot @ leaf.sigmoid()  # (places, heads)
                with self._gated(gates):
                    loss = objective(self._logprobs(laid, piece), piece.places).sum()
                    # Inside the gating context, because recomputed blocks need their gates again.
                    (gradient,) = torch.autograd.grad(loss, leaf)
        except RuntimeError as error:
            if not out_of_memory(error):
                self._explain(error)
            raise
        return gradient

    def _logprobs(self, laid: LaidOut, piece: Pass) -> Float[Tensor, "places"]:
        """The mean log-probability per target token of each prompt."""
        prompts, examples = laid.prompts, laid.examples[piece.places]
        ids = prompts.ids[:, : piece.tokens].index_select(0, examples)
        scored, targets, weights = (
            table[:, : piece.targets].index_select(0, examples)
            for table in (prompts.scored, prompts.targets, prompts.weights)
        )
        module = self.model.module
        with ExitStack() as stack:
            if self.model.fast_paths.head:
                stack.enter_context(logits_at(module, scored))
            logits: Tensor = module(input_ids=ids, **self.options).logits
        if not self.model.fast_paths.head:
            logits = _at(logits, scored)
        # In float32, because half precision would lose small differences.
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
                    recomputed = _recomputed(named[name].forward)
                    stack.enter_context(instead(named[name], recomputed))
            yield

    def _measure(self, logits: Tensor, laid: LaidOut, objective: Objective) -> None:
        """Choose how many tokens run at once by the GPU memory that a first pass takes."""
        device = self.model.device
        first = next(passes(laid, self.tokens))
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        self.one_pass(logits, laid, first, objective)
        taken = torch.cuda.max_memory_allocated(device) - before
        free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - before
        fits = MEMORY_SHARE * free / taken * len(laid.lengths[first.places]) * first.tokens
        self.tokens = max(self.tokens // 2, min(int(fits), MOST_TOKENS))
        self.unmeasured = False

    def _shrink(self, laid: LaidOut) -> None:
        """Run fewer tokens at once after memory ran out; as a last resort, recompute blocks."""
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
        """Raise a clear error if the device cannot compute in half precision."""
        if self.model.dtype in (torch.float16, torch.bfloat16):
            kind = str(self.model.dtype).removeprefix("torch.")
            reason = str(error).strip().split("\n", 1)[0]
            raise HeadcountError(
                f"{self.model.name} cannot be fitted in {kind} on this {self.model.device.type} "
                f"({reason}): load it in float32."
            ) from error


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return recomputed


@contextmanager
def logits_at(module: nn.Module, scored: Int[Tensor, "rows targets"]) -> Iterator[None]:
    """Compute logits only at these positions, which may differ from row to row."""
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
