"""The plain loop that the engine must agree with: one example, one head set, one pass at a time.

It shares no code with headcount but the encoded examples: it knows where each architecture has its
output projections, puts its own hooks there, makes its own ablations and computes its own metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headcount.tasks.encoding import Encoded

PROJECTIONS = {
    "llama": "model.layers.{}.self_attn.o_proj",  # rotary, grouped key/value heads
    "mistral": "model.layers.{}.self_attn.o_proj",  # a window of 8 tokens
    "gemma3_text": "model.layers.{}.self_attn.o_proj",  # windows here and there
    "deepseek_v3": "model.layers.{}.self_attn.o_proj",  # latent attention, narrower values
    "mixtral": "model.layers.{}.self_attn.o_proj",  # experts
    "qwen3_next": "model.layers.{}.self_attn.o_proj",  # linear attention in most layers
    "gpt2": "transformer.h.{}.attn.c_proj",  # learned positions, Conv1D
    "opt": "model.decoder.layers.{}.self_attn.out_proj",  # learned positions with an offset
    "bloom": "transformer.h.{}.self_attention.dense",  # ALiBi, which it makes from the mask
    "mpt": "transformer.blocks.{}.attn.out_proj",  # ALiBi, which it makes from the length
    "gpt_neox": "gpt_neox.layers.{}.attention.dense",  # parallel blocks
}

Z = list[Tensor]  # at each projection: (tokens, heads·size)


def projections(module: nn.Module, model_type: str) -> list[nn.Module]:
    named = dict(module.named_modules())
    names = [PROJECTIONS[model_type].format(layer) for layer in range(9)]
    return [named[name] for name in names if name in named]


class SlowLoop:
    """One model, with its output projections and the number of heads that each takes."""

    def __init__(self, module: nn.Module, places: Sequence[nn.Module], heads: int) -> None:
        self.module, self.places, self.heads = module, places, heads
        self.known: dict[str, Z] = {}

    @torch.no_grad()
    def run(
        self, ids: Sequence[int], gates: Any, z0: Z, at: Sequence[int] | None = None
    ) -> tuple[Tensor, Z]:
        """Logits (tokens, vocab) of one sequence with gated heads, and the z before the gates.

        Gates act at the positions `at`, or everywhere.
        """
        table = torch.as_tensor(np.asarray(gates)).view(len(self.places), self.heads)
        seen: Z = []

        def gate(row: Tensor, ablation: Tensor) -> Any:
            def hook(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
                (z,) = args[0]
                seen.append(z)
                g = row.repeat_interleave(z.shape[-1] // self.heads)  # (heads·size)
                changed = (g * z + (1 - g) * ablation).float()
                if at is not None:
                    other = [place for place in range(len(z)) if place not in at]
                    changed[other] = z[other]
                return (changed[None], *args[1:])

            return hook

        handles = [
            place.register_forward_pre_hook(gate(row, ablation))
            for place, row, ablation in zip(self.places, table, z0, strict=True)
        ]
        try:
            logits = self.module(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]
        finally:
            for handle in handles:
                handle.remove()
        return logits, seen

    def values(self, ids: Sequence[int]) -> Z:
        """What the heads of the whole model say on one sequence."""
        whole = np.ones(len(self.places) * self.heads)
        return self.run(ids, whole, self.nothing())[1]

    def nothing(self) -> Z:
        return [torch.zeros(()) for _ in self.places]

    def corrupted(self, one: Encoded) -> Z:
        """What the heads say on the corrupted prompt, with the same target behind it."""
        assert one.corrupted is not None
        if one.key not in self.known:
            self.known[one.key] = self.values((*one.corrupted, *one.target[:-1]))
        return self.known[one.key]

    def mean(self, ranking: Sequence[Encoded], like: Encoded, *, by_position: bool) -> Z:
        """The mean of `corrupted` over the ranking split, or over those that are like `like`."""
        corrupted = [
            self.corrupted(one)
            for one in ranking
            if not by_position
            or (one.example.template, len(one.prompt), len(one.target))
            == (like.example.template, len(like.prompt), len(like.target))
        ]
        if by_position:
            return [torch.stack(site).mean(0) for site in zip(*corrupted, strict=True)]
        return [torch.cat(site).mean(0) for site in zip(*corrupted, strict=True)]

    def answer(self, one: Encoded, ids: tuple[int, ...], gates: Any, z0: Z) -> tuple[Tensor, bool]:
        """log p of each token of an answer, and whether greedy decoding writes the answer."""
        prompt = one.prompt
        if one.opens:
            prompt, ids = ids[:1], ids[1:]
        logits, _ = self.run([*prompt, *ids[:-1]], gates, z0)
        logits = logits[len(prompt) - 1 :].double()  # (answer tokens, vocab)
        logprobs = logits.log_softmax(-1)[range(len(ids)), ids]
        return logprobs, logits.argmax(-1).tolist() == list(ids)

    def whole_answers(self, one: Encoded, gates: Any, z0: Z) -> dict[str, float]:
        """The metrics of whole answers, each answer in a pass of its own."""
        target = (*one.prompt, *one.target) if one.opens else one.target
        right = [self.answer(one, ids, gates, z0) for ids in (target, *one.also)]
        wrong = [self.answer(one, ids, gates, z0)[0] for ids in one.foils]
        values = {
            "logprob": float(sum(tokens.sum().exp() for tokens, _ in right).log()),
            "accuracy": float(any(greedy for _, greedy in right)),
        }
        if not wrong:
            return values
        for form, number in (("", Tensor.sum), ("_per_token", Tensor.mean)):
            best = max(number(tokens) for tokens, _ in right)
            margin = float(best - max(number(tokens) for tokens in wrong))
            values |= {f"logprob_difference{form}": margin, f"choice{form}": float(margin > 0)}
        return values

    def metrics(
        self, one: Encoded, gates: Any, z0: Z, at: Sequence[int] | None = None
    ) -> dict[str, float]:
        """Every metric of one example under one head set, whose gates act at some positions."""
        ids = [*one.prompt, *one.target]
        logits, _ = self.run(ids[:-1], gates, z0, at)
        logits = logits[len(one.prompt) - 1 :].double()  # (target tokens, vocab)
        logprobs = [
            float(row[token] - row.exp().sum().log())
            for row, token in zip(logits, one.target, strict=True)
        ]
        right = [one.target[0], *(answer[0] for answer in one.also)]
        wrong = [foil[0] for foil in one.foils]
        margin = max(logits[0, right]) - max(logits[0, wrong], default=torch.nan)
        mass = logits[0].softmax(-1)
        firsts = {
            "logit_difference": float(margin),
            "mass_difference": float(mass[right].sum() - mass[wrong].sum()),
        }
        return {
            "logprob": sum(logprobs),
            "logprob_per_token": sum(logprobs) / len(logprobs),
            "accuracy": float(logits.argmax(-1).tolist() == list(one.target)),
            **firsts,
            **{f"first_token_{name}": value for name, value in firsts.items()},
            "first_token_choice": float(margin > 0),
        }
