"""docs/coming-from.md says what benchmarks/coming_from.py found, and headcount still finds it."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from real import bundled

from headcount import HeadLayout, evaluate
from headcount.rankings.random_draws import draw_random

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
measured = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="only a clone has these")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed() -> dict[str, Any]:
    path = ROOT / "benchmarks" / "results" / "coming-from.json"
    return json.loads(path.read_text(encoding="utf-8"))


@measured
def test_the_page_has_the_measured_differences_and_versions() -> None:
    found, page = committed(), (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    names = {"transformer_lens": "TransformerLens", "nnsight": "nnsight", "pyvene": "pyvene"}
    for row in found["apart"]:
        cells = [
            re.sub(r"e-0(\d)", lambda sign: "·10⁻" + "⁰¹²³⁴⁵⁶⁷⁸⁹"[int(sign[1])], f"{row[part]:.1e}")
            for part in ("one", "scores", "curve")
        ]
        name = f"{names[row['tool']]} {row['version']}"
        assert f"| {' | '.join([name, *cells])} |" in page
        assert max(row["one"], row["scores"], row["curve"]) < 1e-5
    versions = found["versions"]
    words = " ".join(page.split())
    assert f"transformers {versions['transformers']} and headcount {versions['headcount']}" in words
    assert f"{found['prompts']} prompts of one length" in words


@measured
@pytest.mark.real
def test_headcount_finds_the_committed_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADCOUNT_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    task, _ = load(ROOT / "benchmarks" / "coming_from.py").equal_task()
    snippets, expected = load(EXAMPLES / "coming_from.py"), committed()["headcount"]
    values = snippets.zero_one_head(bundled(), task)
    assert values.mean() == pytest.approx(expected["one"], abs=1e-3)
    best = {"best": snippets.rank_all_heads(bundled(), task).top(8)}
    (value,) = evaluate(bundled(), task, best, metric=snippets.METRIC).mean()
    assert value == pytest.approx(expected["curve"]["top 8"], abs=1e-3)


def test_the_random_heads_of_the_page_are_those_of_headcount() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 4))
    sets = load(EXAMPLES / "other_tools" / "plain.py").curve_sets(scores, [2], 2)
    numbers = {key: [4 * layer + head for layer, head in heads] for key, heads in sets.items()}
    best = np.argsort(-scores.flatten())[:2].tolist()
    assert numbers.pop(("top", 2, 0)) == best
    for (_, count, seed), drawn in numbers.items():
        expected = draw_random(HeadLayout((4, 4, 4)), count, outside=best, seed=seed)
        assert drawn == expected.tolist()
