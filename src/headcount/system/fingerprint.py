"""Recognise files again: a checksum of what they hold, remembered so that they are read once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from headcount.errors import HeadcountError
from headcount.system.files import digest, file_digest, write_file
from headcount.system.paths import cache_dir

KEPT = 1000  # files whose checksum is remembered
PATIENCE = 10  # seconds to wait for other processes that are remembering
SETTLED = 2.0  # seconds after which a file's time of change can be trusted to show the next change

# Settings that say where a model comes from or how it is run, not what it computes.
VOLATILE = {
    *("_name_or_path", "name_or_path", "base_model_name_or_path", "transformers_version"),
    *("architectures", "dtype", "torch_dtype", "use_cache"),
    *("attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
    "dense_kernel",
}


def fingerprint_files(paths: Sequence[str | Path]) -> str:
    """The sha256 of what these files hold, whatever they are called and in whatever order.

    Gigabytes are read once: the checksum of each file is remembered by its path, size, inode and
    time of change, so that the next start costs nothing. Of a config.json only what takes part in
    the computation counts: not, say, the version of transformers that wrote it.
    """
    if not paths:
        raise ValueError("there are no files to fingerprint")
    known = _read_memory()
    fresh: dict[str, str] = {}
    digests = []
    for path in map(Path, paths):
        try:
            if path.name == "config.json":
                digests.append(_hash_settings(path))
                continue
            identity = _identity(path)
            if identity not in known:
                known[identity] = file_digest(path)
                # A file that changed just now, or while we read, might change again unnoticed.
                settled = abs(time.time() - path.stat().st_mtime) > SETTLED
                if settled and _identity(path) == identity:
                    fresh[identity] = known[identity]
        except OSError as error:
            raise HeadcountError(
                f"Cannot read the weight file {path} ({error.strerror or error}): download the "
                "model again."
            ) from error
        digests.append(known[identity])
    if fresh:
        _remember(fresh)
    return joined(text.encode() for text in sorted(digests))


def without_volatile(settings: Any) -> Any:
    """Settings without those that do not change what a model computes."""
    if isinstance(settings, Mapping):
        kept = {str(k): v for k, v in settings.items() if k not in VOLATILE}
        return {key: without_volatile(value) for key, value in kept.items()}
    if isinstance(settings, set | frozenset):  # in an order that the next process has too
        return sorted(map(str, settings))
    return settings


def _identity(path: Path) -> str:
    """What tells that a file is still the same one, without opening it."""
    resolved = path.resolve(strict=True)
    stat = resolved.stat()
    return json.dumps([str(resolved), stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino])


def _hash_settings(path: Path) -> str:
    """The checksum of a JSON file without what is volatile; of its bytes where it is no JSON."""
    data = path.read_bytes()
    with contextlib.suppress(ValueError):
        data = as_json(without_volatile(json.loads(data)))
    return digest(data)


def _memory() -> Path:
    return cache_dir() / "fingerprints.json"


def _read_memory() -> dict[str, str]:
    """What is remembered; a damaged file counts as empty, for it can be made again."""
    try:
        known = json.loads(_memory().read_text(encoding="utf-8"))
        return {k: v for k, v in known.items() if isinstance(v, str) and len(v) == 64}
    except (OSError, ValueError, AttributeError):
        return {}


def _remember(fresh: Mapping[str, str]) -> None:
    """Add checksums to the file, replacing it whole; if that fails, the next start is slower."""
    path = _memory()
    with (
        contextlib.suppress(OSError, Timeout),
        FileLock(path.with_suffix(".lock"), timeout=PATIENCE),
    ):
        known = [*(_read_memory() | dict(fresh)).items()][-KEPT:]
        write_file(path, json.dumps(dict(known), indent=0))


def as_json(value: Any) -> bytes:
    """The bytes of a value, the same in every process."""
    return json.dumps(value, sort_keys=True, default=str).encode()


def joined(parts: Iterable[bytes]) -> str:
    """One checksum over several, in which no part can run into the next."""
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()
