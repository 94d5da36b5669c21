"""Read a finished result back from its folder, to make a page of it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError

Rows = Sequence[Mapping[str, str]]
LARGE = 400_000  # bytes: of a larger SVG file, the page shows the PNG file instead
# The entries of run.json that a page needs, and their types.
RUN: dict[str, type] = {
    **dict.fromkeys(("study", "title", "command"), str),
    **dict.fromkeys(("settings", "model", "tables", "versions"), dict),
    **dict.fromkeys(("notes", "figures"), list),
}


@dataclass(frozen=True, eq=False)
class Result:
    """The files of a study or a curve; `folder` is relative to the folder of the page."""

    folder: str
    study: str
    title: str
    run: Mapping[str, Any]
    claims: Sequence[Mapping[str, Any]] = ()
    rows: Rows = ()
    heads: Rows = ()
    tables: Mapping[str, Rows] = field(default_factory=dict)
    figures: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)  # media type, file

    def file(self, name: str) -> str:
        """The path of a file of the result, relative to the page."""
        return name if self.folder == "." else f"{self.folder}/{name}"


def read_result(folder: str | Path, *, seen_from: str | Path | None = None) -> Result:
    """Read the folder that a study or a curve has written."""
    folder = Path(folder)
    run = _json(folder, "run.json")
    known = isinstance(run, dict) and {"study", "versions"} <= run.keys()
    if not known or not all(isinstance(run.setdefault(key, RUN[key]()), RUN[key]) for key in RUN):
        raise HeadcountError(f"{folder / 'run.json'} was not written by headcount: run it again.")
    claims = _json(folder, "claims.json") if (folder / "claims.json").exists() else []
    if not isinstance(claims, list) or not all(isinstance(claim, dict) for claim in claims):
        raise HeadcountError(f"{folder / 'claims.json'} is not a list of claims: run it again.")
    return Result(
        folder=_relative(folder, seen_from),
        study=run["study"],
        title=run["title"] or run["study"],
        run=run,
        claims=claims,
        rows=_csv(folder, "curves.csv"),
        heads=_csv(folder, "heads.csv"),
        tables={title: _csv(folder, name) for title, name in run["tables"].items()},
        figures={name: shown for name in run["figures"] if (shown := _picture(folder, name))},
    )


def find_results(folder: str | Path) -> list[Path]:
    """The folder itself if it holds a result, else all folders below it that hold one."""
    folder = Path(folder)
    if (folder / "run.json").exists():
        return [folder]
    results = sorted(path.parent for path in folder.rglob("run.json"))
    if not results:
        raise HeadcountError(
            f"There is no result in {folder}: name a folder that headcount run, curve or demo made."
        )
    return results


def _inside(folder: Path, name: object) -> Path:
    """The path of a file in the folder; a name or link that leads out of the folder is refused.

    The names come from run.json, which may come from a stranger, and the page shows these files.
    """
    path = folder / str(name)
    if path.name != name or path.resolve().parent != folder.resolve():
        raise HeadcountError(
            f"The run.json in {folder} names {name}, which is not a file inside it: remove that "
            "name, or put the file into the folder."
        )
    return path


def _picture(folder: Path, name: object) -> tuple[str, bytes] | None:
    """The SVG file, which is sharp in print, or the PNG file if the SVG file is large."""
    drawing, picture = _inside(folder, f"{name}.svg"), _inside(folder, f"{name}.png")
    if drawing.exists() and (drawing.stat().st_size <= LARGE or not picture.exists()):
        return "image/svg+xml", drawing.read_bytes()
    return ("image/png", picture.read_bytes()) if picture.exists() else None


def _json(folder: Path, name: str) -> Any:
    path = _inside(folder, name)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HeadcountError(f"There is no result in {folder}: it has no {name}.") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise HeadcountError(f"Cannot read {path}: {error}.") from error


def _csv(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table, which may be compressed: heads.csv or heads.csv.gz."""
    path, packed = _inside(folder, name), _inside(folder, f"{name}.gz")
    if not path.exists() and not packed.exists():
        return []
    try:
        data = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise HeadcountError(f"Cannot read {packed}: {error}.") from error
    csv.field_size_limit(10_000_000)
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"), newline="")))


def number(value: object) -> float | None:
    """The number in a cell of a table; None if the cell holds no number."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _relative(folder: Path, seen_from: str | Path | None) -> str:
    if seen_from is not None and folder.resolve().is_relative_to(Path(seen_from).resolve()):
        return folder.resolve().relative_to(Path(seen_from).resolve()).as_posix()
    return folder.as_posix()
