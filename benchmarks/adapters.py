"""Head sets as LoRA adapters against gates: how equal, how large, and how fast in one batch.

    python benchmarks/adapters.py                                   # a few minutes on one core
    python benchmarks/adapters.py --model MODEL.gguf --name "..." --prompts 4 --rows 0 \\
        --json benchmarks/results/adapters-1.5b.json

PEFT applies the adapters. In the batch that is timed each row has a head set of its own: PEFT takes
`adapter_names`, headcount a row of gates. All ways take turns in one process.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import describe_machine, describe_versions
from peft import PeftModel

from headcount import Model, export_adapters, load_model, make_task
from headcount.models.gate import gating
from headcount.tasks import Encoded, encode

RESULTS = Path(__file__).parent / "results" / "adapters.json"
TOKENS = (32, 1)  # in each row of the batches that are timed: a short prompt, a step of decoding
KINDS = (("1 head off", 1, 0.0), ("6 heads off", 6, 0.0), ("24 heads × 0.5", 24, 0.5))


def head_sets(model: Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Random heads, some off and some damped."""
    generator, total = np.random.default_rng(seed), model.layout.total
    sets = {}
    for name, count, gate in KINDS:
        sets[name] = np.ones(total, dtype=np.float32)
        sets[name][generator.choice(total, count, replace=False)] = gate
    return sets


def shared_copy(module: Any) -> Any:
    """A copy with the same tensors: PEFT changes the modules of the model that it is given."""
    return copy.deepcopy(module, {id(p): p for p in (*module.parameters(), *module.buffers())})


@torch.no_grad()
def scores(module: Any, prompts: list[Encoded]) -> tuple[list[torch.Tensor], np.ndarray]:
    """The logits of each prompt, and the log-probability of its answer."""
    logits, values = [], []
    for prompt in prompts:
        ids = torch.tensor([[*prompt.prompt, *prompt.target]])
        found = module(input_ids=ids, use_cache=False).logits[0].float()
        start = len(prompt.prompt) - 1
        steps = found[start:-1].log_softmax(-1)
        values.append(float(steps.gather(-1, ids[0, start + 1 :, None]).sum()))
        logits.append(found)
    return logits, np.array(values)


def equality(
    model: Model, prompts: list[Encoded], folder: Path, reference: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """How far adapters are from gates, and both from gates in float32."""
    made = export_adapters(model, sets := head_sets(model), folder)
    rows = []
    for (name, gates), adapter in zip(sets.items(), made.adapters.values(), strict=True):
        with gating(model.module, model.sites, torch.from_numpy(gates)[None]):
            logits, values = scores(model.module, prompts)
        loaded = PeftModel.from_pretrained(shared_copy(model.module), str(folder / adapter.name))
        others, adapted = scores(loaded, prompts)
        apart = max(
            float((a - b).abs().max() / b.abs().max()) for a, b in zip(others, logits, strict=True)
        )
        reference.setdefault(name, values)  # the first precision is float32
        rows.append(
            {
                "head set": name,
                "dtype": str(model.dtype).removeprefix("torch."),
                "rank": adapter.rank,
                "bytes": sum(file.stat().st_size for file in (folder / adapter.name).iterdir()),
                "logits": apart,
                "logprob": float(np.abs(adapted - values).max()),
                "adapter mean": float(np.abs(adapted - reference[name]).mean()),
                "gates mean": float(np.abs(values - reference[name]).mean()),
            }
        )
        print(rows[-1], flush=True)
    return rows


@torch.no_grad()
def speed(model: Model, folder: Path, rows: int, rounds: int) -> list[dict[str, Any]]:
    """CPU seconds of batches in which each row has a head set, as adapters and as gates."""
    generator = np.random.default_rng(1)
    sets = {}
    for number in range(rows):
        off = generator.choice(model.layout.total, 6, replace=False)
        sets[f"row-{number}"] = np.where(np.isin(np.arange(model.layout.total), off), 0, 1)
    made = export_adapters(model, sets, folder)
    names = [*sets]
    loaded = PeftModel.from_pretrained(shared_copy(model.module), str(folder / names[0]), names[0])
    for name in names[1:]:
        loaded.load_adapter(str(folder / name), adapter_name=name)
    loaded.eval()
    loaded.set_adapter(names[0])
    gates = torch.tensor(np.stack([*sets.values()]), dtype=torch.float32)
    return [
        _timed(model, loaded, names, gates, tokens, rounds) | {"rank": made.rank}
        for tokens in TOKENS
    ]


@torch.no_grad()
def _timed(
    model: Model, loaded: Any, names: list[str], gates: torch.Tensor, tokens: int, rounds: int
) -> dict[str, Any]:
    """The median time of each way, in turns."""
    ids = torch.arange(len(gates) * tokens).view(len(gates), tokens) % 1000 + 100
    plain = {"input_ids": ids, "use_cache": False}

    def gated(some: torch.Tensor) -> torch.Tensor:
        with gating(model.module, model.sites, some):
            return model.module(**plain).logits

    ways = {
        "no head off": lambda: model.module(**plain).logits,
        "gates, one head set": lambda: gated(gates[:1]),
        "gates, one for each row": lambda: gated(gates),
        "PEFT, one adapter": lambda: loaded(**plain).logits,
        "PEFT, one for each row": lambda: loaded(**plain, adapter_names=names).logits,
    }
    apart = (ways["PEFT, one for each row"]() - ways["gates, one for each row"]()).abs().max()
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds if tokens > 1 else 3 * rounds):
        for way, run in ways.items():
            begin = time.process_time()
            run()
            times[way].append(time.process_time() - begin)
    return {
        "rows": len(gates),
        "tokens": tokens,
        "rounds": len(times["no head off"]),
        "apart": float(apart),
        "cpu seconds": {way: statistics.median(some) for way, some in times.items()},
    }


def main() -> None:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2-135m-q4")
    parser.add_argument("--name", help="of the model in the results")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rows", type=int, default=16, help="of the batch; 0 times nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    machine, rows, timed = describe_machine(), [], []
    reference: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as place:
        for dtype in options.dtypes:
            model = load_model(options.model, dtype=dtype, device="cpu")
            prompts = encode(make_task("ioi", model, n=options.prompts), model.tokenizer)
            rows += equality(model, prompts, Path(place) / dtype, reference)
            if options.rows and dtype == "float32":
                timed = speed(model, Path(place) / "rows", options.rows, options.rounds)
                print(timed, flush=True)
    facts = {
        "format": "headcount adapters against gates 1",
        "model": options.name or options.model,
        "prompts": options.prompts,
        "rows": rows,
        "speed": timed,
        "threads": torch.get_num_threads(),
        "machine": machine,
        "versions": describe_versions(["peft", "safetensors"]),
    }
    options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
