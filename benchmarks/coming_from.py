"""Do TransformerLens, nnsight, pyvene and headcount give the same numbers?

    python benchmarks/coming_from.py                   # some minutes on one core

Runs the snippets of docs/coming-from.md (those of docs/examples/coming_from.py and other_tools) on
the bundled model, kept as a folder, and prints how far each tool is from headcount. Each tool has a
process of its own, since some change torch or the model for everybody.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
RESULTS = ROOT / "benchmarks" / "results" / "coming-from.json"
TOOLS = {"transformer_lens": "transformer-lens", "nnsight": "nnsight", "pyvene": "pyvene"}
MODEL, PROMPTS, HEAD = "smollm2-135m-q4", 48, (20, 0)
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "other_tools")]


def equal_task() -> Any:
    """IOI prompts of one length, which the other tools can read as one batch without padding."""
    from problem import equal_prompts
    from transformers import AutoTokenizer

    from headcount import Task
    from headcount.models.bundled import bundled_folder

    tokenizer = AutoTokenizer.from_pretrained(bundled_folder(MODEL))
    encoded = equal_prompts(tokenizer, PROMPTS, "")
    return Task("ioi, equal lengths", 1, tuple(one.example for one in encoded)), tokenizer


def ours() -> dict[str, Any]:
    """The numbers of headcount."""
    import coming_from

    from headcount import load_model

    (task, _), model = equal_task(), load_model(MODEL)
    one = coming_from.zero_one_head(model, task)
    scores = coming_from.rank_all_heads(model, task)
    curve = coming_from.mask_more_and_more(model, task, scores)
    return {
        "one": one.mean().tolist(),
        "scores": scores.values.reshape(-1, model.layout.counts[0]).tolist(),
        "curve": {f"{p.series} {p.count}": p.value for p in curve.points},
    }


def theirs(tool: str) -> dict[str, Any]:
    """The numbers of one of the others."""
    import numpy as np
    import torch
    from plain import curve_sets

    from headcount.models.bundled import bundled_folder
    from headcount.tasks import encode

    task, tokenizer = equal_task()

    def batch(split: str) -> list[torch.Tensor]:
        encoded = encode(task.split(split), tokenizer)
        columns = [(e.prompt, e.target[0], e.foils[0][0]) for e in encoded]
        return [torch.tensor(column) for column in zip(*columns, strict=True)]

    way = import_module(f"{tool}_way")
    model, ranking, test = way.load(str(bundled_folder(MODEL))), batch("ranking"), batch("test")
    one = [way.without(model, heads, *test).mean().item() for heads in ([], [HEAD])]
    scores = np.asarray(way.rank_all_heads(model, *ranking), dtype=float)
    values: dict[str, list[float]] = {}
    for (series, count, _), heads in curve_sets(scores, [0, 1, 2, 4, 8, 16], 3).items():
        value = way.without(model, heads, *test).mean().item()
        values.setdefault(f"{series} {count}", []).append(value)
    means = {label: sum(several) / len(several) for label, several in values.items()}
    return {"one": one, "scores": scores.tolist(), "curve": means}


def apart(ours: Any, theirs: Any) -> float:
    """The largest difference of two nested lists or tables of numbers."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        return max(apart(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list):
        return max(apart(one, other) for one, other in zip(ours, theirs, strict=True))
    return abs(ours - theirs)


def measure(tool: str, folder: str) -> dict[str, Any]:
    """Run one tool in a process of its own."""
    out = Path(folder) / tool
    command = [sys.executable, __file__, "--tool", tool, "--json", str(out)]
    settings = {"HF_HUB_OFFLINE": "1", "HEADCOUNT_STORE": str(Path(folder) / "store.sqlite")}
    subprocess.run(command, check=True, env=os.environ | settings)
    return json.loads(out.read_text(encoding="utf-8"))


def main() -> None:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tool", choices=["headcount", *TOOLS], help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.tool:
        numbers = ours() if options.tool == "headcount" else theirs(options.tool)
        options.json.write_text(json.dumps(numbers), encoding="utf-8")
        return
    from machine import describe_versions

    import headcount  # noqa: F401  so that its version is found, installed or not

    with tempfile.TemporaryDirectory() as folder:
        measured = {tool: measure(tool, folder) for tool in ("headcount", *TOOLS)}
    expected = measured["headcount"]
    rows = []
    for tool, distribution in TOOLS.items():
        differences = {part: apart(expected[part], measured[tool][part]) for part in expected}
        rows.append({"tool": tool, "version": version(distribution), **differences})
        print(f"{distribution} {version(distribution)}:", differences)
    found = {
        "model": MODEL,
        "prompts": PROMPTS,
        "versions": describe_versions(["headcount"]),
        "headcount": {part: expected[part] for part in ("one", "curve")},
        "apart": rows,
    }
    options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
