"""Result folders written by hand: no model is needed to test how they are shown."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headcount.heads import HeadLayout, HeadScores
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.report.head_rows import head_rows

LAYOUT = HeadLayout((4, 4, 3))
NASTY = '<img src=x onerror=alert(1)> & "quoted" \'</script>'
VERSIONS = {"headcount": "0.0.1", "python": "3.11.0"}
DRAWING = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 60 20" width="60" height="20">
<style>line { stroke: #0072b2; }</style><line x1="0" y1="0" x2="60" y2="20" style="stroke-width:2"/>
</svg>"""
CLAIMS: list[dict[str, Any]] = [
    {
        "claim": "the top heads matter more",
        "published": "they do",
        "measured": -0.25,
        "low": -0.3,
        "high": -0.2,
        "verdict": "supported",
    },
    {
        "claim": f"names are shown as they are: {NASTY}",
        "published": None,
        "measured": 0.125,
        "low": None,
        "high": None,
        "verdict": "undecided",
    },
    {
        "claim": "random heads are harmless",
        "published": "nearly flat",
        "measured": 0.5,
        "low": 0.4,
        "high": 0.6,
        "verdict": "refuted",
    },
]
# To be sorted by number, not by text; one is not known.
VALUES = (9.0, 10.0, -1.0, 0.0005, float("nan"), 100.0)


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def attribution() -> HeadScores:
    """Head 1.2 is the best, 2.0 the worst; each has two samples."""
    values = np.array([0.1, 0.05, 0, -0.02, 0.3, 0.2, 0.9, 0.01, -0.5, 0.02, 0.03])
    samples = np.stack([values - 0.01, values + 0.01])
    return HeadScores(LAYOUT, values, "attribution", {"metric": "logprob"}, samples)


def patching() -> HeadScores:
    """Head 0.3 matters most when it is really taken out."""
    values = np.array([0.0, 0.1, 0.2, 2.5, 0.0, 0.0, 1.25, 0.0, -0.75, 0.0, 0.0])
    parameters = {"metric": "logit_difference", "ablation": "corrupted"}
    return HeadScores(LAYOUT, values, "patching", parameters)


def gates() -> CausalGates:
    plus = np.full((2, 11), 0.9)
    minus = np.full((2, 11), 0.1)
    minus[:, 6] = 0.95  # 1.2 facilitates
    plus[:, 8] = 0.1  # 2.0 interferes
    return CausalGates(LAYOUT, plus, minus)


def write_sample(folder: Path, study: str = "masked-heads", model: str = "tiny") -> Path:
    """A folder as a study leaves it, with two tasks, of which one has roles."""
    folder.mkdir(parents=True)
    rows = head_rows(model, "ioi", {"attribution": attribution(), "patching": patching()})
    roles = {role: gates().ranking(role) for role in ROLES}
    rows += head_rows(model, "syntax", roles, roles=gates().labels())
    write_table(folder / "heads.csv", rows)
    points = [
        {"model": model, "series": f"row {i}", "value": value} for i, value in enumerate(VALUES)
    ]
    write_table(folder / "curves.csv", points)
    write_table(folder / "agreed.csv", [{"one": NASTY, "share": 0.5}])
    (folder / "figure.svg").write_text(DRAWING)
    (folder / "claims.json").write_text(json.dumps(CLAIMS))
    command = "curve" if study == "curve" else f"run {study}"
    run = {
        "study": study,
        "title": f"{study} · {model}",
        "command": f"headcount {command} --model {model!r} --out out/x",
        "settings": {"n": 12, "task": {"shots": 2}, "note": NASTY},
        "model": {model: {"heads": list(LAYOUT.counts), "weights": "abc"}},
        "notes": [f"A note on {NASTY}"],
        "figures": ["figure"],
        "tables": {"Agreed": "agreed.csv"},
        "versions": VERSIONS,
    }
    (folder / "run.json").write_text(json.dumps(run))
    return folder
