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
from contextlib import ExitStack

import torch
import transformers
from shapes import SHAPES, random_model
from transformers import LlamaForCausalLM

from headcount.engine.batch import Batch
from headcount.engine.decode import generate
from headcount.engine.plan import Plan
from headcount.engine.runner import Runner, chunks
from headcount.models.model import Model, wrap
from headcount.models.trunk import instead


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
    return Batch(tuple(range(rows)), ids, zero + tokens - 1, zero, zero[:, :0])


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
    note("naive hooks", taken, tokens, error=usual)
    for name, compiled in (("headcount", False), ("headcount, compiled", True)):
        gated = GatedPass(model, ids, Plan(1 << 20, model.short_cuts, compile=compiled))
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


@torch.no_grad()
def sweep(shape: str, rows: int, tokens: int) -> list[dict]:
    """All single heads off, one after the other, on a few prompts: three ways."""
    module = random_model(shape)
    model = wrap(module, None, name=shape)
    ids = torch.randint(0, 40_000, (rows, tokens), device="cuda")
    target = torch.randint(0, 40_000, (rows,), device="cuda")
    sets = 1 - torch.eye(model.layout.total)
    places = list(model.layout)

    def logprob(logits: torch.Tensor) -> torch.Tensor:
        last = logits[:, -1].float()
        return last.gather(1, target[:, None])[:, 0] - last.logsumexp(-1)

    def plain() -> torch.Tensor:
        on_card = sets.to("cuda", torch.bfloat16)
        return torch.stack([logprob(naive(module, ids, g[None])) for g in on_card])

    def expert() -> torch.Tensor:
        """Layer inputs saved once, earlier layers skipped, one logit per row, one hook."""
        inputs: dict[int, torch.Tensor] = {}
        layers = module.model.layers
        handles = [
            layer.register_forward_pre_hook(
                lambda _, args, kwargs, i=i: inputs.update(
                    {i: args[0] if args else kwargs["hidden_states"]}
                ),
                with_kwargs=True,
            )
            for i, layer in enumerate(layers)
        ]
        module(input_ids=ids, use_cache=False, logits_to_keep=1)
        for handle in handles:
            handle.remove()
        size = module.config.hidden_size // module.config.num_attention_heads
        values = []
        for head in places:
            start, stop = head.index * size, (head.index + 1) * size

            def off(_: torch.nn.Module, args: tuple, start: int = start, stop: int = stop) -> tuple:
                z = args[0].clone()
                z[..., start:stop] = 0
                return (z,)

            with ExitStack() as stack:
                for layer in layers[: head.layer]:
                    stack.enter_context(instead(layer, lambda *a, x=inputs[head.layer], **k: x))
                hook = layers[head.layer].self_attn.o_proj.register_forward_pre_hook(off)
                stack.callback(hook.remove)
                values.append(
                    logprob(module(input_ids=ids, use_cache=False, logits_to_keep=1).logits)
                )
        return torch.stack(values)

    def ours(compiled: bool) -> torch.Tensor:
        plan = Plan(32_768, model.short_cuts, fold=True, compile=compiled)
        runner = Runner(model, batch_of(ids), plan, None)
        runner.whole()
        values = torch.empty(len(sets), rows, device="cuda")
        starts = [head.layer for head in places]
        most = max(1, plan.tokens // ids.numel())
        for chosen, start in chunks(starts, most, len(model.sites)):
            logits = runner.under(sets[chosen], start).logits
            tall = target.repeat(len(chosen))
            last = logits[:, -1].float()
            got = last.gather(1, tall[:, None])[:, 0] - last.logsumexp(-1)
            values[torch.tensor(chosen, device="cuda")] = got.view(len(chosen), rows)
        return values

    ways = {"plain loop": plain, "expert loop": expert, "headcount": lambda: ours(False)}
    expected = plain()
    found: list[dict] = []
    assert float(expected.std(0).max()) > 0, "no head has any effect"
    for name, way in ways.items():
        error = float((way() - expected).abs().max())
        torch.cuda.synchronize()
        begin = time.perf_counter()
        way()
        torch.cuda.synchronize()
        taken = time.perf_counter() - begin
        found.append({"shape": shape, "sweep": name, "s": taken, "difference": error})
        ratio = taken / found[0]["s"]
        print(f"{shape:5} sweep, {name:14} {taken:8.3f} s  {ratio:5.3f}  ±{error:.0e}", flush=True)
    return found


class NoText:
    """Stands where a tokenizer would: only ids matter here."""

    eos_token_id = None

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: list[int], **_: object) -> str:
        return str(len(ids))


@torch.no_grad()
def decoding(shape: str, rows: int = 64, tokens: int = 32, new: int = 128) -> list[dict]:
    """Greedy decoding by plain `generate`, and by headcount with a gate on every layer."""
    module = random_model(shape)
    module.generation_config.eos_token_id = None
    model = wrap(module, NoText(), name=shape)
    ids = torch.randint(0, 40_000, (rows, tokens), device="cuda")
    prompts = ids.tolist()
    gates = torch.rand(rows, model.layout.total).numpy()
    settings = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}

    def whole() -> object:
        mask = torch.ones_like(ids)
        return module.generate(ids, attention_mask=mask, pad_token_id=0, **settings)

    def gated() -> object:
        return generate(model, prompts, gates, max_new_tokens=new, progress=False)

    same = [g.ids for g in generate(model, prompts, max_new_tokens=new, progress=False)]
    equal = sum(a == tuple(b[tokens:]) for a, b in zip(same, whole().tolist(), strict=True))  # type: ignore[attr-defined]
    print(f"{shape:5} decoding without gates: {equal} of {rows} texts equal plain generate's")
    found = []
    for name, way in (("plain generate", whole), ("headcount, gated", gated)):
        taken = seconds(way, repeats=3)
        found.append({"shape": shape, "decoding": name, "s": taken})
        print(f"{shape:5} decoding, {name:18} {taken:7.3f} s  {taken / found[0]['s']:5.3f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--shapes", nargs="+", default=[shape for shape in SHAPES if shape != "tiny"]
    )
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--sweeps", nargs="*", default=["135m"])
    parser.add_argument("--decoding", nargs="*", default=["135m"])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rate = matmul_rate()
    print(f"{torch.cuda.get_device_name()}: {rate / 1e12:.0f} TFLOP/s in a large bf16 product")
    rows: list[dict] = []
    for shape in arguments.shapes:
        rows += passes(shape, arguments.rows, arguments.tokens, rate)
        torch._dynamo.reset()  # shapes share code, which would be compiled for all of them at once
        torch.cuda.empty_cache()
    for shape in arguments.sweeps:
        rows += sweep(shape, 32, 18)
        torch.cuda.empty_cache()
    for shape in arguments.decoding:
        rows += decoding(shape)
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
