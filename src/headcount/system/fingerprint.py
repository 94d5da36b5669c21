"""Checksums that identify files by their content; they are cached, so that files are read once."""

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
from headcount.system.paths import CacheFolderError, cache_dir

KEPT = 1000  # files whose checksums are cached
PATIENCE = 10  # seconds to wait for other processes that write the cache
SETTLED = 2.0  # seconds: two changes within this time may leave the same time stamp

# Settings that do not change what a model computes: its source, and how it is run.
VOLATILE = {
    *("_name_or_path", "name_or_path", "base_model_name_or_path", "transformers_version"),
    *("architectures", "dtype", "torch_dtype", "use_cache"),
    *("attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
    "dense_kernel",
}


def fingerprint_files(paths: Sequence[str | Path]) -> str:
    """The sha256 of the content of these files, independent of their names and order.

    The checksum of each file is cached by its path, size, inode and time stamp, so that gigabytes
    are read only once. Of a config.json only settings that change the computation count, and not,
    for example, the version of transformers that wrote it.
    """
    if not paths:
        raise ValueError("there are no files to fingerprint")
    known = _read_cache()
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
                # A file that has just changed might change again with the same time stamp.
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
        _add_to_cache(fresh)
    return joined(text.encode() for text in sorted(digests))


def without_volatile(settings: Any) -> Any:
    """Settings without those that do not change what a model computes."""
    if isinstance(settings, Mapping):
        kept = {str(k): v for k, v in settings.items() if k not in VOLATILE}
        return {key: without_volatile(value) for key, value in kept.items()}
    if isinstance(settings, set | frozenset):  # in the same order in every process
        return sorted(map(str, settings))
    return settings


def _identity(path: Path) -> str:
    """Path, size, time stamp and inode of a file: if they are equal, so is its content."""
    resolved = path.resolve(strict=True)
    stat = resolved.stat()
    return json.dumps([str(resolved), stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino])


def _hash_settings(path: Path) -> str:
    """The checksum of a JSON file without volatile settings; of its bytes if it is not JSON."""
    data = path.read_bytes()
    with contextlib.suppress(ValueError):
        data = as_json(without_volatile(json.loads(data)))
    return digest(data)


def _cache_file() -> Path:
    return cache_dir() / "fingerprints.json"


def _read_cache() -> dict[str, str]:
    """The cached checksums; a damaged cache counts as empty."""
    try:
        known = json.loads(_cache_file().read_text(encoding="utf-8"))
        return {k: v for k, v in known.items() if isinstance(v, str) and len(v) == 64}
    except (CacheFolderError, OSError, ValueError, AttributeError):
        return {}


def _add_to_cache(fresh: Mapping[str, str]) -> None:
    """Add checksums to the cache; if that fails, the next start is slower."""
    with contextlib.suppress(CacheFolderError, OSError, Timeout):
        path = _cache_file()
        with FileLock(path.with_suffix(".lock"), timeout=PATIENCE):
            known = [*(_read_cache() | dict(fresh)).items()][-KEPT:]
            write_file(path, json.dumps(dict(known), indent=0))


def as_json(value: Any) -> bytes:
    """A value as JSON bytes that are the same in every process."""
    return json.dumps(value, sort_keys=True, default=str).encode()


def joined(parts: Iterable[bytes]) -> str:
    """One checksum over several parts; each is hashed first, so that parts cannot run together."""
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()
