"""Recognise a model again: a checksum of its weights, its settings and its tokenizer.

The store keeps measurements under these, so whatever changes a logit must change them and nothing
else need: not the folder's name, not the time of a copy, not the device.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError
from headcount.system.locks import FileLock, Timeout
from headcount.system.paths import cache_dir

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 24  # bytes of a tensor that are copied at once
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
    for path in paths:
        try:
            if Path(path).name == "config.json":
                digests.append(_hash_settings(path))
                continue
            identity = _identity(path)
            if identity not in known:
                known[identity] = _hash_file(path)
                # A file that changed just now, or while we read, might change again unnoticed.
                if _identity(path) == identity and _is_settled(path):
                    fresh[identity] = known[identity]
        except OSError as error:
            raise HeadcountError(
                f"Cannot read the weight file {path} ({error.strerror or error}): download the "
                "model again."
            ) from error
        digests.append(known[identity])
    if fresh:
        _remember(fresh)
    return _joined(digest.encode() for digest in sorted(digests))


def fingerprint_tensors(module: torch.nn.Module) -> str:
    """The sha256 of a model in memory: each tensor's name, dtype, shape, bytes, and the settings.

    Buffers that a checkpoint leaves out (such as rotary frequencies) count as well, and so do the
    model's configuration and its PEFT adapters, because they take part in the computation. Large
    tensors are read piece by piece, from whatever device.
    """
    total = hashlib.sha256()
    for name, tensor in _named_tensors(module):
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        if tensor.is_meta:
            raise HeadcountError(
                f"The weight {name} is not in memory (it was offloaded), so this model cannot be "
                "recognised again: load it without offloading."
            )
        for piece in _bytes_of(tensor):
            total.update(piece)
    total.update(_as_json(_settings(module)))
    return total.hexdigest()


def fingerprint_tokenizer(tokenizer: Any) -> str:
    """The sha256 of all that decides which token ids a text becomes.

    The vocabulary and its rules, the special tokens, and the chat template.
    """
    to_str = getattr(getattr(tokenizer, "backend_tokenizer", None), "to_str", None)
    rules = json.loads(to_str()) if callable(to_str) else tokenizer.get_vocab()
    if callable(to_str):
        # Every call with padding or truncation leaves its setting in the backend.
        rules.update(padding=None, truncation=None)
    settings = {
        "kind": type(tokenizer).__name__,
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "template": getattr(tokenizer, "chat_template", None),
        "bos": getattr(tokenizer, "add_bos_token", None),
        "eos": getattr(tokenizer, "add_eos_token", None),
    }
    return _joined([_as_json(rules), _as_json(settings)])


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor by name, in the order of the names.

    The state dict has what quantised layers keep beside their parameters; the buffers have what the
    state dict leaves out.
    """
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    found: dict[str, Any] = {**dict(module.named_buffers()), **module.state_dict()}
    for name in sorted(found):
        value = found[name]
        wrapped: bool = is_traceable_wrapper_subclass(value)
        if wrapped:  # torchao: the numbers are in tensors inside
            parts, _ = value.__tensor_flatten__()
            yield from ((f"{name}.{part}", getattr(value, part)) for part in sorted(parts))
        elif isinstance(value, torch.Tensor):
            yield name, value


def _bytes_of(tensor: torch.Tensor) -> Iterator[bytes]:
    """The bytes of a tensor, some megabytes at a time."""
    import torch

    flat = tensor.detach().reshape(-1)
    if flat.is_quantized:
        flat = flat.int_repr()
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj()).reshape(-1)
    step = max(1, CHUNK // flat.element_size())
    for start in range(0, flat.numel(), step):
        piece = flat[start : start + step].cpu().contiguous()
        yield piece.view(torch.uint8).numpy().tobytes()


def _settings(module: torch.nn.Module) -> dict[str, Any]:
    """What a model computes with that is no tensor: epsilons, rotary bases, adapter scales."""
    config: Any = getattr(module, "config", None)
    settings = config.to_dict() if hasattr(config, "to_dict") else {}
    adapters = getattr(module, "peft_config", None) or {}
    active: Any = getattr(module, "active_adapters", None) if adapters else None
    return {
        "class": type(module).__name__,
        "config": _without_volatile(settings),
        "adapters": {name: _without_volatile(vars(a)) for name, a in sorted(adapters.items())},
        "active": active() if callable(active) else active,
    }


def _without_volatile(settings: Any) -> Any:
    if isinstance(settings, Mapping):
        kept = {str(k): v for k, v in settings.items() if k not in VOLATILE}
        return {key: _without_volatile(value) for key, value in kept.items()}
    if isinstance(settings, set | frozenset):  # in an order that the next process has too
        return sorted(map(str, settings))
    return settings


def _identity(path: str | Path) -> str:
    """What tells that a file is still the same one, without opening it."""
    resolved = Path(path).resolve(strict=True)
    stat = resolved.stat()
    return json.dumps([str(resolved), stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino])


def _is_settled(path: str | Path) -> bool:
    return abs(time.time() - Path(path).stat().st_mtime) > SETTLED


def _hash_file(path: str | Path) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_settings(path: str | Path) -> str:
    """The checksum of a JSON file without what is volatile; of its bytes where it is no JSON."""
    data = Path(path).read_bytes()
    with contextlib.suppress(ValueError):
        data = _as_json(_without_volatile(json.loads(data)))
    return hashlib.sha256(data).hexdigest()


def _memory_path() -> Path:
    return cache_dir() / "fingerprints.json"


def _read_memory() -> dict[str, str]:
    """What is remembered; a damaged file counts as empty, for it can be made again."""
    try:
        known = json.loads(_memory_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {key: value for key, value in known.items() if _is_digest(value)}


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64


def _remember(fresh: Mapping[str, str]) -> None:
    """Add checksums to the file, replacing it whole; if that fails, the next start is slower."""
    path = _memory_path()
    with contextlib.suppress(OSError, Timeout):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=PATIENCE):
            known = [*(_read_memory() | dict(fresh)).items()][-KEPT:]
            handle, name = tempfile.mkstemp(prefix=".fingerprints-", dir=path.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(dict(known), file, indent=0)
                os.replace(name, path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise


def _as_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, default=str).encode()


def _joined(parts: Iterable[bytes]) -> str:
    """One checksum over several, in which no part can run into the next."""
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()
