"""Causal LMs that no library has: odd ones that must be gated right, and bad ones to be refused.

    model = CustomLM(Flat, Attention)
    model(input_ids=ids).logits  # (rows, tokens, VOCAB)

Each class below is an attention whose heads reach the residual stream in its own way.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB, WIDTH = 53, 24


class Attention(nn.Module):
    """Plain: the heads side by side, one linear layer, nothing else."""

    heads: ClassVar[int] = 4
    size: ClassVar[int] = 5

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.heads * self.size
        self.qkv = nn.Linear(WIDTH, 3 * self.inner)
        self.o_proj = nn.Linear(self.inner, WIDTH)

    def queries_keys_values(self, x: Tensor) -> Tensor:
        return self.qkv(x).unflatten(-1, (3, self.heads, self.size)).permute(2, 0, 3, 1, 4)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(self.attend(x).flatten(2))  # (rows, tokens, WIDTH)


class TenHeads(Attention):
    """As many rows of the probing pass as tokens, were it not careful."""

    heads = 10


class Flat(Attention):
    """Rows and tokens in one axis, as code for packed batches has it."""

    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(self.attend(x).flatten(2).flatten(0, 1)).view(x.shape)


class TokensFirst(Attention):
    """Tokens before rows, as Megatron has it."""

    def forward(self, x: Tensor) -> Tensor:
        z = self.attend(x).flatten(2).transpose(0, 1).contiguous()
        return self.o_proj(z).transpose(0, 1)


class TenHeadsTokensFirst(TokensFirst):
    heads = 10


class Beside(Attention):
    """One projection for the heads and for an MLP's columns before and behind them."""

    before, after = 7, 7

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, self.before + self.after)
        self.o_proj = nn.Linear(self.before + self.inner + self.after, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        before, after = F.gelu(self.up(x)).split((self.before, self.after), -1)
        return self.o_proj(torch.cat((before, self.attend(x).flatten(2), after), -1))


class OneHeadBeside(Beside):
    heads = 1


class TwoHeadsBeside(Beside):
    """Cut in halves, the columns hold a head each: but the heads are in the middle."""

    heads = 2


class WithResidual(Attention):
    """A projection that adds the residual itself, so that it takes two inputs."""

    class Output(nn.Module):
        def __init__(self, inner: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(WIDTH, inner))

        def forward(self, z: Tensor, residual: Tensor) -> Tensor:
            return F.linear(z, self.weight) + residual

    def __init__(self) -> None:
        super().__init__()
        self.o_proj = self.Output(self.inner)

    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(self.attend(x).flatten(2), 0.5 * x)


class UsedTwice(Attention):
    """The projection also serves another input, before the heads."""

    def forward(self, x: Tensor) -> Tensor:
        first = self.o_proj(x[..., : self.inner])
        return first + super().forward(x)


class SoftmaxByHand(Attention):
    """Scores, softmax and values in plain tensor code."""

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        scores = q @ k.transpose(-1, -2) / self.size**0.5
        scores = scores + torch.full_like(scores[0, 0], -torch.inf).triu(1)
        return (self.mix(scores.softmax(-1)) @ v).transpose(1, 2)

    def mix(self, weights: Tensor) -> Tensor:
        return weights


class Packed(Attention):
    """All prompts in one row, kept apart by a mask: there is no row in which to disturb a head."""

    def attend(self, x: Tensor) -> Tensor:
        rows, tokens = x.shape[:2]
        q, k, v = self.queries_keys_values(x.reshape(1, rows * tokens, -1))
        mask = torch.block_diag(*torch.ones(rows, tokens, tokens).tril()).bool()
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return z.transpose(1, 2).unflatten(1, (rows, tokens))[0]


class RunningMean(Attention):
    """No attention at all, but tokens mix."""

    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(x.cumsum(1)[..., : self.inner] / x.shape[1])


class HeadsAndMean(Attention):
    """Heads, and beside them in the same module tokens that mix without any."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.cumsum(1) / x.shape[1]


class HeadsAndModule(Attention):
    """Heads in a module of their own, and another module that mixes tokens beside it."""

    class Core(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    def __init__(self) -> None:
        super().__init__()
        self.core, self.beside = self.Core(), RunningMean()

    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(self.core(*self.queries_keys_values(x)).flatten(2)) + self.beside(x)


class Routed(Attention):
    """Heads, and a router that weighs more experts than there are tokens, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.experts(self.router(x).softmax(-1))


# From here on: not one of these may be given heads.


class Interleaved(Attention):
    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(self.attend(x).transpose(-1, -2).flatten(2))


class Reversed(Attention):
    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(self.attend(x).flip(-2).flatten(2))


class ShiftedByOne(Attention):
    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(self.attend(x).flatten(2).roll(1, -1))


class TalkingHeads(SoftmaxByHand):
    def __init__(self) -> None:
        super().__init__()
        self.talk = nn.Parameter(torch.empty(self.heads, self.heads))

    def mix(self, weights: Tensor) -> Tensor:
        return torch.einsum("rhqk,gh->rgqk", weights, self.talk)


class WhisperingHeads(TalkingHeads):
    """Each head hears a hundredth of the others."""

    def mix(self, weights: Tensor) -> Tensor:
        return weights + 0.01 * super().mix(weights)


class TwoKinds(Attention):
    """A single head and four heads, side by side before one projection."""

    def __init__(self) -> None:
        super().__init__()
        self.one = OneHead()
        self.o_proj = nn.Linear(self.one.inner + self.inner, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.one.queries_keys_values(x)
        one = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.o_proj(torch.cat((one.flatten(2), self.attend(x).flatten(2)), -1))


class OneHead(Attention):
    heads = 1


class Bypass(Attention):
    """A tenth of what the heads say goes past the projection."""

    def forward(self, x: Tensor) -> Tensor:
        z = self.attend(x).flatten(2)
        return self.o_proj(z) + 0.1 * F.pad(z, (0, WIDTH - self.inner))


class TwoReaders(Attention):
    """A second linear layer reads the heads too."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(self.inner, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        z = self.attend(x).flatten(2)
        return self.o_proj(z) * self.gate_proj(z).sigmoid()


class NoProjection(Attention):
    """The heads are written into the residual stream as they are."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(self.attend(x).flatten(2), (0, WIDTH - self.inner))


class Functional(Attention):
    """The projection is no module, so that nothing can be hooked."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.attend(x).flatten(2), self.o_proj.weight, self.o_proj.bias)


class ByKeyword(Attention):
    """The projection's input comes under a name, where no hook looks for it."""

    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(input=self.attend(x).flatten(2))


class Curved(Attention):
    """A projection that is not linear, all in one module."""

    class Output(nn.Module):
        def __init__(self, inner: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(WIDTH, inner))

        def forward(self, z: Tensor) -> Tensor:
            return torch.tanh(F.linear(z, self.weight))

    def __init__(self) -> None:
        super().__init__()
        self.o_proj = self.Output(self.inner)


class Random(Attention):
    """Dropout that nothing switches off."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.5, training=True))


class Remembering(Attention):
    def attend(self, x: Tensor) -> Tensor:
        self.said = super().attend(x)
        return self.said


class Block(nn.Module):
    def __init__(self, attention: type[Attention]) -> None:
        super().__init__()
        self.norm, self.attention = nn.RMSNorm(WIDTH), attention()
        self.mlp = nn.Sequential(nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 16), nn.GELU())
        self.down = nn.Linear(16, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.down(self.mlp(x))


class CustomLM(nn.Module):
    """A causal LM without config, as small as can be; one kind of attention for each block."""

    def __init__(self, *attentions: type[Attention], seed: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block(attention) for attention in attentions)
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1 or name.endswith("bias"):
                std = 0.1 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
                nn.init.normal_(parameter, std=std, generator=generator)
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None) -> Any:
        x = self.embed(input_ids) if inputs_embeds is None else inputs_embeds
        # A position is a plain shift, so that the order of tokens matters.
        x = x + torch.linspace(-1, 1, x.shape[1] * WIDTH, dtype=x.dtype).view(x.shape[1:])
        for block in self.blocks:
            x = block(x)
        return SimpleNamespace(logits=self.head(self.norm(x)))


class LateBypass(CustomLM):
    """The last heads also reach the logits past every module."""

    def __init__(self) -> None:
        super().__init__(Attention, Remembering)

    def forward(self, input_ids: Tensor) -> Any:
        logits = super().forward(input_ids).logits
        z = self.blocks[-1].attention.said.flatten(2)
        return SimpleNamespace(logits=logits + F.pad(z, (0, VOCAB - z.shape[-1])))


class NothingAfter(CustomLM):
    """No module comes after the last attention."""

    def __init__(self) -> None:
        super().__init__(Functional)

    def forward(self, input_ids: Tensor) -> Any:
        x = self.embed(input_ids)
        x = x + self.blocks[0].attention(x)
        return SimpleNamespace(logits=x @ self.embed.weight.T)


class RunTwice(CustomLM):
    """All blocks run a second time."""

    def __init__(self, *attentions: type[Attention]) -> None:
        super().__init__(*attentions)
        self.blocks.extend(list(self.blocks))
