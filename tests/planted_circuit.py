"""Planted circuits in which single heads mislead: backup pairs, a chain and negative heads.

    circuit = plant_circuit()
    circuit.model, circuit.task, circuit.chain, circuit.pairs, circuit.negative

The task is that of `planted`: the marked subject is the answer. The logit of the right name is

    CHAIN · (product of the chain's gates) + PAIR · (each pair's sum, at most 1) − NEGATIVE

chain      each head hands the name on to the next one, and the last writes it: all or nothing
pairs      either head writes enough, and an MLP lets no more through: masking one changes nothing
negative   writes against the name
others     look at all tokens and write where nothing reads

So the heads that are needed are known. For *keeping*, the whole chain and one head of each pair,
and nothing else; for *masking*, both heads of each pair and any one head of the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from planted import (
    EPSILON,
    NAMES,
    SHARPNESS,
    THETA,
    WORDS,
    N,
    task_of_names,
)
from toy import word_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from headcount import Head, HeadLayout, Task, wrap
from headcount.curves.truth import Truth
from headcount.models.model import Model

CHAIN, PAIR, NEGATIVE = 4.0, 3.0, 1.0
ENOUGH = 1.25  # of what the MLP lets through, written by each head of a pair
BEND = 40.0  # how sharply the MLP bends at 0 and at 1


@dataclass(frozen=True)
class Circuit:
    """A model, a task that it solves, and the heads that do something for it."""

    model: Model
    task: Task
    chain: tuple[Head, ...]
    pairs: tuple[tuple[Head, Head], ...]
    negative: tuple[Head, ...]

    @property
    def members(self) -> set[Head]:
        """Every head that can help."""
        return {*self.chain, *(head for pair in self.pairs for head in pair)}

    @property
    def kept(self) -> int:
        """How many heads must be kept."""
        return len(self.chain) + len(self.pairs)

    @property
    def masked(self) -> int:
        """How many heads must be masked, so that nothing of the effect is left."""
        return bool(self.chain) + 2 * len(self.pairs)

    @property
    def truth(self) -> Truth:
        """The sets of heads that are right to keep, and to mask."""
        both = [head for pair in self.pairs for head in pair]
        keep = [frozenset((*self.chain, *one_each)) for one_each in product(*self.pairs)]
        mask = [frozenset((*both, link)) for link in self.chain] or [frozenset(both)]
        return Truth(keep, mask)

    def effect(self, kept: Iterable[Head]) -> float:
        """By how much these heads raise the logit of the target over that of the foil."""
        heads = set(kept)
        chain = CHAIN * (heads >= set(self.chain)) * bool(self.chain)
        pairs = PAIR * sum(bool(heads & set(pair)) for pair in self.pairs)
        return chain + pairs - NEGATIVE * len(heads & set(self.negative))

    def right_to_keep(self, heads: Iterable[Head]) -> bool:
        """Whether these are the whole chain, one head of each pair, and nothing else."""
        chosen = set(heads)
        one_each = all(len(chosen & set(pair)) == 1 for pair in self.pairs)
        return chosen >= set(self.chain) and one_each and len(chosen) == self.kept

    def right_to_mask(self, heads: Iterable[Head]) -> bool:
        """Whether these are both heads of each pair, one of the chain, and nothing else."""
        chosen = set(heads)
        both = all(chosen >= set(pair) for pair in self.pairs)
        broken = not self.chain or bool(chosen & set(self.chain))
        return both and broken and len(chosen) == self.masked


def plant_circuit(
    chain: Sequence[str] = ("0.2", "1.3", "2.0"),
    pairs: Sequence[tuple[str, str]] = (("0.1", "1.2"), ("1.0", "2.3")),
    negative: Sequence[str] = ("2.1",),
    *,
    layers: int = 4,
    heads: int = 4,
    n: int = 32,
    seed: int = 0,
) -> Circuit:
    """Plant a circuit: heads by name; those of the chain must stand in rising layers."""
    layout = HeadLayout((heads,) * layers)
    links = tuple(layout.parse(name) for name in chain)
    both = tuple((layout.parse(one), layout.parse(other)) for one, other in pairs)
    against = tuple(layout.parse(name) for name in negative)
    each = [*links, *(head for pair in both for head in pair), *against]
    if len(set(each)) < len(each):
        raise ValueError("a head has one role")
    if [head.layer for head in links] != sorted({head.layer for head in links}):
        raise ValueError("the heads of a chain stand in rising layers")
    module = _Planting(layout, links, both, against, seed).module
    model = wrap(module, word_tokenizer(WORDS), name=f"circuit-{seed}")
    return Circuit(model, task_of_names(n, seed), links, both, against)


class _Planting:
    """Writes the weights; the residual stream holds ONE, SUBJECT, NAME, NOISE, and more."""

    def __init__(
        self,
        layout: HeadLayout,
        chain: Sequence[Head],
        pairs: Sequence[tuple[Head, Head]],
        negative: Sequence[Head],
        seed: int,
    ) -> None:
        self.heads, self.generator = layout.counts[0], torch.Generator().manual_seed(seed)
        links, self.seed = max(len(chain) - 1, 0), seed
        slots = iter(range(2, 10_000, N))
        self.name, self.noise, self.answer = (self._slot(next(slots)) for _ in range(3))
        self.links = [self._slot(next(slots)) for _ in range(links)]
        self.sums = [self._slot(next(slots)) for _ in pairs]
        self.nowhere = self._slot(next(slots))
        self.nobody = self.nowhere.stop
        self.width = -(-(self.nobody + 1) // self.heads) * self.heads
        self.read = [self.name, self.noise, *self.links]  # what values hold
        self.size = -(-N * len(self.read) // 2) * 2
        self.module = self._empty(len(layout.counts), 2 * N * max(len(pairs), 1))
        with torch.no_grad():
            self._words(0.4 * (CHAIN * bool(chain) + PAIR * len(pairs)))
            for layer in range(len(layout.counts)):
                self._read(layer)
                for index in range(self.heads):
                    self._write(Head(layer, index), self.noise, self.nowhere, 0.25, looks=False)
            for number, head in enumerate(chain):
                source = self.links[number - 1] if number else self.name
                last = number == len(chain) - 1
                goal = self.answer if last else self.links[number]
                self._write(head, source, goal, CHAIN if last else 1.0)
            for pair, into in zip(pairs, self.sums, strict=True):
                for head in pair:
                    self._write(head, self.name, into, ENOUGH)
            for head in negative:
                self._write(head, self.name, self.answer, -NEGATIVE)
            self._bound()

    @staticmethod
    def _slot(start: int) -> slice:
        return slice(start, start + N)

    @torch.no_grad()
    def _empty(self, layers: int, units: int) -> LlamaForCausalLM:
        config = LlamaConfig(
            vocab_size=len(word_tokenizer(WORDS)),
            hidden_size=self.width,
            intermediate_size=units,
            num_hidden_layers=layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            head_dim=self.size,
            rms_norm_eps=EPSILON,
            rope_parameters={"rope_type": "default", "rope_theta": THETA},
            max_position_embeddings=64,
            tie_word_embeddings=False,
            bos_token_id=1,
            eos_token_id=2,
        )
        module = LlamaForCausalLM(config).eval()
        for name, parameter in module.named_parameters():
            parameter.fill_(EPSILON**0.5 if "norm" in name else 0.0)
        return module

    def _words(self, nobody: float) -> None:
        tokenizer = word_tokenizer(WORDS)
        embedding, logits = self.module.model.embed_tokens.weight, self.module.lm_head.weight
        embedding[:, 0] = 1
        embedding[:, self.nobody] = nobody
        embedding[:, self.noise] = torch.randn(len(embedding), N, generator=self.generator)
        logits[tokenizer.convert_tokens_to_ids("nobody"), self.nobody] = 1
        for number, name in enumerate(NAMES):
            plain, subject, other = tokenizer.convert_tokens_to_ids([name, f"+{name}", f"-{name}"])
            embedding[subject, 1] = 1
            embedding[[subject, other], self.name.start + number] = 1
            logits[plain, self.answer.start + number] = 1

    def _read(self, layer: int) -> None:
        """Keys say which token is the subject; values hold all that any head hands on."""
        attention, turned = self.module.model.layers[layer].self_attn, self.size // 2 - 1
        key = attention.k_proj.weight.view(self.heads, self.size, self.width)
        value = attention.v_proj.weight.view(self.heads, self.size, self.width)
        key[:, turned, 1] = SHARPNESS * self.size**0.5
        for place, slot in enumerate(self.read):
            value[:, place * N : (place + 1) * N, slot] = torch.eye(N)

    def _write(
        self, head: Head, source: slice, goal: slice, strength: float, *, looks: bool = True
    ) -> None:
        """Let a head look at the subject, or at all tokens, and copy one slot into another."""
        attention = self.module.model.layers[head.layer].self_attn
        query = attention.q_proj.weight.view(self.heads, self.size, self.width)
        output = attention.o_proj.weight.view(self.width, self.heads, self.size)
        output[:, head.index] = 0
        place = self.read.index(source) * N
        output[goal, head.index, place : place + N] = strength * torch.eye(N)
        query[head.index, self.size // 2 - 1, 0] = float(looks)

    def _bound(self) -> None:
        """The last MLP adds PAIR · (relu(x) − relu(x − 1)) of each pair's sum to the answer."""
        mlp = self.module.model.layers[-1].mlp
        for number, slot in enumerate(self.sums):
            for name in range(N):
                for step in (0, 1):  # silu(BEND·(x − step)) / BEND is a relu that bends at `step`
                    unit = 2 * (number * N + name) + step
                    mlp.gate_proj.weight[unit, slot.start + name] = BEND
                    mlp.gate_proj.weight[unit, 0] = -BEND * step
                    mlp.up_proj.weight[unit, 0] = 1 / BEND
                    sign = 1 - 2 * step
                    mlp.down_proj.weight[self.answer.start + name, unit] = sign * PAIR
