"""List and clear the models that are kept in the cache."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from headcount.errors import HeadcountError, did_you_mean
from headcount.system.bundled import MANIFEST, lock_path, models_dir

# NAME-VERSION-CONVERSION, or .NAME-VERSION-CONVERSION.RANDOM while it is being made
ENTRY = re.compile(r"(\.)?((.+)-[^-]+-\d+)(?(1)\.\w+)")


class CacheRow(NamedTuple):
    """One model in the cache."""

    name: str
    path: Path
    bytes: int
    last_used: float


def list_cache() -> list[CacheRow]:
    """The models in the cache, the one used last first; half-made ones count too."""
    return sorted(_rows(), key=lambda row: -row.last_used)


def clear_cache(name: str | None = None) -> int:
    """Delete the model `name`, or all, from the cache; return how many bytes that freed."""
    rows = list_cache()
    chosen = [row for row in rows if name in (None, row.name, row.path.name)]
    if name is not None and not chosen:
        known = sorted({row.name for row in rows})
        raise HeadcountError(
            f'The cache holds no model "{name}" (it holds: {", ".join(known) or "none"}).'
            f"{did_you_mean(name, known)}"
        )
    return sum(map(_remove, chosen))


def _rows() -> Iterator[CacheRow]:
    """What headcount made: folders with a manifest, or still without one under a hidden name."""
    for path in models_dir().iterdir() if models_dir().is_dir() else ():
        entry = ENTRY.fullmatch(path.name)
        if entry is None or path.is_symlink() or not path.is_dir():
            continue
        if not entry[1] and not (path / MANIFEST).is_file():
            continue
        size, used = 0, 0.0
        with contextlib.suppress(OSError):  # a half-made one may vanish as we look
            used = path.stat().st_mtime
            size = sum(inner.lstat().st_size for inner in path.rglob("*") if not inner.is_dir())
            used = (path / MANIFEST).stat().st_mtime
        yield CacheRow(entry[3], path, size, used)


def _remove(row: CacheRow) -> int:
    entry = ENTRY.fullmatch(row.path.name)
    # Only folders that stand directly in the cache are ever deleted, whatever a name looks like.
    if entry is None or row.path.resolve().parent != models_dir().resolve():
        raise HeadcountError(f"{row.path} is not in the cache folder, so it is not deleted.")
    try:
        # The lock of a half-made folder is that of the model it was to become.
        with FileLock(lock_path(row.path.with_name(entry[2])), timeout=0):
            shutil.rmtree(row.path)
    except Timeout as error:
        raise HeadcountError(
            f"Another process is fetching {row.name}: clear the cache when it has finished."
        ) from error
    except OSError as error:
        raise HeadcountError(f"Cannot delete {row.path} ({error.strerror or error}).") from error
    return row.bytes
