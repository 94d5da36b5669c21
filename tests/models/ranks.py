"""What each process of a tensor-parallel model measures; `torchrun` starts this file.

torchrun --standalone --nproc-per-node 2 tests/models/ranks.py MODEL OUT
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, Model, Store, collect, evaluate, export, rank, wrap
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.read.attention import reading_attention
from headcount.engine.write.writing import Writing


def measure(model: Model, store: Path | None) -> dict[str, Any]:
    """Values under head sets that no other order of the heads could give, and all else."""
    task, total = toy_task(12), model.layout.total
    gates = np.concatenate([1 - np.eye(total), np.linspace(-1, 2, total)[None]])
    lab = Lab(store=store, progress=False)
    ways: list[dict[str, Any]] = [{"ablation": name} for name in ("zero", "mean", "corrupted")]
    found: dict[str, Any] = {
        str(way): evaluate(model, task, gates, metric="logprob", lab=lab, **way).values.tolist()
        for way in (*ways, {"positions": "last"})
    }
    found["texts"] = lab.write(
        Writing(model, task, HeadSets.of(gates, model.layout))
    ).texts.tolist()
    found["ranking"] = rank(model, task, "ablation", lab=lab).values.tolist()
    z = collect(model, [[5, 6, 7]], [[-1]], progress=False)
    return {**found, "outputs": [site.tolist() for site in z], "measured": lab.measured}


def refusals(model: Model) -> list[str]:
    """What is said of work that needs all heads in one process."""
    said, task, lab = [], toy_task(30), Lab(store=None, progress=False)
    for work in (
        lambda: rank(model, task, "attribution", lab=lab),
        lambda: reading_attention(model, lambda *_: None).__enter__(),
        lambda: evaluate(model, task, ["0.0"], ablation="streaming", lab=lab),
        lambda: rank(model, task, "facilitation", lab=lab),
        lambda: export(model, ["0.0"], "nowhere"),
        model.by_key_value_heads,
    ):
        try:
            work()
        except HeadcountError as error:
            said.append(str(error))
    return said


def main() -> None:
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    path, out = map(Path, sys.argv[1:])
    config = DistributedConfig(tp_plan="auto")
    module = AutoModelForCausalLM.from_pretrained(path, distributed_config=config).eval()
    found: dict[str, Any] = {}
    try:
        model = wrap(module, toy_tokenizer())
    except HeadcountError as error:
        found["refused"] = str(error)
    else:
        with Store(out / f"store-{dist.get_rank()}.sqlite") as store:
            found = measure(model, store)
        found["refusals"] = refusals(model)
        found["weights"], found["sites"] = model.identity["weights"], list(map(asdict, model.sites))
        found["checks"] = [check.statement for check in model.proof.checks if check.holds]
    (out / f"rank-{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
