"""A finished result, read back from its folder: what a page is made of."""

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
LARGE = 400_000  # bytes of a drawing, above which its picture is taken instead


@dataclass(frozen=True, eq=False)
class Result:
    """What a study, or a curve, has left in a folder; `folder` is relative to the page's."""

    folder: str
    study: str
    title: str
    run: Mapping[str, Any]
    claims: Sequence[Mapping[str, Any]] = ()
    rows: Rows = ()
    heads: Rows = ()
    tables: Mapping[str, Rows] = field(default_factory=dict)
    figures: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)  # media type, file


def read_result(folder: str | Path, *, seen_from: str | Path | None = None) -> Result:
    """Read a folder that a study or a curve has written."""
    folder = Path(folder)
    run = _json(folder / "run.json")
    if not isinstance(run, dict) or "versions" not in run:
        raise HeadcountError(f"{folder / 'run.json'} is not what a run of headcount leaves behind.")
    claims = _json(folder / "claims.json") if (folder / "claims.json").exists() else []
    figures = run.get("figures", sorted(p.stem for p in folder.glob("*.png")))
    study = str(run.get("study") or "curve")
    return Result(
        folder=_relative(folder, seen_from),
        study=study,
        title=str(run.get("title") or _title(study, run)),
        run=run,
        claims=claims,
        rows=_csv(folder / "curves.csv"),
        heads=_csv(folder / "heads.csv"),
        tables={title: _csv(folder / name) for title, name in _tables(folder, run).items()},
        figures={name: picture for name in figures if (picture := _picture(folder, name))},
    )


def find_results(folder: str | Path) -> list[Path]:
    """The folder itself where it holds a result, else those below it that do."""
    folder = Path(folder)
    if (folder / "run.json").exists():
        return [folder]
    found = sorted(path.parent for path in folder.rglob("run.json"))
    if not found:
        raise HeadcountError(
            f"There is no result in {folder}: name a folder that headcount run, curve or demo made."
        )
    return found


def models_of(run: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Each model's facts by its name; a run of one model has them at the top."""
    model = run.get("model", {})
    if isinstance(model.get("heads"), list) and "name" in model:
        return {str(model["name"]): model}
    return {str(name): facts for name, facts in model.items() if isinstance(facts, dict)}


def _title(study: str, run: Mapping[str, Any]) -> str:
    return f"{study} · {', '.join(models_of(run))}"


def _tables(folder: Path, run: Mapping[str, Any]) -> dict[str, str]:
    if "tables" in run:
        return dict(run["tables"])
    return {
        path.stem.replace("-", " ").capitalize(): path.name
        for path in sorted(folder.glob("*.csv"))
        if path.name not in ("curves.csv", "heads.csv")
    }


def _picture(folder: Path, name: str) -> tuple[str, bytes] | None:
    """The drawing, which is sharp in print, unless it is large; the picture else."""
    drawing, picture = folder / f"{name}.svg", folder / f"{name}.png"
    if drawing.exists() and (drawing.stat().st_size <= LARGE or not picture.exists()):
        return "image/svg+xml", drawing.read_bytes()
    return ("image/png", picture.read_bytes()) if picture.exists() else None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HeadcountError(
            f"There is no result in {path.parent}: it has no {path.name}."
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise HeadcountError(f"Cannot read {path}: {error}.") from error


def _csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table, which may be packed: heads.csv or heads.csv.gz."""
    packed = path.with_name(f"{path.name}.gz")
    if not path.exists() and not packed.exists():
        return []
    try:
        data = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise HeadcountError(f"Cannot read {packed}: {error}.") from error
    csv.field_size_limit(10_000_000)
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"), newline="")))


def _relative(folder: Path, seen_from: str | Path | None) -> str:
    if seen_from is not None and folder.resolve().is_relative_to(Path(seen_from).resolve()):
        return folder.resolve().relative_to(Path(seen_from).resolve()).as_posix()
    return folder.as_posix()
