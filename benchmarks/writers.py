"""Ways to let a model write under several head sets: every prompt under each of them, greedily.

A writer gives the new tokens of each head set and prompt. All write the same number of tokens:
nothing ends a text. Texts begin with prompts of one length, so nobody has to pad.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from contestants import Contestant, hooked, masks, projections
from problem import HeadSet, Problem
from torch import Tensor

from headcount import generate, wrap

Write = Callable[[Sequence[HeadSet], int], Tensor]  # head sets, new → ids (sets, prompts, new)


def mask_sets(problem: Problem, count: int) -> list[HeadSet]:
    """So many sets of an eighth of all heads, drawn at random."""
    layout = problem.layout
    rng = np.random.default_rng(0)
    drawn = (rng.choice(layout.total, layout.total // 8, replace=False) for _ in range(count))
    return [tuple(sorted(layout.head(int(number)) for number in heads)) for heads in drawn]


def _module(problem: Problem) -> Any:
    module = problem.own_module()
    module.generation_config = copy.deepcopy(module.generation_config)
    module.generation_config.eos_token_id = None
    return module


def _ask(module: Any, ids: Tensor, new: int) -> Tensor:
    """transformers' own greedy decoding: (rows, new)."""
    written = module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        do_sample=False,
        pad_token_id=0,
    )
    return written[:, ids.shape[1] :]


def _plain(problem: Problem) -> Write:
    """`generate` with hooks, once for each head set."""
    module = _module(problem)

    def write(sets: Sequence[HeadSet], new: int) -> Tensor:
        texts = []
        for mask in masks(problem, sets):
            with ExitStack() as stack:
                hooked(module, mask, stack)
                texts.append(_ask(module, problem.ids, new))
        return torch.stack(texts)

    return write


def _by_hand(problem: Problem) -> Write:
    """What an expert writes: `generate` once, for all head sets side by side, a gate for each row.

    Its hooks stand on every output projection.
    """
    module, size = _module(problem), problem.head_size

    def write(sets: Sequence[HeadSet], new: int) -> Tensor:
        prompts = len(problem.ids)
        gates = np.stack([problem.layout.gates(off=heads) for heads in sets])
        by_row = torch.from_numpy(gates).repeat_interleave(prompts, 0).repeat_interleave(size, 1)
        dtype = next(module.parameters()).dtype
        keep = by_row.to(problem.ids.device, dtype)[:, None]  # (rows, 1, heads · size)
        width = problem.layout.counts[0] * size
        with ExitStack() as stack:
            for number, projection in enumerate(projections(module)):
                its = keep[..., number * width : (number + 1) * width].contiguous()

                def hook(_: object, args: tuple[Tensor, ...], its: Tensor = its) -> None:
                    args[0].mul_(its)

                stack.callback(projection.register_forward_pre_hook(hook).remove)
            written = _ask(module, problem.ids.repeat(len(sets), 1), new)
        return written.view(len(sets), prompts, new)

    return write


def _headcount(problem: Problem) -> Write:
    """`generate` as a user calls it."""
    tokenizer = copy.deepcopy(problem.tokenizer)
    tokenizer.eos_token = None
    model = wrap(_module(problem), tokenizer, name="headcount")
    prompts = problem.ids.tolist()

    def write(sets: Sequence[HeadSet], new: int) -> Tensor:
        gates = np.stack([model.layout.gates(off=heads) for heads in sets])
        texts = generate(
            model,
            prompts * len(sets),
            gates.repeat(len(prompts), axis=0),
            max_new_tokens=new,
            progress=False,
        )
        return torch.tensor([text.ids for text in texts]).view(len(sets), len(prompts), new)

    return write


WRITERS = [
    Contestant("plain", "generate with hooks", "transformers", "transformers", _plain),  # type: ignore[arg-type]
    Contestant("by_hand", "expert, by hand", "transformers", "transformers", _by_hand),  # type: ignore[arg-type]
    Contestant("headcount", "headcount", "headcount", "headcount", _headcount),  # type: ignore[arg-type]
]
