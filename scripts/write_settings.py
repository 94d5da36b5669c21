"""Write the table of settings on the page of each study, from the study's config.

python scripts/write_settings.py           # writes docs/studies/*.md
python scripts/write_settings.py --check   # exit code 1 where a page does not fit its config
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from headcount.cli.parser import default_text
from headcount.studies import PUBLISHED, STUDIES, study_config

PAGES = Path(__file__).parents[1] / "docs" / "studies"
START, END = "<!-- settings: written by scripts/write_settings.py -->", "<!-- end of settings -->"


def table(study: str) -> str:
    """Option, default, what the presets choose instead, and what it is for."""
    config = study_config(study)
    presets = {name: preset.settings for name, preset in STUDIES[study].presets.items()}
    lines = ["| option | default | presets | meaning |", "| --- | --- | --- | --- |"]
    for item in fields(config):
        if item.metadata.get("help") and not str(item.type).startswith("Mapping"):
            option = (item.metadata["option"] or item.name).replace("_", "-")
            shown, default = _presets(item.name, presets), default_text(item.default) or "–"
            lines.append(f"| `--{option}` | {default} | {shown} | {item.metadata['help']} |")
    return "\n".join(lines)


def _presets(name: str, presets: Mapping[str, Mapping[str, Any]]) -> str:
    chosen = {preset: some[name] for preset, some in presets.items() if name in some}
    return ", ".join(f"{preset}: {_text(value)}" for preset, value in chosen.items())


def _text(value: Any) -> str:
    if isinstance(value, tuple | list | range):
        many = list(map(str, value))
        return " ".join(many if len(many) < 9 else [*many[:3], "…", many[-1]])
    return str(value)


def page(study: str) -> str:
    """The page of a study with its table."""
    text = (PAGES / f"{study}.md").read_text(encoding="utf-8")
    written = f"{START}\n\n{table(study)}\n\n{END}"
    found, count = re.subn(
        f"{re.escape(START)}.*?{re.escape(END)}", lambda _: written, text, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"docs/studies/{study}.md has no place for its settings: {START}")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Write all pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args(argv)
    wrong = 0
    for study in PUBLISHED:
        path, text = PAGES / f"{study}.md", page(study)
        if text != path.read_text(encoding="utf-8"):
            wrong += 1
            print(f"{path.name} does not fit its config" if arguments.check else f"wrote {path}")
            if not arguments.check:
                path.write_text(text, encoding="utf-8")
    return int(arguments.check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
