"""Make a finished result again from its own values: points, tables, verdicts and figures.

No model is loaded and nothing is measured. Whatever does not come from the values stays as it is:
tables of heads, scores, settings, and the notes of the run.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.figures.style import save_figure
from headcount.report.read import read_result
from headcount.studies import STUDIES, study_kind
from headcount.studies.verify import estimates_of
from headcount.system.files import safe_name, write_csv, write_json
from headcount.system.folders import RECORD
from headcount.value_table import MisfitError


def make_again(folder: str | Path) -> list[Path]:
    """Write points, tables, claims and figures of a result folder anew; return their paths."""
    folder, result = Path(folder), read_result(folder)
    draw = study_kind(result.study).draw if result.study in STUDIES else None
    if draw is None:
        known = [name for name in STUDIES if study_kind(name).draw]
        raise HeadcountError(
            f'A result of "{result.study}" cannot be made again from its values: that is possible '
            f"for {', '.join(known)}."
        )
    try:
        values, found = estimates_of(result, folder)
    except MisfitError as error:
        raise HeadcountError(f"{folder} does not fit together: {error}") from error
    figures, captions = draw(values, result.run["facts"], found, result.run["model"])
    paths = [path for name, figure in figures.items() for path in save_figure(figure, folder, name)]
    old = [name for name in result.run["figures"] if name not in figures]
    for name in old:  # drawn by an earlier version
        for suffix in ("png", "svg", "pdf"):
            (folder / f"{name}.{suffix}").unlink(missing_ok=True)
    tables = {title: f"{safe_name(title.lower())}.csv" for title in found.tables}
    paths.append(write_csv(folder / "curves.csv", found.rows))
    paths += [write_csv(folder / tables[title], rows) for title, rows in found.tables.items()]
    paths.append(write_json(folder / "claims.json", [asdict(claim) for claim in found.claims]))
    run = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    run["tables"] |= tables
    gone = {f"{name}.{suffix}" for name in old for suffix in ("png", "svg", "pdf")}
    written = {path.relative_to(folder).as_posix() for path in paths}
    run |= {
        "captions": captions,
        "figures": list(figures),
        "notes": list(dict.fromkeys([*found.notes, *run["notes"]])),
        "files": sorted({*run.get("files", ()), *written} - gone),
    }
    return [*paths, write_json(folder / RECORD, run)]
