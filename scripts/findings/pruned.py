"""The tables of findings of pruned."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial

from findings.tables import RESULTS, Row, claims, interval, markdown, one, rows, span, table

# pruned
PRUNED = {
    "smollm2-135m-q4": "pruned/smollm2-135m-q4-quick",
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M": "pruned/Qwen2.5-Coder-1.5B-Instruct-Q4_K_M-quick",
}


KEPT_UNITS = {"groups": "key/value groups", "heads": "query heads of each group"}


def kept_words(row: Row, of: Mapping[tuple[str, str], str]) -> str:
    """What is kept, in words."""
    return f"{row['count']} of {of[row['kept'], row['count']]} {KEPT_UNITS[row['kept']]}"


def all_of(folder: str) -> dict[tuple[str, str], str]:
    """How many groups, or heads of a group, there are in all, by what is kept."""
    run = json.loads((RESULTS / folder / "run.json").read_text("utf-8"))
    return {(s["kept"], str(s["count"])): str(s["of"]) for s in run["facts"]["sizes"]}


def pruned_sizes(folder: str) -> str:
    """What each size saves, and how much faster it is."""
    of, body = all_of(folder), []
    for row in rows(f"{folder}/sizes.csv"):
        saved = [f"{100 * (1 - float(row[f'{what} share'])):.1f} %" for what in SAVED]
        faster = [span(row, what) for what in ("reading", "writing")]
        body.append([kept_words(row, of), *saved, *faster])
    header = ("parameters saved", "cache saved", "reading, times as fast", "writing")
    return markdown(("kept", *header), body)


SAVED = ("parameters", "cache_bytes")


def pruned_costs(folder: str, metric: str, task: str) -> str:
    """A mean under every head set of every size: the best heads and random ones."""
    of, body = all_of(folder), []
    whole = one(f"{folder}/curves.csv", task=task, metric=metric, series="whole")
    body.append(["all heads", interval(whole)])
    found = rows(f"{folder}/curves.csv", task=task, metric=metric)
    points = {(r["series"], r["treatment"], r["kept"], r["count"]): r for r in found}
    columns = list(dict.fromkeys(key[:2] for key in points if key[0] != "whole"))
    for size in rows(f"{folder}/sizes.csv"):
        place = size["kept"], size["count"]
        body.append([kept_words(size, of), *(interval(points[c + place]) for c in columns)])
    body[0] += ["" for _ in columns[1:]]
    return markdown(("kept", *(" ".join(column) for column in columns)), body)


def pruned_claims(folder: str) -> str:
    """Every claim with its verdict."""
    body = []
    for claim in claims(folder):
        words = claim["claim"].split(" (measured")[0]
        ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
        decides = re.search(r"hold together: (.*?)\.", claim["reason"])
        where = decides.group(1) if decides else "–"
        body.append([words, interval(ends), claim["verdict"], where])
    return markdown(("claim", "measured", "verdict", "what decides"), body)


for _name, _folder in PRUNED.items():
    _short = "pruned" if _name.startswith("smollm2") else "pruned-qwen"
    table(f"{_short}-sizes")(partial(pruned_sizes, _folder))
    table(f"{_short}-loss")(partial(pruned_costs, _folder, "loss", "text"))
    table(f"{_short}-accuracy")(partial(pruned_costs, _folder, "accuracy", "mean over tasks"))
    table(f"{_short}-claims")(partial(pruned_claims, _folder))
