"""Two processes share out the heads of one model: the values are those of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from models.ranks import measure
from tiny import tiny_model
from toy import toy_tokenizer

from headcount import Store, wrap

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this torch has no gloo"
)


def two_ranks(path: Path, out: Path) -> list[dict[str, Any]]:
    """What both processes found."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = Path(__file__).with_name("ranks.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *words, str(script), str(path), str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def test_each_rank_gates_its_own_heads(tmp_path: Path) -> None:
    tiny_model("llama", num_hidden_layers=2).save_pretrained(tmp_path / "model")
    ranks = two_ranks(tmp_path / "model", tmp_path)
    model = wrap(tiny_model("llama", num_hidden_layers=2), toy_tokenizer())
    one = measure(model, None)
    texts, measured = one.pop("texts"), one.pop("measured")
    for number, found in enumerate(ranks):
        assert found["checks"] == [check.statement for check in model.proof.checks]
        assert [(s["heads"], s["rank"], s["ranks"]) for s in found["sites"]] == [(4, number, 2)] * 2
        for name, values in one.items():
            np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)
        assert found["texts"] == texts
        assert found["measured"] == measured
        assert found["weights"] == model.identity["weights"]  # so one process reuses the values
        assert len(found["refusals"]) == 6
        for said in found["refusals"]:
            assert "needs all heads in one process, and tensor parallelism shares" in said
    kept = []
    for number in (0, 1):
        with Store(tmp_path / f"store-{number}.sqlite") as store:
            kept.append(sum(summary.values for summary in store.summary()))
    assert kept[0] > 0
    assert kept[1] == 0  # the first rank keeps them


def test_heads_that_cannot_be_shared_out_are_refused(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1}
    tiny_model("llama", **sizes).save_pretrained(tmp_path / "model")
    for found in two_ranks(tmp_path / "model", tmp_path):
        assert found["refused"] == (
            "LlamaForCausalLM has 1 key/value head, which cannot be shared out equally over 2 "
            "processes: give torchrun a --nproc-per-node that divides them."
        )
