"""Slots: a fixed number of rows that decode side by side, each at a position of its own.

Keys and values lie in preallocated tensors, a prompt from position 0 on, so nothing is padded. A
step runs one token in every slot. Since no shape changes from step to step, a step is captured as a
CUDA graph, and the GPU runs many steps without waiting for Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from weakref import proxy

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicLayer

from headcount.engine.measure.compiled import can_compile
from headcount.models.fingerprint import settings_of
from headcount.models.forward_modes import empty_cache
from headcount.models.fused import fused_kernels
from headcount.models.gpu_kernels import attend, can_attend, kernels_run, put
from headcount.models.memory import out_of_memory
from headcount.models.merged import merge_products
from headcount.models.model import SLOTS, Model
from headcount.models.sites import accepted, plain, probe_prompt
from headcount.system.fingerprint import as_json
from headcount.system.transformers_compat import attention_configs, kernel_of, other_attention

GROUPED = "headcount_grouped"  # the name of our attention function in transformers
BUCKET = 128  # positions: torch's attention reads whole buckets, each count of them has its graph
KEPT = 0.15  # slots that take at most this share of the GPU's memory are kept for the next call
MERGED = 0.25  # the share of the free memory that merged weights may take
GATES = "_headcount_slot_gates"  # under this name an attention module has its gates in a step

Draw = Callable[[Tensor, Tensor], Tensor]  # logits and positions → scores; the best score is taken


def grouped_attention(
    module: nn.Module,
    query: Tensor,  # (rows, heads, 1, size)
    key: Tensor,  # (rows, groups, positions, size)
    value: Tensor,  # (rows, groups, positions, width)
    attention_mask: Tensor,  # (rows, 1, 1, positions), added to the scores, or (rows, 1, 1, 1)
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of single queries: the heads that share keys run as queries of one head.

    So the keys and values are read once, where transformers would copy them for each head. In place
    of a mask, our own kernel takes the last position of each row; it also gates the heads. Returns
    (rows, 1, heads, width).
    """
    rows, heads, size = query.shape[0], query.shape[1], query.shape[3]
    if not attention_mask.is_floating_point():
        scale = size**-0.5 if scaling is None else scaling
        gates = vars(module).get(GATES)
        return attend(query, key, value, attention_mask[:, 0, 0, 0], scale, gates), None
    query = query.view(rows, key.shape[1], heads // key.shape[1], size)
    output = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling
    )
    return output.reshape(rows, 1, heads, -1), None


AttentionInterface.register(GROUPED, grouped_attention)


class _SlotLayer(DynamicLayer):
    """The keys and values of one layer: each row writes its new token at its own position."""

    keys: Tensor
    values: Tensor

    def __init__(self, slots: Slots, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        # A weak reference, so that memory is free as soon as nobody needs the slots.
        self.slots: Slots = proxy(slots)
        self.is_initialized = True
        sizes = [x.shape[1] * x.shape[3] for x in (keys, values)]
        rows = slots.count * slots.capacity  # a row for each position of each slot
        self.tables = keys.new_zeros(rows, sizes[0]), values.new_zeros(rows, sizes[1])
        self.keys, self.values = (  # (slots, groups, positions, size)
            table.view(slots.count, slots.capacity, *x.shape[1::2]).transpose(1, 2)
            for table, x in zip(self.tables, (keys, values), strict=True)
        )

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new tokens, and return the positions that are in use."""
        slots = self.slots
        new = key_states.reshape(slots.count, -1), value_states.reshape(slots.count, -1)
        put(new, self.tables, slots.places)
        return self.keys[:, :, : slots.length], self.values[:, :, : slots.length]


class Slots:
    """The state of all slots: tokens, positions, gates, keys and values."""

    def __init__(self, model: Model, count: int, capacity: int) -> None:
        self.model: Model = proxy(model)  # which keeps the slots of its last decoding itself
        self.count, self.capacity = count, capacity
        self.length = capacity  # how many positions attention reads in the running step
        # Rows that have ended run on until somebody looks: they stay at the last place, which no
        # text reaches, and the model sees no position beyond its context.
        self.last = capacity - 1
        self.last_position = min(capacity, model.context_limit or capacity) - 1
        device = model.device
        self.starts = torch.arange(count, device=device) * capacity
        self.ids = torch.zeros(count, 1, dtype=torch.long, device=device)
        self.positions = torch.zeros(count, dtype=torch.long, device=device)  # of `ids`
        # The token that follows each position.
        self.written = torch.zeros(count, capacity, dtype=torch.long, device=device)
        self.used = torch.zeros(count, dtype=torch.bool, device=device)
        self.broken = torch.zeros((), dtype=torch.bool, device=device)  # a logit was not finite
        samples = layer_samples(model)
        self.layers = [_SlotLayer(self, k, v) for k, v in samples]
        self.own_kernel = can_attend(samples)
        # g of each site: for our own kernel, or repeated to the width of the projection's input.
        self.gated_inside = self.own_kernel and not any(site.coupled for site in model.sites)
        self.gates = [
            torch.ones(count, site.heads, dtype=model.dtype, device=device)
            if self.gated_inside
            else torch.ones(count, 1, site.heads * site.size, dtype=model.dtype, device=device)
            for site in model.sites
        ]
        room = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else torch.inf
        self.merged = merge_products(model.module, MERGED * room)
        self.cache = Cache(layers=self.layers)  # type: ignore[arg-type]
        self.graphs: dict[tuple[int, bool, bool], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.seen: set[tuple[int, bool, bool]] = set()
        self.capture = device.type == "cuda"

    def refresh(self) -> None:
        """Copy weights again that may have changed since the last call."""
        if self.merged is not None:
            self.merged.refresh()

    def free(self) -> None:
        """Empty all slots."""
        self.used.zero_()
        self.broken.zero_()
        self.positions.zero_()

    def admit(
        self,
        slots: Sequence[int],
        cache: Any,
        lengths: Sequence[int],
        tokens: Int[Tensor, "rows"],
        gates: Tensor | None,
    ) -> None:
        """Put prompts of these lengths, whose keys and values are in `cache`, into free slots.

        `tokens` are the tokens that follow the prompts.
        """
        at = torch.tensor(slots, device=self.model.device)
        after = torch.tensor(lengths, device=self.model.device)
        for own, layer in zip(self.layers, cache.layers, strict=True):
            width = layer.keys.shape[2]
            own.keys[at, :, :width] = layer.keys
            own.values[at, :, :width] = layer.values
        self.written[at, after - 1] = tokens
        self.ids[at, 0] = tokens
        self.positions[at] = after.clamp(max=self.last)
        self.used[at] = True
        if gates is not None:
            columns = gates.to(self.model.device, self.model.dtype).split(
                self.model.layout.counts, 1
            )
            for gate, g, site in zip(self.gates, columns, self.model.sites, strict=True):
                if self.gated_inside:
                    gate[at] = g
                else:
                    gate[at, 0] = g.repeat_interleave(site.size, 1)

    def release(self, slots: Sequence[int]) -> None:
        """Free these slots; until they are used again, their results do not count."""
        at = torch.tensor(slots, device=self.model.device)
        self.used[at] = False
        self.positions[at] = 0

    def run(
        self, steps: int, length: int, gated: bool, draw: Draw | None
    ) -> Float[Tensor, "slots vocab"]:
        """Run this many steps, in which no position reaches `length`.

        The best token is taken after each step, or with `draw` the one that it scores best. Returns
        the logits of the last step: use them before the next one.
        """
        # Our own kernel reads no more than a row has, whatever the length.
        self.length = length = self.capacity if self.own_kernel else length
        kind = (length, gated, draw is None)
        for _ in range(steps):
            if kind in self.graphs or (self.capture and kind in self.seen and self._capture(kind)):
                graph, logits = self.graphs[kind]
                graph.replay()
            else:  # the first step also warms up
                with self._ready(gated):
                    logits = self._step(draw is None)
                self.seen.add(kind)
            if draw is not None:
                self._write(draw(logits, self.positions).argmax(-1))
        return logits

    def _capture(self, kind: tuple[int, bool, bool]) -> bool:
        """Capture a step; False if it cannot be captured, as one that waits for the GPU."""
        _, gated, greedy = kind
        graph = torch.cuda.CUDAGraph()
        try:
            with self._ready(gated), torch.cuda.graph(graph):
                logits = self._step(greedy)
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            self.capture = False
            why = str(error).splitlines()[0]
            warnings.warn(f"Steps run one by one, not as a CUDA graph: {why}", stacklevel=2)
            return False
        self.graphs[kind] = graph, logits
        return True

    @contextmanager
    def fewer_kernels(self) -> Iterator[None]:
        """Run passes over prompts or steps with fused kernels and merged products."""
        with ExitStack() as stack:
            stack.enter_context(fused_kernels(self.model.module))
            if self.merged is not None:
                stack.enter_context(self.merged.in_use())
            yield

    @contextmanager
    def _ready(self, gated: bool) -> Iterator[None]:
        """Everything that a step needs which is not captured."""
        model = self.model
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(other_attention(model.module, _grouped))
            stack.enter_context(self.fewer_kernels())
            named = dict(plain(model.module).named_modules())
            for site, gate in zip(model.sites, self.gates, strict=True) if gated else ():
                if self.gated_inside:
                    attention = named[site.attention].__dict__
                    attention[GATES] = gate
                    stack.callback(attention.pop, GATES)
                else:
                    hook = partial(_gate, gate)
                    stack.enter_context(named[site.module].register_forward_pre_hook(hook))
            yield

    def _step(self, greedy: bool) -> Float[Tensor, "slots vocab"]:
        module, at = self.model.module, self.positions[:, None]
        self.places = self.starts + self.positions
        mask = at[:, None, None] if self.own_kernel else self._mask(at)
        seen = at.clamp(max=self.last_position)
        options = {"position_ids": seen, "attention_mask": mask, "past_key_values": self.cache}
        output = module(input_ids=self.ids, **accepted(module, use_cache=True, **options))
        logits: Tensor = output.logits[:, -1]
        best, tokens = logits.max(-1)
        self.broken |= (~best.isfinite() & self.used).any()
        if greedy:
            self._write(tokens)
        return logits

    def _mask(self, at: Int[Tensor, "slots 1"]) -> Float[Tensor, "slots 1 1 positions"]:
        seen = torch.arange(self.length, device=at.device) <= at
        mask = torch.zeros_like(seen, dtype=self.layers[0].keys.dtype)
        return mask.masked_fill_(~seen, -torch.inf)[:, None, None]

    def _write(self, tokens: Int[Tensor, "slots"]) -> None:
        self.written.scatter_(1, self.positions[:, None], tokens[:, None])
        self.ids.copy_(tokens[:, None])
        self.positions.add_(1).clamp_(max=self.last)


def _gate(gate: Tensor, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0] * gate, *args[1:])


def _grouped(_: Any, kernel: str) -> str:
    """Replace transformers' call of torch's attention, and keep any other kernel."""
    return GROUPED if kernel == "sdpa" else kernel


@torch.no_grad()
def layer_samples(model: Model) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of one token in each layer: they show the shapes and the dtype."""
    cache = empty_cache(model.module, len(model.sites))
    ids = probe_prompt(model.module, 1)[:, :1]
    with torch.compiler.set_stance("force_eager"):
        model.module(input_ids=ids, **accepted(model.module, past_key_values=cache, use_cache=True))
    return [(layer.keys, layer.values) for layer in cache.layers]


def may_use_slots(model: Model, gated: bool) -> bool:
    """Whether it is worth proving that a model decodes in slots: see `decodes_in_slots`."""
    kernels = {kernel_of(config) for config in attention_configs(model.module)}
    return (
        model.fast_paths.cache
        and kernels == {"sdpa"}
        and not model.spread
        and not model.hooked
        and all(site.ranks == 1 for site in model.sites)
        and (not gated or can_compile(model.sites))
    )


def slots_for(model: Model, count: int, positions: int) -> Slots:
    """Empty slots for this many rows and positions: those of the last call, if they fit.

    A captured step reads the weights where they were, and repeats what the model's code did then:
    so moved weights and changed settings need new slots.
    """
    count = 1 << (count - 1).bit_length()
    capacity = -(-positions // BUCKET) * BUCKET
    module = plain(model.module)
    tensors = (*module.parameters(), *module.buffers())
    places = hash(tuple(t.data_ptr() for t in tensors))
    own = kernels_run(model.device)  # our kernels may have been set aside since
    name = (count, capacity, places, as_json(settings_of(module)), own)
    kept: tuple[Any, Slots] | None = vars(model).pop(SLOTS, None)
    if kept is None or kept[0] != name:
        kept = None  # frees its memory before more is taken
        kept = name, Slots(model, count, capacity)
    else:
        kept[1].refresh()
    slots = kept[1]
    slots.free()
    size = sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in slots.layers)
    size += 0 if slots.merged is None else slots.merged.nbytes
    if model.device.type == "cuda" and size <= KEPT * torch.cuda.mem_get_info(model.device)[1]:
        vars(model)[SLOTS] = kept
    return slots
