"""Read a finished result back from its folder, to make a page of it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.system.files import checked_path, read_limited, why_not_json
from headcount.system.folders import READY, RECORD, UNFINISHED

HEAD_COLUMNS = ("model", "task", "layer", "head", "score", "value", "low", "high")
Rows = Sequence[Mapping[str, str]]
LARGE = 400_000  # bytes: of a larger SVG file, the page shows the PNG file instead
MOST_CELLS = 10_000_000  # of a table: more need gigabytes of memory
# The entries of run.json that a page needs, and their types.
RUN: dict[str, type] = {
    **dict.fromkeys(("study", "title", "command"), str),
    **dict.fromkeys(("settings", "model", "tables", "versions", "captions"), dict),
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
    """Read the folder that a study or a curve has written; nothing in it is changed."""
    folder = checked_path(folder)
    if os.path.lexists(folder / READY):
        raise HeadcountError(
            f"The files of {folder} are being replaced, or that was interrupted: run the command "
            "that makes them again."
        )
    run = _json(folder, RECORD)
    known = isinstance(run, dict) and {"study", "versions"} <= run.keys()
    known = known and all(isinstance(run.setdefault(key, RUN[key]()), RUN[key]) for key in RUN)
    if not known or not all(map(_is_model, run["model"].values())):
        raise HeadcountError(f"{folder / RECORD} was not written by headcount: run it again.")
    claims = _json(folder, "claims.json") if (folder / "claims.json").exists() else []
    if not isinstance(claims, list) or not all(map(_is_claim, claims)):
        raise HeadcountError(f"{folder / 'claims.json'} is not a list of claims: run it again.")
    heads = _csv(folder, "heads.csv")
    if not _are_heads(heads):
        raise HeadcountError(
            f"The table heads.csv in {folder} does not have each head once for each score: run it "
            "again."
        )
    return Result(
        folder=_relative(folder, seen_from),
        study=run["study"],
        title=run["title"] or run["study"],
        run=run,
        claims=claims,
        rows=_csv(folder, "curves.csv"),
        heads=heads,
        tables={title: _csv(folder, name) for title, name in run["tables"].items()},
        figures={name: shown for name in run["figures"] if (shown := _picture(folder, name))},
    )


def find_results(folder: str | Path) -> list[Path]:
    """The folder itself if it holds a result, else all folders below it that hold one."""
    folder = checked_path(folder)
    # A folder whose files were about to be replaced may have no record: reading it says so.
    paths = [*folder.rglob(RECORD), *folder.rglob(READY)]
    hidden = {READY, UNFINISHED}
    results = sorted({path.parent for path in paths if hidden.isdisjoint(path.parent.parts)})
    if folder in results:
        return [folder]
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
    if path.name != name or "\0" in path.name or path.resolve().parent != folder.resolve():
        raise HeadcountError(
            f"The run.json in {folder} names {name!r}, which is not a file inside it: remove that "
            "name, or put the file into the folder."
        )
    return path


def _picture(folder: Path, name: object) -> tuple[str, bytes] | None:
    """The SVG file, which is sharp in print, or the PNG file if the SVG file is large."""
    drawing, picture = _inside(folder, f"{name}.svg"), _inside(folder, f"{name}.png")
    if drawing.exists() and (drawing.stat().st_size <= LARGE or not picture.exists()):
        return "image/svg+xml", read_limited(drawing)
    return ("image/png", read_limited(picture)) if picture.exists() else None


def _json(folder: Path, name: str) -> Any:
    path = _inside(folder, name)
    try:
        return json.loads(read_limited(path).decode("utf-8"))
    except FileNotFoundError:
        raise HeadcountError(f"There is no result in {folder}: it has no {name}.") from None
    except (ValueError, RecursionError) as error:
        raise HeadcountError(
            f"Cannot read {path}: it is not JSON ({why_not_json(error)})."
        ) from error


def _is_model(facts: object) -> bool:
    """Whether these are the facts of a model; `heads` has the number of heads of each layer."""
    heads = facts.get("heads", []) if isinstance(facts, dict) else None
    return isinstance(heads, list) and all(type(count) is int for count in heads)


def _is_claim(claim: object) -> bool:
    words = ("claim", "verdict")
    return isinstance(claim, dict) and all(isinstance(claim.get(word), str) for word in words)


def _are_heads(rows: Rows) -> bool:
    """Whether a table has all its columns, and all heads of each model that it names.

    A number that is far too large would make a map of that many heads.
    """
    models: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for row in rows:
        if not all(row.get(column) is not None for column in HEAD_COLUMNS):
            return False
        layer, head = row["layer"], row["head"]
        if not (layer.isdecimal() and head.isdecimal() and len(layer + head) < 20):
            return False
        models[row["model"], row["task"]].add((int(layer), int(head)))
    for heads in models.values():
        most: dict[int, int] = defaultdict(int)
        for at, number in heads:
            most[at] = max(most[at], number + 1)
        if sum(most.values()) != len(heads) or max(most) + 1 != len(most):
            return False
    return True


def _csv(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table, which may be compressed: heads.csv or heads.csv.gz."""
    path, packed = _inside(folder, name), _inside(folder, f"{name}.gz")
    if not path.exists() and not packed.exists():
        return []
    path = path if path.exists() else packed
    csv.field_size_limit(10_000_000)
    rows, cells = [], 0
    try:
        text = io.StringIO(read_limited(path).decode("utf-8"), newline="")
        for row in csv.DictReader(text):
            if None in row:
                raise HeadcountError(
                    f"Cannot read {path}: a row has more cells than there are columns."
                )
            rows.append(row)
            cells += len(row)
            if cells > MOST_CELLS:
                raise HeadcountError(f"Cannot read {path}: it has more than {MOST_CELLS:,} cells.")
    except (EOFError, gzip.BadGzipFile, zlib.error, csv.Error, UnicodeDecodeError) as error:
        raise HeadcountError(
            f"Cannot read {path}: it is damaged, or not a table in UTF-8."
        ) from error
    return rows


def number(value: object) -> float | None:
    """The number in a cell of a table; None if the cell holds no number."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


def _relative(folder: Path, seen_from: str | Path | None) -> str:
    if seen_from is not None and folder.resolve().is_relative_to(Path(seen_from).resolve()):
        return folder.resolve().relative_to(Path(seen_from).resolve()).as_posix()
    return folder.as_posix()
