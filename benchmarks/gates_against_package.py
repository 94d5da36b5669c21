"""Fit causal gates with headcount and with the published package, and compare gates and times.

    pip install nam-causal-head-gating
    python benchmarks/gates_against_package.py --json FILE

A small Llama with random weights is asked for what it says itself with a third of its heads off:
these interfere, and most others are needed. LoadedPrompts have one length. Both start from the same
logits, see the same batches and follow the same schedule, once as the paper prints it and once as
the package does by default. The package computes under autocast, which on a CPU means bfloat16;
it is run as it is, and with autocast off. Times are CPU time, which other programs disturb less.

Gates are compared, not roles: the package's taxonomy is inverted. It takes the masks of λ > 0 for
the *necessary* heads and calls a head that is open under λ < 0 but shut under λ > 0 interfering;
by the paper, what stays open although λ < 0 rewards shutting facilitates, and what stays shut
although λ > 0 rewards opening interferes.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import transformers
from causal_head_gating.core import trainer as package
from transformers import LlamaConfig, LlamaForCausalLM

from headcount.engine.measure.forward import measuring
from headcount.models.gate import gating
from headcount.models.model import Model, wrap
from headcount.rankings.causal_gates.passes import GatedPasses, LoadedPrompts, load_prompts
from headcount.rankings.causal_gates.schedule import Row, Schedule, first_logits, make_schedule
from headcount.rankings.causal_gates.training import State, fidelity, train
from headcount.tasks import Encoded, Example

STAGES = ("none", "positive", "negative")
VOCABULARY, PROMPT, TARGET = 211, 14, 2


def make_model(layers: int, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        initializer_range=0.25,  # so that heads matter
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


@torch.no_grad()
def make_sequences(model: Model, n: int, seed: int) -> torch.Tensor:
    """Random prompts, each followed by what the model says with a third of its heads off."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY, (n, PROMPT), generator=generator)
    gates = (torch.rand(1, model.layout.total, generator=generator) > 1 / 3).float()
    with gating(model.module, model.sites, gates):
        for _ in range(TARGET):
            said = model.module(input_ids=ids).logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, said], dim=1)
    return ids  # (examples, tokens)


def batch_orders(seeds: list[int], n: int, schedule: Schedule) -> list[np.ndarray]:
    stages = ([Row(seed, name) for seed in seeds] for name in ("free", "plus"))
    return [schedule.orders(rows, [n])[0] for rows in stages]


def ours(
    model: Model, prompts: LoadedPrompts, seeds: list[int], schedule: Schedule
) -> dict[str, np.ndarray]:
    """The gates at the end of each stage: (seeds, heads)."""
    free, pushed = batch_orders(seeds, len(prompts), schedule)
    run = GatedPasses(model, tokens=4096)
    heads, n = model.layout.total, len(seeds)
    with measuring(model):
        first = State.at([first_logits(seed, heads) for seed in seeds], model.device)
        train(first, schedule.free, fidelity(run, [prompts], [free]), np.zeros(n))
        both = State.at([*first.logits.numpy(), *first.logits.numpy()], model.device)
        signs = schedule.push * np.repeat([1.0, -1.0], n)
        twice = fidelity(run, [prompts], [np.concatenate([pushed, pushed])])
        train(both, schedule.pushed, twice, signs)
    gates = both.logits.sigmoid().numpy()
    return {
        "none": first.logits.sigmoid().numpy(),
        "positive": gates[:n],
        "negative": gates[n:],
    }


def theirs(
    module: LlamaForCausalLM, ids: torch.Tensor, seed: int, schedule: Schedule
) -> dict[str, np.ndarray]:
    """The package's gates at the end of each stage, for one seed: (heads,)."""
    masks = torch.zeros_like(ids, dtype=torch.bool)
    masks[:, PROMPT:] = True
    data = package.MaskedSequenceDataset(pad_token_id=0, input_ids=ids, loss_masks=masks)
    free, pushed = schedule.free, schedule.pushed
    fit = package.CHGTrainer(
        module,
        data,
        batch_size=schedule.batch,
        l1_weight=schedule.push,
        lr=free.lr,
        lr_end=free.lr_end,
        lr_reg=pushed.lr,
        lr_reg_end=pushed.lr_end,
        grad_norm=free.clip,
    )
    with torch.no_grad():
        start = first_logits(seed, fit.mask_logits.numel())
        fit.mask_logits.copy_(torch.from_numpy(start).view_as(fit.mask_logits))
    first, second = (order[0] for order in batch_orders([seed], len(ids), schedule))

    def batches() -> Iterator[dict[str, torch.Tensor]]:
        for places in (*first, *second, *second):
            yield {"input_ids": ids[places], "loss_masks": masks[places]}

    fit.iterator = batches()
    for _ in fit.fit(free.updates, pushed.updates, verbose=False):
        pass
    found = (fit.mask_logits, fit.mask_logits_pos, fit.mask_logits_neg)
    return {
        stage: logits.detach().sigmoid().flatten().numpy()
        for stage, logits in zip(STAGES, found, strict=True)
    }


@contextmanager
def autocast(on: bool) -> Iterator[None]:
    """Let the package compute in the model's own dtype, or as it is."""
    usual = torch.amp.autocast
    if not on:
        torch.amp.autocast = lambda device: usual(device, enabled=False)  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        torch.amp.autocast = usual  # type: ignore[misc]


def compare(
    variant: str,
    model: Model,
    ids: torch.Tensor,
    prompts: LoadedPrompts,
    options: argparse.Namespace,
    note: Callable[[dict[str, Any]], object],
) -> None:
    schedule = make_schedule(variant, options.updates, options.batch)
    seeds = list(range(options.seeds))
    begin = time.process_time()
    for seed in seeds:
        ours(model, prompts, [seed], schedule)
    one_by_one = (time.process_time() - begin) / len(seeds)
    begin = time.process_time()
    fitted = ours(model, prompts, seeds, schedule)
    together = time.process_time() - begin
    for with_autocast in (True, False):
        begin = time.process_time()
        with autocast(with_autocast):
            found = [theirs(model.module, ids, seed, schedule) for seed in seeds]  # type: ignore[arg-type]
        taken = (time.process_time() - begin) / len(seeds)
        for stage in STAGES:
            other = np.stack([one[stage] for one in found])
            pairs = list(zip(fitted[stage], other, strict=True))
            each = [float(np.corrcoef(a, b)[0, 1]) for a, b in pairs]
            whole = float(np.corrcoef(fitted[stage].ravel(), other.ravel())[0, 1])
            agree = float(((fitted[stage] >= 0.5) == (other >= 0.5)).mean())
            row = {
                "variant": variant,
                "autocast": with_autocast,
                "stage": stage,
                "correlation": whole,
                "lowest_of_seeds": min(each),
                "same_side_of_half": agree,
                "largest_difference": float(np.abs(fitted[stage] - other).max()),
                "spread": float(fitted[stage].std()),
                "package_cpu_s_per_seed": taken,
                "headcount_cpu_s_per_seed": one_by_one,
                "headcount_cpu_s_all_seeds": together,
            }
            note(row)
            print(
                f"{variant:10} autocast {'on ' if with_autocast else 'off'} {stage:9} "
                f"r = {whole:.5f} (lowest seed {min(each):.5f}), "
                f"{100 * agree:.1f} % on the same side of 0.5",
                flush=True,
            )
        print(
            f"{variant:10} CPU seconds a seed: package {taken:.2f}, headcount {one_by_one:.2f}; "
            f"all {len(seeds)} seeds side by side {together:.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    fit_both(options, rows.append)
    if options.json:
        facts = {
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "machine": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "settings": {k: v for k, v in vars(options).items() if k != "json"},
        }
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**facts, "rows": rows}, file, indent=1)


def fit_both(options: argparse.Namespace, note: Callable[[dict[str, Any]], object]) -> None:
    """Fit gates both ways; `note` gets each row as soon as it is there."""
    module = make_model(options.layers, seed=0)
    model = wrap(module, None, name="random Llama")
    ids = make_sequences(model, options.examples, seed=1)
    encoded = [
        Encoded(
            Example(str(i), "prompt", " target"), tuple(row[:PROMPT]), tuple(row[PROMPT:]), (), None
        )
        for i, row in enumerate(ids.tolist())
    ]
    prompts = load_prompts(model, encoded)
    for variant in ("published", "released"):
        compare(variant, model, ids, prompts, options, note)


if __name__ == "__main__":
    main()
