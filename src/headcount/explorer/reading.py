"""Why a head matters on a prompt: where it looks, what it writes in words, how much it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.engine.measure.forward import measuring
from headcount.engine.read.attention import reading_attention
from headcount.engine.read.collect import reading, run_through
from headcount.errors import HeadcountError
from headcount.explorer.prompts import PromptPasses
from headcount.heads import Head
from headcount.models.model import Model
from headcount.models.sites import HeadSite, from_rows, plain, to_rows

WORDS = 8  # tokens that a head's output points to, and from


@torch.no_grad()
def why(passes: PromptPasses, head: Head) -> dict[str, Any]:
    """The attention of a head of the whole model, and what it writes at every token of a prompt."""
    model, site = passes.model, passes.model.sites[head.layer]
    outputs: dict[int, Tensor] = {}
    patterns: dict[int, Tensor] = {}
    note = ""

    def read_output(at: HeadSite, z: Tensor) -> None:
        if at.index == head.layer:
            outputs[at.index] = z.clone()

    def read_pattern(at: HeadSite, weights: Tensor) -> None:
        if at.index == head.layer:
            patterns[at.index] = weights[0, head.index].float().cpu()

    def run() -> None:
        with reading(model, read_output):
            run_through(model, [passes.encoded.prompt])

    with measuring(model, passes.encoded.length):
        try:
            with reading_attention(model, read_pattern):
                run()
        except HeadcountError as error:
            note = str(error)
            run()
        written = writes(model, site, outputs[head.layer][0], [head.index])[0]
        words = in_words(model, written, passes.text_of)
    pattern = patterns.get(head.layer)
    return {
        "head": str(head),
        "tokens": passes.tokens,
        "attention": None if pattern is None else np.round(pattern.numpy(), 4).tolist(),
        "words": words,
        "norms": np.round(written.norm(dim=-1).cpu().numpy(), 4).tolist(),
        "note": note,
    }


@torch.no_grad()
def activity(passes: PromptPasses) -> Float[np.ndarray, "heads"]:
    """How much each head writes on a prompt: the norm of its output, averaged over the tokens."""
    model, norms = passes.model, []

    def read(site: HeadSite, z: Tensor) -> None:
        written = writes(model, site, z[0], range(site.heads))  # (heads, tokens, width)
        norms.append(written.norm(dim=-1).mean(-1).double().cpu())

    with measuring(model, passes.encoded.length), reading(model, read):
        run_through(model, [passes.encoded.prompt])
    return torch.cat(norms).numpy()


def writes(
    model: Model, site: HeadSite, z: Float[Tensor, "tokens width"], heads: Any
) -> Float[Tensor, "heads tokens out"]:
    """What heads of a site add to the residual stream, through the output projection."""
    projection: Callable[[Tensor], Any] = type(_named(model, site.module)).forward.__get__(
        _named(model, site.module)
    )
    alone = z.new_zeros(len(heads) + 1, *z.shape)  # the last row holds no head, only the bias
    for row, head in enumerate(heads):
        columns = slice(site.start + head * site.size, site.start + (head + 1) * site.size)
        alone[row, :, columns] = z[:, columns]
    shape = {"rows": alone.shape, "flat": (alone[..., 0].numel(), alone.shape[-1])}
    like = alone.new_empty(shape.get(site.order, alone.transpose(0, 1).shape))
    try:
        output = to_rows(projection(from_rows(alone, site.order, like)), site.order, len(alone))
    except TypeError as error:
        raise HeadcountError(
            f"What heads write cannot be read at {site.module}, because it needs further inputs."
        ) from error
    return (output[:-1] - output[-1:]).float()


def in_words(
    model: Model, written: Float[Tensor, "tokens out"], text_of: Callable[[int], str]
) -> list[dict[str, list[str]]]:
    """The tokens that an output points to and away from, at each token: a rough reading.

    The output goes through the last norm and the unembedding by itself, past all later layers.
    """
    top: Any = plain(model.module)
    head = top.get_output_embeddings()
    norm = _last_norm(top)
    with torch.inference_mode():
        dtype = next(head.parameters()).dtype
        x = written.to(dtype)
        logits = head(x if norm is None else norm(x[None])[0]).float()  # (tokens, vocab)
    most = logits.topk(WORDS, dim=-1).indices.tolist()
    least = (-logits).topk(WORDS // 2, dim=-1).indices.tolist()
    return [
        {"up": [*map(text_of, up)], "down": [*map(text_of, down)]}
        for up, down in zip(most, least, strict=True)
    ]


def _last_norm(top: nn.Module) -> nn.Module | None:
    """The norm before the unembedding: the last one that is in no block."""
    outside = [
        module
        for name, module in top.named_modules()
        if "norm" in type(module).__name__.lower()
        and not any(part.isdecimal() for part in name.split("."))
    ]
    return outside[-1] if outside else None


def _named(model: Model, name: str) -> nn.Module:
    return plain(model.module).get_submodule(name)
