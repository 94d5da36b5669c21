"""The one problem that all contestants solve: switch off heads, on the same prompts."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headcount import Head, HeadLayout, Task, make_task
from headcount.curves import default_counts
from headcount.models.bundled import BUNDLED, bundled_folder
from headcount.models.load import load_pretrained
from headcount.rankings.random_draws import draw_random
from headcount.tasks import Encoded, encode

MOST_SHOTS = 30
HeadSet = tuple[Head, ...]  # heads that are off together


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, prompts of one length with one target token each, and the heads to switch off.

    `ids` has the shape (prompts, tokens), `targets` (prompts,). The prompts begin with `prefix`
    equal tokens.
    """

    module: nn.Module
    tokenizer: Any
    task: Task
    ids: Tensor
    targets: Tensor
    heads: tuple[Head, ...]
    prefix: int

    def own_module(self) -> Any:
        """A model of the contestant's own: same weights in memory, separate modules and settings.

        Hooks, wrappers and attention kernels of one contestant so never slow down another.
        """
        shared = {id(parameter): parameter for parameter in self.module.parameters()}
        return copy.deepcopy(self.module, shared)

    def of_heads(self, heads: Sequence[Head]) -> Problem:
        """The same problem with these heads."""
        return replace(self, heads=tuple(heads))

    @property
    def layout(self) -> HeadLayout:
        """Where the heads are."""
        config: Any = self.module.config
        return HeadLayout((config.num_attention_heads,) * config.num_hidden_layers)

    @property
    def head_size(self) -> int:
        """The width of one head's slice in the input of an output projection."""
        config: Any = self.module.config
        return getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )


def make_problem(
    spec: str,
    *,
    prompts: int,
    heads: int | None = None,
    prefix: float | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    random_weights: bool = False,
) -> Problem:
    """Load the model, choose prompts of the most common length, and spread `heads` over the layers.

    With `prefix`, solved examples are put before all prompts until they share that part of their
    tokens.
    """
    module, tokenizer = _load(spec, device, dtype, random_weights)
    shots = make_task("ioi", tokenizer, n=MOST_SHOTS, seed=1)  # the prompts have seed 0
    count = 0
    encoded = equal_prompts(tokenizer, prompts, "")
    while prefix is not None and shared_start(encoded) < prefix * len(encoded[0].prompt):
        count += 1
        text = "".join(f"{shot.prompt}{shot.target}.\n" for shot in shots.examples[:count])
        encoded = equal_prompts(tokenizer, prompts, text)
    config: Any = module.config
    layout = HeadLayout((config.num_attention_heads,) * config.num_hidden_layers)
    return Problem(
        module,
        tokenizer,
        Task("ioi, equal lengths", 1, tuple(one.example for one in encoded)),
        torch.tensor([one.prompt for one in encoded], device=device),
        torch.tensor([one.target[0] for one in encoded], device=device),
        spread(layout, heads),
        shared_start(encoded),
    )


def spread(layout: HeadLayout, heads: int | None = None) -> tuple[Head, ...]:
    """So many heads, evenly spread over the layers; all unless given."""
    numbers = np.linspace(0, layout.total - 1, min(heads or layout.total, layout.total)).round()
    return tuple(layout.head(int(number)) for number in numbers)


def single_heads(heads: Sequence[Head]) -> list[HeadSet]:
    """Each head alone."""
    return [(head,) for head in heads]


def curve_sets(layout: HeadLayout, seeds: int) -> list[HeadSet]:
    """The head sets of a TopK curve with `seeds` random controls at each count.

    The order is a random one: how long a curve takes does not depend on who made the ranking.
    """
    order = np.random.default_rng(0).permutation(layout.total).tolist()
    sets: dict[HeadSet, None] = {}  # each once, as in a curve
    for count in default_counts(layout):
        top = order[:count]
        drawn = [draw_random(layout, count, outside=top, seed=seed) for seed in range(seeds)]
        for heads in (top, *drawn):
            sets[tuple(sorted(layout.head(int(number)) for number in heads))] = None
    return list(sets)


def shared_start(encoded: Sequence[Encoded]) -> int:
    """How many tokens all prompts begin with."""
    columns = zip(*(one.prompt for one in encoded), strict=True)
    different = (place for place, column in enumerate(columns) if len(set(column)) > 1)
    return next(different, len(encoded[0].prompt))


def _load(spec: str, device: str, dtype: str, random_weights: bool) -> tuple[Any, Any]:
    if not random_weights:
        # Not `load_model`: the proof of its head sites is headcount's own set-up.
        loaded = load_pretrained(spec, device=device, dtype=dtype)
        return loaded.model, loaded.tokenizer
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder = bundled_folder(spec) if spec in BUNDLED else spec
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder), dtype=getattr(torch, dtype)
        )
    module.to(device).eval().requires_grad_(False)
    return module, AutoTokenizer.from_pretrained(folder)


def equal_prompts(tokenizer: Any, count: int, text: str) -> list[Encoded]:
    """`count` IOI prompts behind `text`, all of the most common length."""
    n = 16 * count
    while True:
        task = make_task("ioi", tokenizer, n=n)
        examples = (replace(e, prompt=text + e.prompt, corrupted=None) for e in task)
        encoded = encode(replace(task, examples=tuple(examples)), tokenizer)
        lengths = Counter(len(one.prompt) for one in encoded if len(one.target) == 1)
        length, found = lengths.most_common(1)[0]
        if found >= count:
            fitting = (len(one.prompt) == length and len(one.target) == 1 for one in encoded)
            return [one for one, fits in zip(encoded, fitting, strict=True) if fits][:count]
        n *= 2
