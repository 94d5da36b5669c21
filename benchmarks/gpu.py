"""Time gated passes on one GPU, as a share of the card's own matrix-product rate.

    python benchmarks/gpu.py --shapes 135m 1b 8b

Models have random weights in the published shapes: times do not depend on the weights' values.
Shares count the matrix products that a pass needs (all layers at all tokens, logits where they are
computed, attention), over the time it takes, over the rate of a large bf16 product measured in the
same run.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable

import torch
import transformers
from shapes import SHAPES, random_model
from transformers import LlamaForCausalLM

from headcount.engine.measure.batch import Batch
from headcount.engine.measure.plan import Plan
from headcount.engine.measure.runner import Runner
from headcount.models.model import Model, wrap


def matmul_rate() -> float:
    """FLOP/s of an 8192³ bf16 product on random data."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / seconds(lambda: a @ b, repeats=10)


def seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """The median time of a run, after warming up."""
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return sorted(times)[len(times) // 2]


def flops(model: LlamaForCausalLM, rows: int, tokens: int, logits: int) -> float:
    """Of the matrix products of one pass with logits at `logits` positions of each row."""
    shape = model.config
    linear = sum(p.numel() for n, p in model.named_parameters() if "proj" in n)
    attention = 4 * tokens * shape.hidden_size * shape.num_hidden_layers / 2  # causal half
    head = shape.vocab_size * shape.hidden_size
    return rows * (tokens * (2 * linear + attention) + 2 * logits * head)


def naive(model: LlamaForCausalLM, ids: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """What one writes first: a hook on each projection, full logits."""
    handles, start = [], 0
    heads = model.config.num_attention_heads
    for layer in model.model.layers:
        g = gates[:, None, start : start + heads, None]
        start += heads

        def hook(_: torch.nn.Module, args: tuple, g: torch.Tensor = g) -> tuple:
            return ((args[0].unflatten(-1, (heads, -1)) * g).flatten(-2),)

        handles.append(layer.self_attn.o_proj.register_forward_pre_hook(hook))
    try:
        return model(input_ids=ids, use_cache=False).logits
    finally:
        for handle in handles:
            handle.remove()


def batch_of(ids: torch.Tensor) -> Batch:
    rows, tokens = ids.shape
    zero = torch.zeros(rows, 1, dtype=torch.long, device=ids.device)
    return Batch(tuple(range(rows)), ids, zero + tokens - 1, zero, zero[:, :0], zero[:, :0])


class GatedPass:
    """headcount's pass over rows that each have their own prompt and gates, from layer 0 on."""

    def __init__(self, model: Model, ids: torch.Tensor, plan: Plan) -> None:
        self.runner = Runner(model, batch_of(ids), plan, None)

    def __call__(self, gates: torch.Tensor) -> torch.Tensor:
        run = self.runner
        if run.graphs is None:
            return run._gated(run.rest, gates, 0, None)
        return run.graphs.run("pass", gates, lambda g: run._gated(run.rest, g, 0, None))


@torch.no_grad()
def passes(shape: str, rows: int, tokens: int, rate: float) -> list[dict]:
    """Whole gated passes: every head of every layer has a gate, another one in each row."""
    module = random_model(shape)
    model = wrap(module, None, name=shape)
    ids = torch.randint(0, 40_000, (rows, tokens), device="cuda")
    gates = torch.rand(rows, model.layout.total)
    gates16 = gates.to("cuda", torch.bfloat16)
    found = []

    def note(name: str, taken: float, logits: int, **more: float) -> None:
        share = flops(module, rows, tokens, logits) / taken / rate
        found.append({"shape": shape, "way": name, "ms": 1e3 * taken, "share": share, **more})
        print(f"{shape:5} {name:22} {1e3 * taken:8.2f} ms  {100 * share:5.1f} %", flush=True)

    few = slice(0, 8)
    exact = copy.deepcopy(module).float()
    truth = naive(exact, ids[few], gates16[few].float())[:, -1]
    del exact

    def error(logits: torch.Tensor) -> float:
        """The largest error against float32, relative to the largest logit."""
        return float((logits[few, -1].float() - truth).abs().max() / truth.abs().max())

    usual = error(naive(module, ids, gates16))
    taken = seconds(lambda: naive(module, ids, gates16))
    note("plain hooks", taken, tokens, error=usual)
    for name, compiled in (("headcount", False), ("headcount, compiled", True)):
        gated = GatedPass(model, ids, Plan(1 << 20, model.fast_paths, compile=compiled))
        begin = time.perf_counter()
        for _ in range(3):  # compile, capture, replay
            logits = gated(gates)
        if gated.runner.graphs is not None and gated.runner.graphs.failure is not None:
            print(f"not captured: {gated.runner.graphs.failure!r}"[:600])
        torch.cuda.synchronize()
        first = time.perf_counter() - begin
        assert error(logits) < 2 * usual, (name, error(logits), usual)
        taken = seconds(lambda gated=gated: gated(gates))
        note(name, taken, 1, first_pass_s=first, error=error(logits))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--shapes", nargs="+", default=[shape for shape in SHAPES if shape != "tiny"]
    )
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rate = matmul_rate()
    print(f"{torch.cuda.get_device_name()}: {rate / 1e12:.0f} TFLOP/s in a large bf16 product")
    rows: list[dict] = []
    for shape in arguments.shapes:
        rows += passes(shape, arguments.rows, arguments.tokens, rate)
        torch._dynamo.reset()  # shapes share code, which would be compiled for all of them at once
        torch.cuda.empty_cache()
    if arguments.json:
        with open(arguments.json, "w") as file:
            facts = {
                "device": torch.cuda.get_device_name(),
                "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
                "command": f"python {' '.join(sys.argv)}",
            }
            json.dump({**facts, "rate": rate, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
