"""Write the table of rates by which `--dry-run` tells how long other machines take.

    python benchmarks/devices.py           # writes src/headcount/engine/measure/devices.json
    python benchmarks/devices.py --check   # exit code 1 if the table does not fit the results

Every rate is computed from a committed file of `results`. What was not measured is not in the
table, and `--dry-run` says so. The time of writing is divided by the new tokens alone; forecasts
use this rate for the tokens of prompts as well, so they are upper bounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shapes import SHAPES

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TABLE = ROOT / "src" / "headcount" / "engine" / "measure" / "devices.json"
PASS_TOKENS = 512 * 32  # rows × tokens of the passes in gpu-passes.json, by the default options


def parameters(shape: str) -> int:
    """The number of parameters of a Llama of this shape."""
    vocabulary, width, inner, layers, heads, pairs, tied = SHAPES[shape]
    keys = 2 * width * pairs * (width // heads)
    block = 2 * width * width + keys + 3 * width * inner + 2 * width
    return vocabulary * width * (1 if tied else 2) + layers * block + width


def rates() -> Iterator[dict[str, Any]]:
    """All rates, one for each kind of work and size of a model."""

    def row(device: str, kind: str, shape: str, seconds: float, source: str) -> dict[str, Any]:
        about = {"device": device, "kind": kind, "parameters": parameters(shape)}
        return {**about, "seconds_per_token": float(f"{seconds:.3g}"), "source": source}

    for source, passes in _results("gpu-passes"):
        for one in passes["rows"]:
            kind = {"headcount": "passes", "headcount, compiled": "compiled"}.get(one["way"])
            if kind:
                seconds = one["ms"] / 1e3 / PASS_TOKENS
                yield row(passes["device"], kind, one["shape"], seconds, source)
    for source, fits in _results("fit-rate"):
        for one in fits["rows"]:
            device, seconds = fits["machine"]["accelerator"], one["seconds_per_token"]
            yield row(device, "gradients", one["shape"], seconds, source)
    written = set()
    for source, decoding in _results("decoding"):
        for run in decoding.get("runs", [decoding]):
            how, device = run["options"], run["machine"]["accelerator"]
            if how["shape"] and how["dtype"] == "bfloat16":
                seconds = run["ways"]["gated"]["ours_s"] / (how["prompts"] * how["new"])
                written.add((device, how["shape"]))
                yield row(device, "writing", how["shape"], seconds, source)
    for source, ledger in _results("gpu"):
        device = ledger["machine"]["accelerator"]
        for race in ledger["races"]:
            if race["part"] == "decoding" and (device, race["model"]) not in written:
                (ours,) = (one for one in race["rows"] if one["key"] == "headcount")
                seconds = min(ours["seconds"]) / (race["sets"] * race["prompts"] * race["new"])
                yield row(device, "writing", race["model"], seconds, source)


def _results(name: str) -> Iterator[tuple[str, Any]]:
    """The results of a benchmark by file: NAME.json, and of other cards NAME-h100.json, …"""
    for path in [RESULTS / f"{name}.json", *sorted(RESULTS.glob(f"{name}-h[0-9]*.json"))]:
        if path.exists():
            yield path.name, json.loads(path.read_text("utf-8"))


def text() -> str:
    """The table as it is written."""
    found = sorted(rates(), key=lambda row: (row["device"], row["kind"], row["parameters"]))
    lines = ",\n".join(f"  {json.dumps(row)}" for row in found)
    return f"[\n{lines}\n]\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    if parser.parse_args().check:
        return int(TABLE.read_text("utf-8") != text())
    TABLE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
