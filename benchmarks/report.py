"""Write docs/benchmarks.md from the files that single_heads.py and gpu.py wrote with --json.

python benchmarks/report.py cpu.json prefix.json gpu.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from contestants import EXPERT, PLAIN

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
FORMAT = "headcount benchmark 1"
INTRODUCTION = """# Benchmarks

How long it takes to switch off single heads, one after the other, and to measure what each does to
the log-probability of the answer to IOI prompts. In each table all contestants ran in one process,
taking turns, on the same weights and prompts; times are medians. *Difference* is the largest one
from plain hooks in any log-probability: a contestant with other numbers would not be listed.
On a machine that does other work too, the time that a contestant waits for a processor is noise;
its own CPU time is not. *Set-up* is done once for each model and not counted in the times; for
headcount it is the proof of the head sites and of the short cuts. *Peak memory* is that of a
process of the contestant's own, weights and libraries included (on a GPU: of the tensors on it);
in brackets what the sweep added.

What is compared, and how to run it: [benchmarks/README.md](../benchmarks/README.md). This page is
written by `benchmarks/report.py`.
"""


def title(result: dict[str, Any]) -> str:
    """One line that tells this measurement from the others."""
    s = result["settings"]
    heads = f"all {s['heads']} heads" if s["heads"] == s["all_heads"] else f"{s['heads']} heads"
    tokens = f"{s['prompts']} prompts of {s['tokens']} tokens"
    if s["prefix_asked"]:
        tokens += f", of which the first {s['prefix']} are shared"
    cores = f"{s['threads']} CPU thread{'s' * (s['threads'] > 1)}"
    where = cores if s["device"] == "cpu" else result["machine"]["accelerator"]
    model = f"{s['model']}{' (random weights)' if s['random_weights'] else ''}"
    return f"{model}: {heads}, {tokens}; {s['dtype']}, {where}"


def table(result: dict[str, Any]) -> str:
    """The measurement as a Markdown table."""
    contestants = {one["key"]: one for one in result["contestants"]}
    seconds = {key: statistics.median(one["seconds"]) for key, one in contestants.items()}
    peaks = {key: one["peak_bytes"] for key, one in contestants.items() if one["peak_bytes"]}
    work = {key: statistics.median(one["cpu_seconds"]) for key, one in contestants.items()}
    header = [
        "",
        "seconds",
        "÷ plain",
        "CPU seconds",
        "÷ plain",
        "÷ expert",
        "difference",
        "set-up",
    ]
    header += ["peak memory", "÷ plain"]
    rows = [
        [
            one["name"],
            f"{seconds[key]:.2f}",
            _ratio(seconds, key, PLAIN),
            f"{work[key]:.2f}",
            _ratio(work, key, PLAIN),
            _ratio(work, key, EXPERT),
            f"{one['difference']:.0e}",
            f"{one['setup_seconds']:.1f} s",
            _megabytes(one),
            _ratio(peaks, key, PLAIN),
        ]
        for key, one in contestants.items()
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [" | ".join(_pad(cells, widths)) for cells in (header, rule, *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _pad(cells: list[str], widths: list[int]) -> list[str]:
    first, *others = zip(cells, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]


def _ratio(values: dict[str, float], key: str, reference: str) -> str:
    if key not in values or reference not in values:
        return "–"
    return f"{values[key] / values[reference]:.2f}"


def _megabytes(one: dict[str, Any]) -> str:
    if not one["peak_bytes"]:
        return "–"
    grown = one["peak_bytes"] - one["before_bytes"]
    return f"{one['peak_bytes'] / 1e6:.0f} MB (+{grown / 1e6:.0f})"


def section(result: dict[str, Any]) -> str:
    """A measurement with everything that is needed to repeat it."""
    m, s = result["machine"], result["settings"]
    machine = f"{m['processor']}, {m['cores']} cores, {m['memory_bytes'] / 2**30:.0f} GiB"
    if s["device"] != "cpu":
        machine = f"{m['accelerator']}; {machine}"
    facts = [
        f"Machine: {machine}; {m['system']}; load before the start {m['load_at_start']}",
        "Versions: " + ", ".join(f"{name} {v}" for name, v in result["versions"].items()),
        f"Measured on {result['date']}; torch threads: {s['threads']}; rounds: {s['repeats']}; "
        f"heads in the memory measurement: {s['memory_heads']}",
        f"Command: `{result['command']}`",
        *(f"Not measured: {name} ({why})" for name, why in result["missing"].items()),
    ]
    facts_text = "\n".join(f"- {fact}" for fact in facts)
    return f"## {title(result)}\n\n{table(result)}\n\n{facts_text}\n"


def gpu_section(result: dict[str, Any]) -> str:
    """What `gpu.py` measured: whole gated passes, sweeps and decoding on one GPU."""
    lines = [f"## On one {result['device']}", ""]
    rows = result["rows"]
    lines += [
        "Gated passes over 512 prompts × 32 tokens in bf16, every head of every row with a gate of",
        "its own. *Share* is that of the card's own rate in a large matrix product,",
        f"{result['rate'] / 1e12:.0f} TFLOP/s in the same run; *error* is the largest one of a",
        "logit against float32, relative to the largest logit. Plain hooks compute all logits,",
        "headcount those that are scored; each is credited with what it computes. Compiling is",
        "done where a sweep is long enough to repay it; without it a small model waits for Python.",
        "",
        "| shape | way | ms | share | error |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in (row for row in rows if "way" in row):
        numbers = f"{row['ms']:.1f} | {100 * row['share']:.0f} % | {row['error']:.3f}"
        lines.append(f"| {row['shape']} | {row['way']} | {numbers} |")
    lines += [
        "",
        "All single heads off, one after the other, on 32 prompts of 18 tokens. The expert loop is",
        "written by hand: layer inputs saved once, earlier layers skipped, one logit per prompt.",
        "*Difference* is the largest one from the plain loop in a log-probability, in bf16.",
        "",
        "| shape | way | s | ÷ plain | difference |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    plain: dict[str, float] = {}
    for row in (row for row in rows if "sweep" in row):
        plain.setdefault(row["shape"], row["s"])
        numbers = f"{row['s']:.2f} | {row['s'] / plain[row['shape']]:.3f} | {row['difference']:.0e}"
        lines.append(f"| {row['shape']} | {row['sweep']} | {numbers} |")
    lines += ["", "Greedy decoding, 64 prompts, 128 new tokens, bf16:", ""]
    lines += ["| shape | way | s |", "| --- | --- | ---: |"]
    lines += [
        f"| {row['shape']} | {row['decoding']} | {row['s']:.2f} |"
        for row in rows
        if "decoding" in row
    ]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines += ["", f"- Versions: {versions}", f"- Command: `{result['command']}`", ""]
    return "\n".join(lines)


def read(path: Path) -> dict[str, Any]:
    """Read one result file."""
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "rate" in result:
        return result
    if result.get("format") != FORMAT:
        raise SystemExit(f"{path} is not a result of single_heads.py: make it with --json.")
    return result


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, help="files that --json wrote")
    parser.add_argument("--out", type=Path, default=PAGE, help="default: docs/benchmarks.md")
    arguments = parser.parse_args()
    results = [read(path) for path in arguments.results]
    sections = [gpu_section(one) if "rate" in one else section(one) for one in results]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join([INTRODUCTION, *sections]), encoding="utf-8")
    print(f"Wrote {arguments.out}.")


if __name__ == "__main__":
    main()
