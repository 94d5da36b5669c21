"""Time the fit of causal gates on one GPU: one seed in a plain loop, and all seeds side by side.

    python benchmarks/gates.py --json FILE

Models have random weights in the published shapes: times do not depend on the weights' values. The
plain loop is what one writes first: a hook on each output projection, one row of gates, all logits,
torch's Adam, and the loss read after every update.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from shapes import random_model

from headcount.engine.measure.forward import measuring
from headcount.models.model import Model, wrap
from headcount.rankings.causal_gates.passes import GatedPasses, LoadedPrompts, load_prompts
from headcount.rankings.causal_gates.schedule import Stage, batch_order, first_logits
from headcount.rankings.causal_gates.training import State, fidelity, train
from headcount.tasks import Encoded, Example

EXAMPLES = 300
# Tasks by the lengths of their prompts and targets, in tokens: from, to.
KINDS = {
    "short, one length": ((18, 18), (1, 1)),
    "short, mixed lengths": ((12, 28), (1, 3)),
    "worked solutions": ((60, 120), (40, 100)),
}


def make_model(shape: str, dtype: torch.dtype) -> Model:
    device = "cpu" if shape == "tiny" else "cuda"  # tiny: to try this script without a GPU
    module = random_model(shape, device, dtype)
    return wrap(module, None, name=shape)


def make_prompts(model: Model, kind: str) -> LoadedPrompts:
    rng = np.random.default_rng(0)
    (least, most), (fewest, longest) = KINDS[kind]
    vocabulary = model.module.config.vocab_size

    def words(count: int) -> tuple[int, ...]:
        return tuple(rng.integers(3, vocabulary, count).tolist())

    some = Example("0", "made", " up")
    encoded = [
        Encoded(
            some,
            words(int(rng.integers(least, most + 1))),
            words(int(rng.integers(fewest, longest + 1))),
            (),
            None,
        )
        for _ in range(EXAMPLES)
    ]
    return load_prompts(model, encoded)


def wait(model: Model) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()


def peak(model: Model) -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if model.device.type == "cuda" else 0.0


def per_update(model: Model, updates: int, run: Callable[[int], object]) -> tuple[float, float]:
    """Seconds per update after warming up, and the peak memory in GiB."""
    run(3)
    wait(model)
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    run(updates)
    wait(model)
    return (time.perf_counter() - begin) / updates, peak(model)


def plain_loop(model: Model, prompts: LoadedPrompts, batch: int) -> Callable[[int], object]:
    """One seed, one sign; the batch is padded on the right and needs no mask."""
    module, heads = model.module, model.layout.counts[0]
    order = batch_order(0, 0, len(prompts), batch, 200)
    logits = torch.from_numpy(first_logits(0, model.layout.total)).to(model.device)
    logits.requires_grad_()
    adam = torch.optim.Adam([logits], lr=0.1)

    def hooked(gates: torch.Tensor, layer: int) -> Callable[..., object]:
        g = gates[layer * heads : (layer + 1) * heads, None].to(model.dtype)

        def hook(_: torch.nn.Module, args: tuple) -> tuple:
            return ((args[0].unflatten(-1, (heads, -1)) * g).flatten(-2),)

        return hook

    def run(updates: int) -> None:
        for update in range(updates):
            places = torch.from_numpy(order[update]).to(model.device)
            ids, scored = prompts.ids[places], prompts.scored[places]
            gates = logits.sigmoid()
            handles = [
                layer.self_attn.o_proj.register_forward_pre_hook(hooked(gates, number))
                for number, layer in enumerate(module.model.layers)
            ]
            out = module(input_ids=ids, use_cache=False).logits
            for handle in handles:
                handle.remove()
            out = out.gather(1, scored[..., None].expand(-1, -1, out.shape[-1]))
            losses = F.cross_entropy(
                out.float().flatten(0, 1), prompts.targets[places].flatten(), reduction="none"
            )
            loss = (losses.view_as(scored) * prompts.weights[places]).sum(-1).mean()
            loss = loss - 0.1 * logits.clamp(-4, 4).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            loss.item()

    return run


def folded(
    model: Model, prompts: LoadedPrompts, batch: int, rows: int, run: GatedPasses
) -> Callable[[int], object]:
    """So many rows side by side, two of each seed where there are more than ten."""
    seeds = [row % 10 for row in range(rows)]
    order = np.stack([batch_order(seed, 0, len(prompts), batch, 200) for seed in seeds])
    strength = np.where(np.arange(rows) < 10, 0.1, -0.1)
    starts = [first_logits(seed, model.layout.total) for seed in seeds]

    def updates(count: int) -> None:
        state = State.at(starts, model.device)
        stage = Stage(count, 0.5, 0.1)
        train(state, stage, fidelity(run, [prompts], [order]), strength)

    return updates


def speed(shape: str, dtype: torch.dtype, options: argparse.Namespace) -> list[dict]:
    model = make_model(shape, dtype)
    kind_of = str(dtype).removeprefix("torch.")
    found: list[dict] = []
    for kind in KINDS:
        prompts = make_prompts(model, kind)
        for batch in options.batches:
            seconds, memory = per_update(model, options.updates, plain_loop(model, prompts, batch))
            base = seconds

            def note(way: str, seconds: float, memory: float, **more: object) -> None:
                found.append(
                    {
                        "shape": shape,
                        "dtype": kind_of,
                        "kind": kind,  # noqa: B023
                        "batch": batch,  # noqa: B023
                        "way": way,
                        "ms": 1e3 * seconds,
                        "ratio": seconds / base,  # noqa: B023
                        "gib": memory,
                        **more,
                    }
                )
                print(
                    f"{shape:5} {kind_of:9} {kind:21} batch {batch:3} {way:38} "  # noqa: B023
                    f"{1e3 * seconds:8.1f} ms  {seconds / base:5.2f}  {memory:6.1f} GiB",  # noqa: B023
                    flush=True,
                )

            note("plain loop, one seed, one sign", seconds, memory)
            for compiled in (False, True) if options.compile else (False,):
                name = ", compiled" if compiled else ""
                times = {}
                for rows, way in ((1, "one row"), (10, "ten seeds"), (20, "ten seeds, both signs")):
                    run = GatedPasses(model, tokens=options.tokens, compiled=compiled)
                    with measuring(model):
                        work = folded(model, prompts, batch, rows, run)
                        times[rows], memory = per_update(model, options.updates, work)
                    note(way + name, times[rows], memory, tokens=run.tokens)
                found[-1]["fit_s"] = 500 * (times[10] + times[20])
                print(f"      a whole fit{name}: {found[-1]['fit_s']:.0f} s", flush=True)
    return found


def memory(shape: str, options: argparse.Namespace) -> list[dict]:
    """Peak memory of a large model by how much runs at once, and with blocks recomputed."""
    model = make_model(shape, torch.bfloat16)
    found = []
    weights = sum(p.numel() * p.element_size() for p in model.module.parameters()) / 2**30
    print(f"{shape:5} weights {weights:.1f} GiB")
    for kind in ("short, mixed lengths", "worked solutions"):
        prompts = make_prompts(model, kind)
        for tokens, recompute in ((1024, False), (4096, False), (4096, True), (None, False)):
            run = GatedPasses(model, tokens=tokens)
            run.recompute = recompute and run.may_recompute
            with measuring(model):
                work = folded(model, prompts, options.batches[0], 2, run)
                seconds, taken = per_update(model, 3, work)
            row = {
                "shape": shape,
                "kind": kind,
                "rows": 2,
                "batch": options.batches[0],
                "tokens": run.tokens,
                "recompute": run.recompute,
                "ms": 1e3 * seconds,
                "gib": taken,
                "weights_gib": weights,
            }
            found.append(row)
            print(
                f"{shape:5} {kind:21} {run.tokens:7} tokens at once"
                f"{', recomputed' if run.recompute else '':13} {1e3 * seconds:8.1f} ms  "
                f"{taken:6.1f} GiB",
                flush=True,
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shape", default="135m", help="tiny runs on a CPU")
    parser.add_argument("--large", default="8b", help="the shape whose memory is measured")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--batches", nargs="+", type=int, default=[32, 64])
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--tokens", type=int, help="at once: as many as fit unless given")
    parser.add_argument("--compile", action="store_true", help="also with compiled blocks")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows: list[dict] = []
    for dtype in options.dtypes:
        rows += speed(options.shape, getattr(torch, dtype), options)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    if options.large:
        rows += memory(options.large, options)
    if options.json:
        on_gpu = torch.cuda.is_available()
        facts = {
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "command": f"python {' '.join(sys.argv)}",
        }
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**facts, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
