"""A model's own text, to tune on beside the text that is given.

What the given text does not show, a model unlearns while it learns that text, and more so where
edges are to be shut: nothing speaks for those that only code or sums would need. What the model
itself writes shows what it could do before. No other text is needed for it, and none is chosen.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.models.memory import out_of_memory, too_large
from headcount.models.model import Model
from headcount.models.sites import accepted, plain
from headcount.sparse.text import Blocks
from headcount.system.files import digest, replacing
from headcount.system.progress import progress as progress_bar

LEAST = 0.05  # of the likeliest token's probability, or a token is not drawn
ROWS = {"cuda": 2048, "cpu": 64}  # blocks that are written at once


def write_own_text(
    model: Model,
    blocks: int,
    tokens: int,
    *,
    seed: int = 0,
    keep: Path | None = None,
    deadline: float = float("inf"),
    progress: bool = True,
) -> Blocks | None:
    """Let the model write: each block begins with a token drawn from all ordinary ones.

    A random first word leads to prose, chat, code and sums alike. Nothing ends a block but its
    length. With `keep`, blocks stay in that folder for the next time, so that nothing is written
    twice; None where `deadline` (of time.monotonic) came before the last of them, though some are
    written in every call.
    """
    asked = {"blocks": blocks, "tokens": tokens, "seed": seed, "least": LEAST, "version": 1}
    facts = {**model.identity, **asked}
    key = digest(json.dumps(facts, sort_keys=True))[:16]
    starts = _starts(model, blocks, seed)
    rows = ROWS.get(model.device.type, 256)
    written: list[Blocks] = []
    done, new = 0, 0
    with progress_bar("own text", blocks, show=progress, unit="block") as bar:
        while done < blocks:
            file = None if keep is None else keep / f"own-{key}-{done}.npy"
            if file is not None and file.exists():
                some = np.load(file, allow_pickle=False).astype(np.int64)
            elif new and time.monotonic() > deadline:
                return None
            else:
                try:
                    some = _write(model, starts[done : done + rows], tokens, [seed, done])
                except RuntimeError as error:
                    if not out_of_memory(error):
                        raise
                    if rows == 1:
                        raise too_large(model, tokens) from error
                    rows = min(rows, blocks - done) // 2 or 1
                    continue
                new += len(some)
                if file is not None:
                    with replacing(file) as beside, beside.open("wb") as stream:
                        np.save(stream, some.astype(np.int32))
            written.append(some)
            done += len(some)
            bar.update(len(some))
    return np.concatenate(written)


def fingerprint(text: Blocks) -> str:
    """By which a run knows its own text again: memory and device decide how it is drawn, too."""
    return digest(np.ascontiguousarray(text, dtype="<i4").tobytes())


def _starts(model: Model, blocks: int, seed: int) -> list[tuple[int, ...]]:
    """The first tokens of each block: one of all ordinary ones, behind what texts begin with."""
    tokenizer, module = model.tokenizer, cast(Any, plain(model.module))
    known = min(len(tokenizer), module.get_input_embeddings().num_embeddings)
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {token for token, added_token in added.items() if added_token.special}
    special |= set(tokenizer.all_special_ids)
    ordinary = [token for token in range(known) if token not in special]
    drawn = np.random.default_rng([seed, 1]).choice(ordinary, size=blocks)
    first = tokenizer("a")["input_ids"][:1]
    begin = first if first == [tokenizer.bos_token_id] else []
    return [(*begin, int(token)) for token in drawn]


@torch.no_grad()
def _write(
    model: Model, starts: Sequence[tuple[int, ...]], tokens: int, seed: Sequence[int]
) -> Blocks:
    """Blocks that go on from these starts, in bfloat16 where there is an accelerator."""
    module = cast(Any, plain(model.module))
    number = int(np.random.default_rng(seed).integers(1 << 62))
    rng: torch.Generator | None = None  # where the logits are
    ids = torch.tensor(starts, device=model.device)
    text, cache = [ids], None
    device = model.device.type
    half = nullcontext() if device == "cpu" else torch.autocast(device, torch.bfloat16)
    with half:
        for _ in range(tokens - ids.shape[1]):
            output = module(
                input_ids=ids, **accepted(module, past_key_values=cache, use_cache=True)
            )
            cache = getattr(output, "past_key_values", None)
            if cache is None:
                raise HeadcountError(
                    f"{model.name} keeps no keys and values while it writes, so it can write no "
                    "text of its own: give --own 0."
                )
            scores = output.logits[:, -1]
            rng = rng or torch.Generator(scores.device).manual_seed(number)
            ids = noisy(scores, rng).argmax(-1, keepdim=True).to(model.device)
            text.append(ids)
    return torch.cat(text, 1).cpu().numpy()


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
