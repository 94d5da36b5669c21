"""Replace the files of a result folder all together or not at all; lock and check folders.

New files are first written into a hidden folder inside. When all of them are there, that folder is
renamed, and from then on the replacement is decided: its files are moved to their places, and a
process that is killed meanwhile leaves the rest to the next reader or writer (`finish_replacing`).
Files that headcount did not write are never touched.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.system.files import checked_path

UNFINISHED, READY = ".headcount-unfinished", ".headcount-ready"
RECORD = "run.json"  # its entry "files" names what was written with it; it is moved last


def check_place(path: str | Path, *, file: bool = False) -> Path:
    """The path of a folder (or `file`) to write later; OSError if nothing can be written there.

    It is tried in the nearest folder that exists, and leaves nothing behind.
    """
    path = checked_path(path)
    try:
        if file and path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        inside = path.absolute().parent if file else path.absolute()
        nearest = next(place for place in (inside, *inside.parents) if os.path.lexists(place))
        with tempfile.TemporaryDirectory(dir=nearest):
            return path
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextlib.contextmanager
def replacing_files(folder: str | Path) -> Iterator[Path]:
    """A folder to write to, whose files replace those of the same names in `folder` at the end.

    Files that RECORD names in `folder`, and that were not written again, are deleted. After an
    exception, such as that of a full disk, everything in `folder` is as before.
    """
    folder = checked_path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder):
        _move(folder)  # what a process that was killed has left
        new = folder / UNFINISHED
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            yield new
            for name in _files(new):
                if (folder / name).is_dir():
                    raise HeadcountError(
                        f"{folder / name} is a folder, and the result has a file of this name: "
                        "rename it, or choose another --out."
                    )
            new.rename(folder / READY)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        _move(folder)


def finish_replacing(folder: str | Path) -> None:
    """Complete a replacement that was decided, and then interrupted."""
    if (Path(folder) / READY).is_dir():
        with locked_folder(folder):
            _move(Path(folder))


@contextlib.contextmanager
def locked_folder(folder: str | Path, *, wait: bool = True) -> Iterator[None]:
    """Keep other processes out of a folder; without `wait`, BlockingIOError if one is there.

    The lock ends with the process and leaves no file behind. File systems and machines that cannot
    lock a folder, such as those of Windows, do without.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:
            pass  # some network file systems lock files alone
        yield
    finally:
        os.close(handle)


def _move(folder: Path) -> None:
    """Move the files of READY to their places."""
    ready = folder / READY
    if not ready.is_dir():
        return
    names = _files(ready)
    for name in set(_recorded(folder)) - set(names):
        (folder / name).unlink(missing_ok=True)
    (folder / RECORD).unlink(missing_ok=True)  # until it is there again, the result is incomplete
    for name in sorted(names, key=lambda name: name == RECORD):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(ready / name, folder / name)
    shutil.rmtree(ready)


def _files(folder: Path) -> list[str]:
    """The files in a folder and its folders, by their paths from it."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return [path.relative_to(folder).as_posix() for path in paths]


def _recorded(folder: Path) -> Iterator[str]:
    """The files that an earlier result in the folder has written, by its own record."""
    try:
        names = json.loads((folder / RECORD).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return
    inside = folder.resolve()
    for name in names if isinstance(names, list) else []:
        # The record may come from a stranger: it must not name files elsewhere.
        if isinstance(name, str) and "\0" not in name:
            path = (folder / name).resolve()
            if path.is_file() and path.is_relative_to(inside):
                yield name
