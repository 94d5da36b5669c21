"""Find where tokens mix outside the heads: linear attention, state-space layers, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.gate import gating
from headcount.models.sites import TOKENS, HeadSite, coarsest_dtype, plain, probe_prompt, run
from headcount.models.slices import rows_differ, visible

EARLY = 2  # the position at which the two prompts differ


@torch.no_grad()
def find_mixers(module: nn.Module, sites: Sequence[HeadSite]) -> tuple[str, ...]:
    """Modules through which tokens see earlier tokens although every head is switched off.

    Two rows differ in one early token. If a module's inputs are equal at the later positions and
    its outputs differ, tokens mix inside it. Its outputs are then made equal again, so that modules
    after it are not blamed.
    """
    ids = probe_prompt(module, 2).clone()
    ids[1, EARLY] = (ids[1, EARLY] + 3) % int(ids.max() + 1)
    names: list[str] = []
    limit = visible(coarsest_dtype(module))
    gates = torch.zeros(1, sum(site.heads for site in sites))
    with gating(module, sites, gates):
        later = run(module, ids)[:, EARLY + 1 :]
    if torch.equal(later[0], later[1]):  # in the last bit, as where nothing at all reaches them
        return ()
    with ExitStack() as stack:
        for name, child in plain(module).named_modules():
            if not any(_before_the_gate(name, site) for site in sites):
                hook = _watch(name, names, limit)
                stack.enter_context(child.register_forward_hook(hook, with_kwargs=True))
        stack.enter_context(gating(module, sites, gates))
        run(module, ids)
    return tuple(dict.fromkeys(names))  # a shared block runs more than once


def _before_the_gate(name: str, site: HeadSite) -> bool:
    """Whether the module's output reaches the rest of the model only through the gate of `site`.

    Keys and values may mix on their way into the attention. What leaves the smallest module that
    holds both the attention and its output projection has passed the gate, or is a mixer's output.
    """
    around = site.attention
    while around and not _is_in(site.module, around):
        around = around.rpartition(".")[0]
    inside = name.startswith(f"{around}.") if around else bool(name)
    return inside and (_is_in(name, site.attention) or _is_in(site.attention, name))


def _is_in(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.")


def _watch(name: str, names: list[str], limit: float) -> Callable[..., Any]:
    def hook(_: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        inputs = [x for x in map(_later, (*args, *kwargs.values())) if x is not None]
        after = _later(output)
        if after is None or not inputs or not rows_differ(after, limit):
            return None
        if any(rows_differ(x, limit) for x in inputs):
            return None
        names.append(name)
        tensor = _first(output).clone()
        tensor[1, EARLY + 1 :] = tensor[0, EARLY + 1 :]
        if isinstance(output, Mapping):
            return type(output)(**{**output, next(iter(output)): tensor})
        return (tensor, *output[1:]) if isinstance(output, tuple) else tensor

    return hook


def _first(value: Any) -> Any:
    """The main output of a module, among all that it returns."""
    if isinstance(value, Mapping):
        return next(iter(value.values()), None)
    return value[0] if isinstance(value, tuple) and value else value


def _later(value: Any) -> Float[Tensor, "rows tokens width"] | None:
    """The positions of a (rows, tokens, …) tensor after the one at which the rows differ."""
    tensor = _first(value)
    if not isinstance(tensor, Tensor) or tensor.shape[:2] != (2, TOKENS):
        return None
    if not tensor.is_floating_point():
        tensor = (tensor != tensor[:1]).double()  # token ids are equal or not, never close
    return tensor[:, EARLY + 1 :].reshape(2, TOKENS - EARLY - 1, -1)
