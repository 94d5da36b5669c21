"""Passes by fast path and whole passes, to be compared; and whether a model was left as it was."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from headcount.models.fast_paths import FastPaths, recording, replaying, scored_end
from headcount.models.gate import gating
from headcount.models.sites import HeadSite, run


def random_gates(
    sites: Sequence[HeadSite], start: int = 0, sets: int = 1, seed: int = 0
) -> Tensor:  # (sets, heads)
    """Any numbers from site `start` on, all ones before it."""
    generator = torch.Generator().manual_seed(seed)
    gates = 2 * torch.rand(sets, sum(s.heads for s in sites), generator=generator) - 0.5
    gates[:, : sum(s.heads for s in sites[:start])] = 1
    return gates


def by_whole_passes(
    module: nn.Module, sites: Sequence[HeadSite], ids: Tensor, gates: Tensor
) -> Tensor:  # (sets · rows, tokens, vocab)
    """The logits of every set in turn, by a pass of its own."""
    logits = []
    for row in gates:
        with gating(module, sites, row[None], every_site=True):
            logits.append(run(module, ids))
    return torch.cat(logits)


def by_replay(
    module: nn.Module,
    sites: Sequence[HeadSite],
    paths: FastPaths,
    ids: Tensor,
    gates: Tensor,
    start: int,
    scored: int | None = None,
) -> Tensor:  # (sets · rows, tokens or scored, vocab)
    """The same by one pass that starts at site `start`, as the engine does it."""
    assert paths.trunk is not None
    with recording(module, paths.trunk, sites, rows=len(ids)) as kept:
        run(module, ids)
    with ExitStack() as stack:
        if scored is not None:
            stack.enter_context(scored_end(module, paths, scored))
        stack.enter_context(gating(module, sites, gates.repeat_interleave(len(ids), 0)))
        stack.enter_context(
            replaying(
                module,
                paths.trunk,
                sites[start],
                kept,
                folds=len(gates),
                attention=paths.attention,
            )
        )
        return run(module, ids.repeat(len(gates), 1))


def error(got: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest logit."""
    assert got.shape == expected.shape
    return float((got - expected).abs().max() / expected.abs().max())


def left_behind(module: nn.Module) -> list[str]:
    """What of ours is still on a model: forwards of its own, hooks, gates."""
    found = []
    for name, part in module.named_modules():
        hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks)
        found += [f"{name}: hooks"] if any(hooks) else []
        found += [f"{name}.{key}" for key in vars(part) if key == "forward" or "headcount" in key]
    return found
