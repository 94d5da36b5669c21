"""Write the tables of findings on the pages of studies, from the committed results.

python scripts/write_findings.py           # writes docs/studies/*.md
python scripts/write_findings.py --check   # exit code 1 where a page does not fit its results

A table stands between two marks of a page: `<!-- finding NAME: written by
scripts/write_findings.py -->` and `<!-- end of finding -->`. Each NAME is a function here.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
PAGES = DOCS / "studies"
MARKED = re.compile(
    r"(<!-- finding (\S+): written by scripts/write_findings\.py -->).*?(<!-- end of finding -->)",
    re.DOTALL,
)
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


def page(path: Path) -> str:
    """The page with its tables."""

    def write(found: re.Match[str]) -> str:
        start, name, end = found.groups()
        if name not in TABLES:
            raise SystemExit(f"{path.name} asks for the finding {name}, which has no function.")
        return f"{start}\n\n{TABLES[name]()}\n\n{end}"

    return MARKED.sub(write, path.read_text(encoding="utf-8"))


def main(argv: Sequence[str] | None = None) -> int:
    """Write all pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args(argv)
    wrong = 0
    for path in sorted(PAGES.glob("*.md")):
        text = page(path)
        if text != path.read_text(encoding="utf-8"):
            wrong += 1
            print(f"{path.name} does not fit its results" if arguments.check else f"wrote {path}")
            if not arguments.check:
                path.write_text(text, encoding="utf-8")
    return int(arguments.check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
