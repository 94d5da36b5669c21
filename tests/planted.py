"""Planted circuits: tiny Llamas, set by hand, of which we know what every head does.

    plant = plant(needed=["0.1", "2.0"], interfering=["1.3"])
    plant.model, plant.task, plant.roles, plant.effects

    we saw +Ada then and -Bob here →  Ada, not Bob

The marked word is the subject. Of the heads,

needed        look at the subject and write *toward* its name, each by about STRENGTH
interfering   look at the subject and write *against* its name, by less
irrelevant    look at all tokens and write where nothing reads: z is not zero, the effect is

"nobody" is an answer that is always at hand. Its logit is set so that the right name wins only
while enough needed heads are there: all of them or, with `spare`, all but that many (redundancy).
So accuracy says whether the circuit is whole, and the logit difference of target and foil is a
plain sum over heads: +STRENGTH for each needed one, less for each interfering one.

Nothing composes and nothing is curved: what heads write is in no subspace that heads read, the MLPs
write nothing, and RMSNorm with a huge epsilon is a constant factor. Grouped key/value heads share
keys and values; a head's role is in its query and in its columns of the output projection.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from toy import word_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from headcount import Example, Head, HeadLayout, Task, wrap
from headcount.models.model import Model

Role = Literal["needed", "interfering", "irrelevant"]

STRENGTH = 4.0  # of a needed head, give or take a tenth
INTERFERENCE = 1.0  # of all interfering heads together

NAMES = ("Ada", "Bob", "Cid", "Dora", "Eve", "Finn", "Gus", "Hal")
FILLERS = ("we", "saw", "then", "and", "here", "there", "who", "was", "it", "so")
WORDS = ("nobody", *FILLERS, *NAMES, *(f"+{n}" for n in NAMES), *(f"-{n}" for n in NAMES))
TEMPLATES = (  # of different lengths, the subject first or last
    "we saw +{subject} then and -{other} here",
    "so -{other} was there and then +{subject} who was it",
    "+{subject} and -{other} was it",
    "-{other} here then +{subject}",
)

# Subspaces of the residual stream: what heads read, then what they write.
N = len(NAMES)
ONE, SUBJECT = 0, 1  # 1 on every token; 1 on subjects
NAME = slice(2, 2 + N)  # which name a marked word holds
NOISE = slice(2 + N, 2 + 2 * N)  # something about every token
ANSWER = slice(2 + 2 * N, 2 + 3 * N)  # read by the names' logits
NOBODY = 2 + 3 * N  # read by the logit of "nobody"
NOWHERE = slice(3 + 3 * N, 3 + 5 * N)  # read by nothing
WIDTH = 3 + 5 * N

SIZE = 2 * N  # of a head: values hold the name and the noise
# Rotary pairs are (i, i + SIZE/2); with this theta the last one turns by 1e-14 per token: not at
# all in float32. Keys and queries use it alone, so positions play no part.
THETA, UNTURNED = 1e16, N - 1
SHARPNESS = 40.0  # the subject's attention score over that of all other tokens
EPSILON = 1e12  # against which the mean square of the residual stream is nothing


@dataclass(frozen=True)
class Plant:
    """A model, a task that it solves, and the truth about its heads.

    `effects` is by how much each head raises the logit of the target over that of the foil.
    """

    model: Model
    task: Task
    roles: dict[Head, Role]
    effects: dict[Head, float]

    def heads(self, role: Role) -> list[Head]:
        return [head for head, its in self.roles.items() if its == role]


def plant(
    needed: Sequence[str],
    interfering: Sequence[str] = (),
    *,
    layers: int = 3,
    heads: int = 4,
    spare: int = 0,
    n: int = 32,
    seed: int = 0,
) -> Plant:
    """Plant a circuit: heads by name, such as "2.1"; all others are irrelevant.

    The task is solved while no more than `spare` of the needed heads are gone (at most 3, and fewer
    than there are), whatever happens to the others.
    """
    layout = HeadLayout((heads,) * layers)
    roles: dict[Head, Role] = dict.fromkeys(layout, "irrelevant")
    roles |= {layout.parse(name): "needed" for name in needed}
    roles |= {layout.parse(name): "interfering" for name in interfering}
    if len(set(needed) | set(interfering)) < len(needed) + len(interfering):
        raise ValueError("a head has one role")
    if not 0 <= spare < min(len(needed), 4):
        raise ValueError("some needed head must be missed, and strengths differ by a tenth")
    rng = random.Random(seed)
    effects = {
        head: {
            "needed": STRENGTH * rng.uniform(0.9, 1.1),
            "interfering": -INTERFERENCE / max(len(interfering), 1),
            "irrelevant": 0.0,
        }[role]
        for head, role in roles.items()
    }
    whole = sum(effects[head] for head, role in roles.items() if role == "needed")
    module = _module(layout, roles, effects, nobody=whole - (spare + 0.5) * STRENGTH, seed=seed)
    model = wrap(module, word_tokenizer(WORDS), name=f"plant-{seed}")
    return Plant(model, task_of_names(n, seed), roles, effects)


def task_of_names(n: int, seed: int) -> Task:
    rng = random.Random(f"task {seed}")
    examples = []
    for number in range(n):
        template = number % len(TEMPLATES)
        subject, other, *fresh = rng.sample(NAMES, 4)
        examples.append(
            Example(
                id=f"p{number}",
                prompt=TEMPLATES[template].format(subject=subject, other=other),
                target=f" {subject}",
                foils=(f" {other}",),
                corrupted=TEMPLATES[template].format(subject=fresh[0], other=fresh[1]),
                template=f"t{template}",
                content=f"{number // len(TEMPLATES)}",
            )
        )
    return Task(f"planted-{seed}", 1, tuple(examples))


@torch.no_grad()
def _module(
    layout: HeadLayout,
    roles: dict[Head, Role],
    effects: dict[Head, float],
    *,
    nobody: float,
    seed: int,
) -> LlamaForCausalLM:
    heads = layout.counts[0]
    width = -(-WIDTH // heads) * heads  # Llama insists on a multiple
    keys = heads // 2 if heads % 2 == 0 else heads
    tokenizer = word_tokenizer(WORDS)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=8,
        num_hidden_layers=len(layout.counts),
        num_attention_heads=heads,
        num_key_value_heads=keys,
        head_dim=SIZE,
        rms_norm_eps=EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        max_position_embeddings=64,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    module = LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        parameter.fill_(EPSILON**0.5 if "norm" in name else 0.0)

    embedding = module.model.embed_tokens.weight  # (vocab, width)
    embedding[:, ONE] = 1
    embedding[:, NOBODY] = nobody
    embedding[:, NOISE] = torch.randn(len(embedding), N, generator=generator)
    logits = module.lm_head.weight  # (vocab, width)
    logits[tokenizer.convert_tokens_to_ids("nobody"), NOBODY] = 1
    for number, name in enumerate(NAMES):
        plain, subject, other = tokenizer.convert_tokens_to_ids([name, f"+{name}", f"-{name}"])
        embedding[subject, SUBJECT] = 1
        embedding[[subject, other], NAME.start + number] = 1
        logits[plain, ANSWER.start + number] = 1

    for layer, block in enumerate(module.model.layers):
        attention = block.self_attn
        query = attention.q_proj.weight.view(heads, SIZE, width)
        key = attention.k_proj.weight.view(keys, SIZE, width)
        value = attention.v_proj.weight.view(keys, SIZE, width)
        output = attention.o_proj.weight.view(width, heads, SIZE)
        key[:, UNTURNED, SUBJECT] = SHARPNESS * SIZE**0.5
        value[:, :N, NAME] = torch.eye(N)
        value[:, N:, NOISE] = torch.eye(N)
        for index in range(heads):
            head = Head(layer, index)
            if roles[head] == "irrelevant":
                output[NOWHERE, index] = torch.randn(2 * N, SIZE, generator=generator) / 4
            else:
                query[index, UNTURNED, ONE] = 1
                output[ANSWER, index, :N] = effects[head] * torch.eye(N)
    return module
