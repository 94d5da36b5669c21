"""What comes along with the package: causal gates and a sparse model, of the bundled model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from real import bundled

from headcount import evaluate, make_task
from headcount.engine.read.edges import open_edges
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.sparse.checkpoint import SHIPPED, read_facts
from headcount.studies.head_roles.config import Config
from headcount.studies.head_roles.gates import locate_gates, make_cells

SPARSE = SHIPPED / "smollm2-135m-q4"
FACTS = Path(__file__).parents[1] / "docs" / "results" / "sparsify" / "facts.json"
LICENCE = Path(__file__).parents[1] / "LICENSE"


def test_the_sparse_model_is_small_and_says_where_its_text_comes_from() -> None:
    sizes = [path.stat().st_size for path in SPARSE.iterdir()]
    assert max(sizes) <= 16 << 20
    assert sum(sizes) <= 20_000_000
    assert {path.suffix for path in SPARSE.iterdir()} == {".json", ".safetensors"}  # no logs
    facts = read_facts(SPARSE)
    assert facts.base == "smollm2-135m-q4"
    assert "CC BY-SA" in facts.text["licence"]
    assert "Wikipedia" in facts.text["source"]
    assert facts.training["constraint_met"]
    assert facts.training["open_edges"] < 0.02


def test_the_sparse_model_does_the_tasks_about_as_well_as_the_dense_one() -> None:
    facts = json.loads(FACTS.read_text())
    assert facts["sparse"] == "sparse:smollm2-135m-q4"
    for task in ("ioi", "greater-than", "docstring"):
        found = facts["tasks"][task]
        assert found["n"] >= 450
        assert found["accuracy"][1] >= found["accuracy"][0] - 0.05


@pytest.mark.real
def test_the_sparse_model_loads_by_name_keeps_few_edges_and_still_does_its_job() -> None:
    dense, sparse = bundled(), bundled("sparse:smollm2-135m-q4")
    assert sparse.layout == dense.layout
    text = " ".join(LICENCE.read_text().split())[1000:2200]  # some 250 tokens
    shares = open_edges(sparse, [text], progress=False)
    assert shares.shape == (270,)
    assert 0.01 < shares.mean() < 0.1
    task = make_task("ioi", dense.tokenizer, n=24).split("test")
    whole = np.ones((1, 270), dtype=np.float32)
    kept = evaluate(sparse, task, whole, metric="logit_difference").values
    assert (np.asarray(kept) > 0).mean() >= 0.9


@pytest.mark.real
def test_the_gates_serve_the_bundled_model_and_tell_heads_apart() -> None:
    config = Config()
    for cell in make_cells([bundled()], config):
        gates, notes = locate_gates(cell, config)
        assert notes == []  # a note says why some are not used
        assert isinstance(gates, CausalGates)
        assert gates.seeds == 10
        assert gates.parameters["batch"] == 64
        for role in ROLES:
            ranking = gates.ranking(role).values
            assert len(ranking) == 270
            assert np.ptp(ranking) > 0.5
