"""What the tables of all findings share: reading committed results, writing cells."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


RESULTS = DOCS / "results"


# The models of the committed results: folder or name in the tables, and what pages call them.
MODELS = {
    "smollm2-135m-q4": "SmolLM2-135M (Q4_1)",
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M": "Qwen2.5-Coder-0.5B (Q4_K_M)",
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M": "Qwen2.5-Coder-1.5B (Q4_K_M)",
}


Row = Mapping[str, str]


TABLES: dict[str, Callable[[], str]] = {}


def table(name: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Register the function that writes the table NAME."""

    def register(function: Callable[[], str]) -> Callable[[], str]:
        TABLES[name] = function
        return function

    return register


def rows(path: str, **wanted: str) -> list[Row]:
    """The rows of a committed table (under docs/results) that have these entries."""
    data = (RESULTS / path).read_bytes()
    text = (gzip.decompress(data) if path.endswith(".gz") else data).decode()
    lines = csv.DictReader(text.splitlines())
    return [row for row in lines if wanted.items() <= row.items()]


def one(path: str, **wanted: str) -> Row:
    """The only such row."""
    found = rows(path, **wanted)
    if len(found) != 1:
        raise SystemExit(f"{len(found)} rows of {path} have {wanted}, not one.")
    return found[0]


def claims(folder: str) -> list[dict[str, Any]]:
    """The judged claims of a result."""
    found: list[dict[str, Any]] = json.loads((RESULTS / folder / "claims.json").read_text("utf-8"))
    return found


def interval(row: Mapping[str, Any], digits: int = 2, *, sign: str = "") -> str:
    """A value with its interval: 0.38 [0.25, 0.50]."""
    ends = [float(row[name]) + 0.0 for name in ("value", "low", "high")]
    value, low, high = (f"{end:{sign}.{digits}f}".replace("-", "−") for end in ends)
    return f"{value} [{low}, {high}]"


def markdown(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table of a page."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# masked-heads and heads-kept
FUNCTIONS = {
    "retrieval": "Retrieval",
    "knowledge-recall": "Knowledge Recall",
    "semantic": "Semantic Understanding",
    "syntactic": "Syntactic Understanding",
    "math": "Math Calculation",
    "inference": "Inference",
    "logical": "Logical Reasoning",
    "decision": "Decision-making",
}


KEPT_TASKS = {
    "greater-than": "Greater Than",
    "ioi": "IOI",
    "docstring": "Docstring",
    "ioi-long": "IOI Long",
}


DENSE, SPARSE = "smollm2-135m-q4", "sparse:smollm2-135m-q4"


# Model of heads-kept → its folder, and what the page calls it.
KEPT_MODELS = {
    DENSE: (DENSE, "SmolLM2-135M"),
    SPARSE: (DENSE, "its sparse version"),
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M": ("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M", "Qwen 0.5B"),
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M": ("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M", "Qwen 1.5B"),
}


def number(value: str | float, digits: int = 2) -> str:
    """A value of a table, with the minus sign of the pages."""
    return f"{float(value) + 0.0:.{digits}f}".replace("-", "−")


def masked(model: str, table_name: str, **wanted: str) -> list[Row]:
    """Rows about accuracy in a table of a result of masked-heads."""
    return rows(f"masked-heads/{model}/{table_name}.csv", metric="exact_match", **wanted)


def verdict(claim: Mapping[str, Any]) -> str:
    """A verdict with the measured value, the panel that decides, and what would be found."""
    if claim["measured"] is None:
        return f"*{claim['verdict']}*"
    ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
    text = f"*{claim['verdict']}*: {interval(ends)}"
    if decides := re.search(r"hold together: (.*)\.$", claim["reason"]):
        text += f", {decides[1]}"
        for model in sorted(KEPT_MODELS, key=len, reverse=True):
            text = text.replace(model, KEPT_MODELS[model][1])
    if claim["detectable"] is not None:
        text += f"; detectable {number(claim['detectable'])}"
    return text


def found_at_least(claim: Mapping[str, Any]) -> str:
    """How far beyond its margin a truth must lie to be found 8 times in 10, if undecided."""
    return "–" if claim["detectable"] is None else number(claim["detectable"])


def kept(model: str, name: str, **wanted: str) -> list[Row]:
    """Rows of a table of heads-kept that are about a model."""
    return rows(f"heads-kept/{KEPT_MODELS[model][0]}/{name}.csv", model=model, **wanted)


def fixed(value: Any, digits: int = 2, sign: str = "") -> str:
    """A number of a table, with a real minus."""
    return f"{float(value) + 0.0:{sign}.{digits}f}".replace("-", "−")


def span(row: Row, of: str = "", ends: str = "", digits: int = 2, scale: float = 1) -> str:
    """An interval whose columns have other names: VALUE, LOW, HIGH of a prefix."""
    low, high = (f"{ends or of} {end}".strip() for end in ("low", "high"))
    parts = {"value": row[of or "value"], "low": row[low], "high": row[high]}
    return interval({name: scale * float(part) for name, part in parts.items()}, digits)


def drawn(folder: str, model: str) -> str:
    """The head that is drawn."""
    return one(f"{folder}/choice-of-the-head.csv", model=model, chosen="yes")["head"]


def judged(claim: Mapping[str, Any], digits: int = 3) -> str:
    """A verdict with what was measured."""
    if claim["measured"] is None:
        return str(claim["verdict"])
    ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
    return f"{claim['verdict']}: {interval(ends, digits)}"


def named(row: Row, name: str, *, bold: bool = False) -> str:
    """The interval of this name in a row of a table of transfer."""
    ends = {"value": row[name], "low": row[f"{name} low"], "high": row[f"{name} high"]}
    return f"**{interval(ends)}**" if bold else interval(ends)
