"""Time gated passes on one GPU, as a share of the card's own matrix-product rate.

    python benchmarks/gpu.py --shapes 135m 1b 8b

Models have random weights in the published shapes: times do not depend on the weights' values.
Shares count the matrix products that a pass needs (all layers at all tokens, logits where they are
computed, attention), over the time it takes, over the rate of a large bf16 product measured in the
same run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from headcount.engine.batch import Batch
from headcount.engine.plan import PLAIN, Plan
from headcount.engine.runner import Runner
from headcount.models.model import Model, wrap

SHAPES = {
    "135m": dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                 num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True),
    "1b": dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
               num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True),
    "8b": dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
               num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False),
}  # fmt: skip


def random_model(shape: str) -> LlamaForCausalLM:
    torch.manual_seed(0)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = LlamaForCausalLM(LlamaConfig(**SHAPES[shape])).eval()
        finally:
            torch.set_default_dtype(torch.float32)
    return model.requires_grad_(False)


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
    config = model.config
    linear = sum(p.numel() for n, p in model.named_parameters() if "proj" in n)
    attention = 4 * tokens * config.hidden_size * config.num_hidden_layers / 2  # causal half
    head = config.vocab_size * config.hidden_size
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
    return Batch(tuple(range(rows)), ids, zero + tokens - 1, zero, zero[:, :0])


@torch.no_grad()
def passes(shape: str, rows: int, tokens: int, rate: float) -> list[dict]:
    """Whole gated passes: every head of every layer has a gate."""
    module = random_model(shape)
    model: Model = wrap(module, None, name=shape)
    ids = torch.randint(0, 40_000, (rows, tokens), device="cuda")
    gates = torch.rand(rows, model.layout.total, device="cuda")
    found = []

    def note(name: str, time_taken: float, logits: int) -> None:
        share = flops(module, rows, tokens, logits) / time_taken / rate
        found.append({"shape": shape, "way": name, "ms": 1e3 * time_taken, "share": share})
        print(f"{shape:5} {name:22} {1e3 * time_taken:8.2f} ms  {100 * share:5.1f} %", flush=True)

    note("naive hooks", seconds(lambda: naive(module, ids, gates.bfloat16())), tokens)
    expected = naive(module, ids, gates.bfloat16())[:, -1].float()
    plans = {
        "headcount": Plan(1 << 20, model.short_cuts, fold=True),
        "headcount, compiled": Plan(1 << 20, model.short_cuts, fold=True, compile=True),
    }
    for name, plan in plans.items():
        # One row of the batch for each head set: the gates differ from row to row, as in `naive`.
        runner = Runner(model, batch_of(ids[:1]), plan, None)
        runner.batch = batch_of(ids[:1])
        whole = _Whole(runner, ids)
        begin = time.perf_counter()
        got = whole(gates)[:, -1].float()
        first = time.perf_counter() - begin
        error = float((got - expected).abs().max() / expected.abs().max())
        assert error < 0.05, (name, error)
        note(name, seconds(lambda whole=whole: whole(gates)), 1)
        found[-1] |= {"first pass s": first, "difference": error}
    assert PLAIN == PLAIN
    return found


class _Whole:
    """A gated pass over rows of different prompts, from the first layer on."""

    def __init__(self, runner: Runner, ids: torch.Tensor) -> None:
        self.runner, self.ids = runner, ids
        self.stretch = runner.rest
        self.stretch.ids = ids
        runner.batch = batch_of(ids)

    def __call__(self, gates: torch.Tensor) -> torch.Tensor:
        return self.runner._gated(self.stretch, gates, 0, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rate = matmul_rate()
    print(f"{torch.cuda.get_device_name()}: {rate / 1e12:.0f} TFLOP/s in a large bf16 product")
    rows = []
    for shape in arguments.shapes:
        rows += passes(shape, arguments.rows, arguments.tokens, rate)
        torch.cuda.empty_cache()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"rate": rate, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
