"""Checksums that identify a model in memory: of its weights and settings, and of its tokenizer.

The store's keys contain them, so whatever changes a logit must change a checksum. The folder's
name, the date of a copy and the device do not. Models loaded from files are identified by a
checksum of these files: see `headcount.system.fingerprint`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from headcount.errors import HeadcountError
from headcount.system.fingerprint import as_json, joined, without_volatile

CHUNK = 1 << 22  # bytes of a tensor that are copied at once, by one of the threads
MOST_THREADS = 16
WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of a number


def fingerprint_tensors(module: nn.Module) -> str:
    """The sha256 of a model in memory: each tensor's name, dtype, shape, bytes, and the settings.

    Buffers that a checkpoint leaves out (such as rotary frequencies) count as well, and so do the
    model's configuration and its PEFT adapters, because they take part in the computation. Large
    tensors are read in pieces, on any device; the checksums of the pieces are computed side by side
    on all cores, since a single one would take ten seconds for 16 GB.
    """
    total = hashlib.sha256()
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as threads:
        for name, tensor in _named_tensors(module, whole=True):
            total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
            if tensor.is_meta:
                raise HeadcountError(
                    f"The weight {name} is not in memory (it was offloaded), so this model cannot "
                    "be identified in the store: load it without offloading."
                )
            pieces = _plain_numbers(tensor.detach()).reshape(-1)
            for piece in threads.map(_digest, pieces.split(max(1, CHUNK // pieces.element_size()))):
                total.update(piece)
    total.update(as_json(settings_of(module)))
    return total.hexdigest()


def checksum(module: nn.Module) -> tuple[list[int], bytes]:
    """What changes when somebody changes a weight or a setting; far cheaper than a fingerprint.

    Each tensor counts by the number of changes that torch has noticed and, because torch does not
    notice changes through `.data`, by sums of its bits as whole numbers: these are the same on
    every device and for any number of threads.
    """
    changes: list[int] = []
    totals: dict[torch.device, list[Tensor]] = {}  # by device, which is waited for once
    for _, tensor in _named_tensors(module):
        if tensor.is_meta or not tensor.numel():
            continue
        changes.append(0 if tensor.is_inference() else tensor._version)
        numbers = _plain_numbers(tensor.detach())
        bits = numbers.view(WHOLE[numbers.element_size()])
        bits = bits.reshape(len(bits) if bits.ndim else 1, -1)
        table: Any = bits.numpy() if bits.device.type == "cpu" else bits  # numpy adds up faster
        for axis in (0, 1):
            added = torch.as_tensor(table.sum(axis, dtype=table.dtype))
            totals.setdefault(bits.device, []).append(added)
    sums = [number for some in totals.values() for number in _weighted(some)]
    return changes + sums, as_json(settings_of(module))


def _weighted(totals: list[Tensor]) -> list[int]:
    """The sum of all numbers up to the end of each tensor, each times its place: order matters."""
    whole = torch.cat(totals).long()
    products = whole * torch.arange(1, len(whole) + 1, device=whole.device)
    ends = torch.tensor([len(some) for some in totals]).cumsum(0) - 1
    numbers: list[int] = products.cumsum(0)[ends.to(whole.device)].tolist()
    return numbers


def fingerprint_tokenizer(tokenizer: Any) -> str:
    """The sha256 of everything that decides which token ids a text becomes.

    This is the vocabulary and its rules, the special tokens, and the chat template.
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
    return joined([as_json(rules), as_json(settings)])


def _named_tensors(module: nn.Module, whole: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Every tensor by name, in the order of the names.

    The state dict includes what quantised layers store besides parameters; the buffers include
    those that the state dict omits. Of a tensor that is shared out over processes, this is the part
    in this process, or with `whole` all of it, which all processes must ask for together.
    """
    tensors: dict[str, Any] = {**dict(module.named_buffers()), **module.state_dict()}
    for name in sorted(tensors):
        value = tensors[name]
        if hasattr(value, "full_tensor"):
            value = value.full_tensor() if whole else value.to_local()
        wrapped: bool = is_traceable_wrapper_subclass(value)
        if wrapped:  # torchao: the numbers are in inner tensors
            parts, _ = value.__tensor_flatten__()
            yield from ((f"{name}.{part}", getattr(value, part)) for part in sorted(parts))
        elif isinstance(value, Tensor):
            yield name, value


def _plain_numbers(tensor: Tensor) -> Tensor:
    """A tensor of a kind that can be added up; floats of one byte are seen as whole numbers."""
    if tensor.is_quantized:
        return tensor.int_repr()
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return tensor.contiguous().view(torch.uint8)
    return tensor


def _digest(numbers: Tensor) -> bytes:
    """The sha256 of the bytes of some numbers."""
    return hashlib.sha256(numbers.cpu().contiguous().view(torch.uint8).numpy().data).digest()


def _adapters_are_off(module: nn.Module) -> bool:
    """Whether PEFT adapters are switched off, as inside `disable_adapter`."""
    return any(getattr(part, "disable_adapters", False) is True for part in module.modules())


def settings_of(module: nn.Module) -> dict[str, Any]:
    """The settings of a model that are not tensors: epsilons, rotary bases, adapter scales."""
    config: Any = getattr(module, "config", None)
    settings = config.to_dict() if hasattr(config, "to_dict") else {}
    adapters = getattr(module, "peft_config", None) or {}
    active: Any = getattr(module, "active_adapters", None) if adapters else None
    scales = {
        name: {key: str(scale) for key, scale in part.scaling.items()}
        for name, part in (module.named_modules() if adapters else ())
        if isinstance(getattr(part, "scaling", None), dict)
    }
    return {
        "class": type(module).__name__,
        "config": without_volatile(settings),
        "adapters": {name: without_volatile(vars(a)) for name, a in sorted(adapters.items())},
        "active": active() if callable(active) else active,
        **({"scales": scales} if scales else {}),
        **({"disabled": True} if _adapters_are_off(module) else {}),
    }
