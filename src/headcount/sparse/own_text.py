"""A model's own text, to tune on beside the text that is given.

What the given text does not show, a model unlearns while it learns that text, and more so where
edges are to be shut: nothing speaks for those that only code or sums would need. What the model
itself writes shows what it could do before. No other text is needed for it, and none is chosen.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.engine.forward import out_of_memory, too_large
from headcount.engine.steps import Steps
from headcount.models.model import Model
from headcount.models.replay import exactly
from headcount.models.sites import plain
from headcount.progress import progress as progress_bar
from headcount.sparse.text import Blocks

LEAST = 0.05  # of the likeliest token's probability, or a token is not drawn
ROWS = {"cuda": 2048, "cpu": 64}  # blocks that are written at once


def write_own_text(
    model: Model,
    blocks: int,
    tokens: int,
    *,
    seed: int = 0,
    keep: Path | None = None,
    progress: bool = True,
) -> Blocks:
    """Let the model write: each block begins with a token drawn from its whole vocabulary.

    A random first word leads to prose, chat, code and sums alike. Nothing ends a block but its
    length. With `keep`, blocks stay in that folder for the next time.
    """
    facts = {**model.identity, "blocks": blocks, "tokens": tokens, "seed": seed, "least": LEAST}
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    file = None if keep is None else keep / f"own-{key}.npy"
    if file is not None and file.exists():
        kept: Blocks = np.load(file, allow_pickle=False).astype(np.int64)
        return kept
    starts = _starts(model, blocks, seed)
    written: list[Blocks] = []
    model.short_cuts  # noqa: B018  (proven when first asked for, which must not be in bfloat16)
    rows = ROWS.get(model.device.type, 256)
    with progress_bar("own text", blocks, show=progress, unit="block") as bar:
        done = 0
        while done < blocks:
            some = starts[done : done + rows]
            try:
                written.append(_write(model, some, tokens, [seed, done]))
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                if len(some) == 1:
                    raise too_large(model, tokens) from error
                rows = len(some) // 2
                continue
            done += len(some)
            bar.update(len(some))
    text = np.concatenate(written)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        made = file.with_suffix(".part.npy")
        np.save(made, text.astype(np.int32))
        made.replace(file)
    return text


def _starts(model: Model, blocks: int, seed: int) -> list[tuple[int, ...]]:
    """The first tokens of each block: one of all ordinary ones, behind what texts begin with."""
    tokenizer, module = model.tokenizer, cast(Any, plain(model.module))
    known = min(len(tokenizer), module.get_input_embeddings().num_embeddings)
    special = set(tokenizer.all_special_ids)
    ordinary = [token for token in range(known) if token not in special]
    drawn = np.random.default_rng([seed, 1]).choice(ordinary, size=blocks)
    first = tokenizer("a")["input_ids"][:1]
    begin = first if first == [tokenizer.bos_token_id] else []
    return [(*begin, int(token)) for token in drawn]


def _write(
    model: Model, starts: Sequence[tuple[int, ...]], tokens: int, seed: Sequence[int]
) -> Blocks:
    """Blocks that go on from these starts, in bfloat16 where there is an accelerator."""
    number = int(np.random.default_rng(seed).integers(1 << 62))
    rng = torch.Generator(model.device).manual_seed(number)

    def draw(scores: Tensor, _rows: Tensor, _step: int) -> Tensor:
        return noisy(scores, rng)

    new = tokens - len(starts[0])
    steps = Steps(model, None, (), spare_prompt=False, new=new, pick=lambda _: draw)
    device = model.device.type
    half = nullcontext() if device == "cpu" else torch.autocast(device, torch.bfloat16)
    with exactly(model.module), half:
        added = steps.run(starts, [0] * len(starts))
    return np.concatenate((np.array(starts), np.array(added)), axis=1)


def noisy(scores: Float[Tensor, "rows vocab"], rng: torch.Generator) -> Float[Tensor, "rows vocab"]:
    """Scores whose highest is a draw from their softmax, unlikely tokens left out.

    >>> rng = torch.Generator().manual_seed(0)
    >>> scores = torch.tensor([0.6, 0.39, 0.01]).log().expand(10_000, -1)
    >>> drawn = noisy(scores, rng).argmax(-1)
    >>> [round(float((drawn == token).float().mean()), 1) for token in range(3)]
    [0.6, 0.4, 0.0]
    """
    scores = scores.float()
    likely = scores >= scores.amax(-1, keepdim=True) + math.log(LEAST)
    gumbel = -torch.empty_like(scores).exponential_(generator=rng).log()
    return torch.where(likely, scores + gumbel, -torch.inf)
