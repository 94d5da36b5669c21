"""How active each head is on a prompt: cheap scores, without a gate and without an answer.

A norm is averaged over the tokens of the prompt. The first token attends to itself alone, so what a
head says there *is* its value of the first token (times its share of an attention sink, if the
model has one): no score needs more than the inputs of the output projections, the inputs of the
blocks, and the attention weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.engine.read.attention import attend_each
from headcount.engine.read.collect import each_length, reading, run_through
from headcount.errors import HeadcountError
from headcount.models.gate import require_one_process
from headcount.models.model import Model
from headcount.models.sites import HeadSite, from_rows, plain, to_rows

Scores = dict[str, Float[np.ndarray, "sequences heads"]]


@torch.no_grad()
def head_norms(
    model: Model, sequences: Sequence[Sequence[int]], *, written: bool = False, progress: bool
) -> Scores:
    """The norms of each head's output on token sequences, from one pass without gates.

    output   at the projection's input, averaged over the tokens
    value    the same at the first token alone: the norm of its value
    written  if asked for: what the projection makes of the output, relative to the input of the
             block (the residual stream), averaged over the tokens
    """
    grams: dict[int, Tensor] = {}

    def run(indices: list[int]) -> Float[np.ndarray, "rows norms heads"]:
        at_site: dict[int, Tensor] = {}
        streams = _Streams(model, len(indices)) if written else None

        def read(site: HeadSite, z: Tensor) -> None:
            heads = z[..., site.span].unflatten(-1, (site.heads, site.size)).float()
            norms = heads.norm(dim=-1)  # (rows, tokens, heads)
            found = [norms.mean(1), norms[:, 0]]
            if streams is not None:
                if site.index not in grams:
                    grams[site.index] = _gram(model, site, z)
                squared = torch.einsum("rthi,hij,rthj->rth", heads, grams[site.index], heads)
                shares = squared.clamp(min=0).sqrt() / streams.norms(site).clamp(min=1e-12)
                found.append(shares.mean(1))
            at_site[site.index] = torch.stack(found, dim=1).cpu()  # (rows, norms, heads)

        handles = [] if streams is None else streams.hooks()
        try:
            with reading(model, read):
                run_through(model, [sequences[index] for index in indices])
        finally:
            for handle in handles:
                handle.remove()
        return torch.cat([at_site[site.index] for site in model.sites], dim=-1).numpy()

    found = np.stack(each_length(model, sequences, run, label="head norms", progress=progress))
    names = ("output", "value", "written") if written else ("output", "value")
    return {name: found[:, place] for place, name in enumerate(names)}


def attention_shape(model: Model, sequences: Sequence[Sequence[int]], *, progress: bool) -> Scores:
    """The attention of each head to the first token, and its entropy in nats.

    Both are averaged over the tokens that look, from one pass without gates.
    """

    def reduce(site: HeadSite, weights: Tensor, indices: Sequence[int]) -> Tensor:
        shares = weights.float()  # (rows, heads, queries, keys)
        entropy = torch.special.entr(shares).sum(-1)
        return torch.stack([shares[..., 0].mean(-1), entropy.mean(-1)], dim=-1)

    found = np.stack(attend_each(model, sequences, reduce, progress=progress))
    return {"first": found[..., 0], "entropy": found[..., 1]}


@torch.no_grad()
def writes_together(
    model: Model, sequences: Sequence[Sequence[int]], *, progress: bool
) -> list[Float[np.ndarray, "heads heads"]]:
    """For each site, the inner products of what every two heads write, summed over all tokens.

    What a head writes is its output times its columns of the projection. A least-squares fit of
    some heads to the whole block's output needs nothing else, whichever heads these are.
    """
    columns: dict[int, Tensor] = {}
    totals: dict[int, Tensor] = {}

    def run(indices: list[int]) -> list[int]:
        now: dict[int, Tensor] = {}

        def read(site: HeadSite, z: Tensor) -> None:
            if site.index not in columns:
                columns[site.index] = _columns_of(model, site, z)
            heads = z[..., site.span].unflatten(-1, (site.heads, site.size)).float()
            written = torch.einsum("rthi,hio->rtho", heads, columns[site.index])
            now[site.index] = torch.einsum("rtho,rtgo->hg", written, written).double().cpu()

        with reading(model, read):
            run_through(model, [sequences[index] for index in indices])
        for index, some in now.items():  # whole passes only: one that ran out of memory is repeated
            totals[index] = totals.get(index, torch.zeros_like(some)) + some
        return indices

    each_length(model, sequences, run, label="what heads write", progress=progress)
    return [totals[site.index].numpy() for site in model.sites]


def _gram(model: Model, site: HeadSite, z: Tensor) -> Float[Tensor, "heads size size"]:
    """For each head, the inner products of what its numbers write: z · G · z is its square norm."""
    by_head = _columns_of(model, site, z)
    return by_head @ by_head.mT


def _columns_of(model: Model, site: HeadSite, z: Tensor) -> Float[Tensor, "heads size out"]:
    """What the projection makes of each number of each head; `z` is any input of it."""
    require_one_process([site], "Reading what heads write")
    projection: Any = plain(model.module).get_submodule(site.module)
    alone = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)[None]  # (1, width, width)
    shape = {"rows": alone.shape, "flat": alone.shape[1:]}
    like = alone.new_empty(shape.get(site.order, alone.transpose(0, 1).shape))
    call = type(projection).forward.__get__(projection)  # without the hooks that are reading
    try:
        each = [call(from_rows(x, site.order, like)) for x in (alone, torch.zeros_like(alone))]
    except TypeError as error:
        raise HeadcountError(
            f"What heads write cannot be read at {site.module}, because it needs further inputs."
        ) from error
    output, bias = (to_rows(x, site.order, 1)[0].float() for x in each)  # (width, out)
    by_head: Tensor = (output - bias)[site.span].unflatten(0, (site.heads, site.size))
    return by_head


class _Streams:
    """The norm of the residual stream at the input of each block in which attention runs."""

    def __init__(self, model: Model, rows: int) -> None:
        self.rows = rows
        self.named = dict(plain(model.module).named_modules())
        self.blocks = {site.index: self._block(site) for site in model.sites}
        self.latest: dict[str, Float[Tensor, "rows tokens"]] = {}

    def _block(self, site: HeadSite) -> str:
        """The nearest module around the attention that is one of a list of blocks."""
        parts = site.attention.split(".")
        for end in range(len(parts), 0, -1):
            if isinstance(self.named.get(".".join(parts[: end - 1])), nn.ModuleList):
                return ".".join(parts[:end])
        raise _no_stream(site)

    def hooks(self) -> list[Any]:
        def hook_for(name: str) -> Any:
            def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                given = (*args, kwargs.get("hidden_states"))
                for x in given:
                    if isinstance(x, Tensor) and x.ndim == 3 and x.shape[0] == self.rows:
                        self.latest[name] = x.float().norm(dim=-1)
                        return

            return hook

        return [
            self.named[name].register_forward_pre_hook(hook_for(name), with_kwargs=True)
            for name in dict.fromkeys(self.blocks.values())
        ]

    def norms(self, site: HeadSite) -> Float[Tensor, "rows tokens 1"]:
        """The norms at the input of the block that is running now."""
        found = self.latest.get(self.blocks[site.index])
        if found is None:
            raise _no_stream(site)
        return found.unsqueeze(-1)


def _no_stream(site: HeadSite) -> HeadcountError:
    return HeadcountError(f"The residual stream in front of {site.attention} cannot be read.")
