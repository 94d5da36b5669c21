"""Write the tables of findings on the pages of studies, from the committed results.

python scripts/write_findings.py           # writes the pages of PAGES
python scripts/write_findings.py --check   # exit code 1 where a page does not fit its results

A table stands between two marks of a page: `<!-- finding NAME: written by
scripts/write_findings.py -->` and `<!-- end of finding -->`. Each NAME is a function in
scripts/findings.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from findings import TABLES
from findings.tables import DOCS

PAGES = [
    *(DOCS / "studies").glob("*.md"),
    DOCS / "rankings.md",
    DOCS / "cache-budget.md",
    DOCS / "lm-eval.md",
    DOCS / "head-lists.md",
]


MARKED = re.compile(
    r"(<!-- finding (\S+): written by scripts/write_findings\.py -->).*?(<!-- end of finding -->)",
    re.DOTALL,
)


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
    for path in sorted(PAGES):
        text = page(path)
        if text != path.read_text(encoding="utf-8"):
            wrong += 1
            print(f"{path.name} does not fit its results" if arguments.check else f"wrote {path}")
            if not arguments.check:
                path.write_text(text, encoding="utf-8")
    return int(arguments.check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
