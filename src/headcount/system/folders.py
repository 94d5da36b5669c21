"""Replace the files of a result folder all together or not at all; lock and check folders.

New files are first written into a hidden folder inside. When all of them are there, that folder is
renamed, and from then on the replacement is decided: its files are moved to their places, and a
process that is killed meanwhile leaves the rest to the next writer; readers move nothing. Files
that headcount did not write are never touched, and nothing is moved through a link.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.system.files import checked_path, read_limited

UNFINISHED, READY = ".headcount-unfinished", ".headcount-ready"
RECORD = "run.json"  # its entry "files" names what was written with it; it is moved last
MARK, INSIDE = "made-by-headcount", "files"  # what a marked folder holds


def make_marked(folder: Path) -> Path:
    """Mark an empty folder as headcount's own; return the folder in it for everything else.

    The mark is the folder's number on its disk, which a copy or a stranger's folder does not have.
    """
    (folder / MARK).write_text(str(folder.stat().st_ino))
    (folder / INSIDE).mkdir()
    return folder / INSIDE


def is_marked(folder: Path) -> bool:
    """Whether headcount itself has made this very folder; a link to it does not count."""
    mark = folder / MARK
    try:
        number = f"{folder.lstat().st_ino}"
        return mark.is_file() and not mark.is_symlink() and mark.read_text() == number
    except (OSError, ValueError):
        return False


def delete_marked(folder: Path) -> None:
    """Delete a marked folder; the mark goes last, so that a killed process leaves it."""
    shutil.rmtree(folder / INSIDE, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


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
        hidden = folder / UNFINISHED
        # What a process that was killed has left.
        if is_marked(folder / READY):
            _move(folder)
        if is_marked(hidden):
            delete_marked(hidden)
        for left in (folder / READY, hidden):
            with contextlib.suppress(OSError):
                left.rmdir()  # an empty folder, of a process that was killed just then
            if os.path.lexists(left):
                raise HeadcountError(
                    f"{left} was not made by headcount here: move it elsewhere, or choose another "
                    "--out."
                )
        hidden.mkdir()
        try:
            new = make_marked(hidden)
            yield new
            _check_places(folder, _files(new))
            hidden.rename(folder / READY)
        except BaseException:
            delete_marked(hidden)
            raise
        _move(folder)


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


def _check_places(folder: Path, names: Sequence[str]) -> None:
    """Refuse names whose places are taken by a folder, or lie in a link or a file."""
    for name in names:
        if (folder / name).is_dir():
            raise HeadcountError(
                f"{folder / name} is a folder, and the result has a file of this name: "
                "rename it, or choose another --out."
            )
        for above in Path(name).parents[:-1]:
            place = folder / above
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                raise HeadcountError(
                    f"{place} is a link or a file, and the result has a folder of this name: "
                    "rename it, or choose another --out."
                )


def _move(folder: Path) -> None:
    """Move the files of READY, which headcount has made, to their places."""
    ready = folder / READY / INSIDE
    names = _files(ready)
    _check_places(folder, names)
    if names:  # none are left if the process was killed after the last
        for name in set(_recorded(folder)) - set(names):
            (folder / name).unlink(missing_ok=True)
        # Until the record is there again, the result is incomplete.
        (folder / RECORD).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: name == RECORD):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(ready / name, folder / name)
    delete_marked(folder / READY)


def _files(folder: Path) -> list[str]:
    """The files in a folder and its folders, by their paths from it."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return [path.relative_to(folder).as_posix() for path in paths]


def _recorded(folder: Path) -> Iterator[str]:
    """The files that an earlier result in the folder has written, by its own record."""
    try:
        names = json.loads(read_limited(folder / RECORD))["files"]
    except (OSError, HeadcountError, ValueError, RecursionError, TypeError, KeyError):
        return
    inside = folder.resolve()
    for name in names if isinstance(names, list) else []:
        # The record may come from a stranger: it must not name files elsewhere.
        if isinstance(name, str) and "\0" not in name:
            path = (folder / name).resolve()
            if path.is_file() and path.is_relative_to(inside):
                yield name
