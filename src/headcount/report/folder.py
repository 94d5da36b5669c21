"""The one writer of result folders, for studies and single curves alike."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from headcount import __version__
from headcount.figures.style import save_figure
from headcount.report.page import write_page
from headcount.system.files import safe_name, write_csv, write_json

if TYPE_CHECKING:
    from headcount.report.study import Study


def write_folder(study: Study, folder: Path, *, command: str, asked: str, page: str) -> list[Path]:
    """Write all that a study has; returns the paths, the picture first and the page last.

    run.json comes after all that it speaks of, so that a folder that has one is whole. The page is
    made of the other files, and `headcount report` can make it again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("run.json", "heads.csv", "heads.csv.gz", "values.csv.gz"):
        (folder / name).unlink(missing_ok=True)
    paths = []
    for name, figure in study.figures.items():
        paths += save_figure(figure, folder, name)
    paths.append(write_csv(folder / "curves.csv", study.rows))
    names = {title: f"{safe_name(title.lower())}.csv" for title in study.tables}
    tables = {names[title]: rows for title, rows in study.tables.items()}
    for name, rows in {"heads.csv": study.heads, "values.csv.gz": study.values, **tables}.items():
        if rows:
            paths.append(write_csv(folder / name, rows))
    for name, scores in study.scores.items():
        *inside, last = map(safe_name, name.split("/"))
        scores.save(folder.joinpath("scores", *inside, f"{last}.json"))
    run = {
        "study": study.name,
        "title": study.title,
        "command": command,
        "asked": asked,
        "settings": dict(study.settings),
        "model": dict(study.model),
        "notes": list(study.notes),
        "figures": list(study.figures),
        "tables": names,
        "versions": versions(),
    }
    paths.append(write_json(folder / "claims.json", [asdict(claim) for claim in study.claims]))
    paths.append(write_json(folder / "run.json", run))
    paths.append(write_page([folder], folder / page))
    return paths


def versions() -> dict[str, str]:
    """The version of everything that may move a number in its last digits."""
    known = {"headcount": __version__, "python": platform.python_version()}
    for package in ("torch", "transformers", "numpy", "tokenizers"):
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            known[package] = "not installed"
    return known
