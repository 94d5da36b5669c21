"""Remember proofs: a model that was proven on this machine need not be proven in every process.

A proof is a function of the model's weights, settings and code, of the versions of the libraries,
and of the device. Its key is a checksum of them all, so a remembered proof is the one that would be
found again. Only code of known libraries can be told by a checksum. A model that runs anything else
(hooks of the user's own, a `forward` that was replaced on one module, an attention function or a
class from elsewhere, a function of a library that somebody has replaced) is proven anew each time.
`HEADCOUNT_PROOFS=off` remembers nothing.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from headcount.models.fast_paths import FastPaths, Trunk
from headcount.models.fingerprint import checksum
from headcount.models.proof import Check, Proof
from headcount.models.sites import HeadSite, input_device, plain
from headcount.system.files import digest
from headcount.system.fingerprint import as_json
from headcount.system.remembered import remember, remembered
from headcount.system.transformers_compat import attention_configs, attention_function, kernel_of

FILE = "proofs.json"
LIBRARIES = ("transformers", "headcount", "peft")  # whose code is part of the key
INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
KEPT = 50  # models: each takes some 10 kB
SLOW = 0.02  # seconds: a proof that took less is not worth a line in the file

Checksum = tuple[list[int], bytes]


@dataclass(frozen=True)
class Remembered:
    """What a proof found; the fast paths, or one of them, may not have been tried yet."""

    proof: Proof
    paths: FastPaths | None = None
    scores_alone: bool | None = None


class Memory:
    """What is known of one model, in this process and in the file."""

    def __init__(self, module: nn.Module, prove: Callable[[nn.Module], Proof]) -> None:
        """Recall the model's proof; if there is none, prove the model."""
        self.module, self.checksum = module, checksum(plain(module))
        self.key = proof_key(module, self.checksum)
        known, begin = _recall(self.key), time.perf_counter()
        self.known = known or Remembered(prove(module))
        if known is None:
            self._keep(begin)

    def holds(self) -> bool:
        """Whether the model is still the one that was proven."""
        if self.key is None:
            return False
        return self.key == proof_key(self.module, checksum(plain(self.module)))

    def find(self, what: Literal["paths", "scores_alone"], prove: Callable[[], Any]) -> Any:
        """One of the facts beside the proof: what is remembered, or what is proven now."""
        known = getattr(self.known, what)
        if known is None or not self.holds():
            begin, known = time.perf_counter(), prove()
            if self.holds():
                self.known = replace(self.known, **{what: known})
                self._keep(begin)
        return known

    def _keep(self, begin: float) -> None:
        if self.key is not None and time.perf_counter() - begin >= SLOW:
            remember(FILE, self.key, asdict(self.known), kept=KEPT)


def proof_key(module: nn.Module, sums: Checksum) -> str | None:
    """All that a proof depends on, as one checksum; None where no checksum can hold it."""
    if os.environ.get("HEADCOUNT_PROOFS", "").lower() == "off" or plain(module) is not module:
        return None
    children = list(module.modules())
    if any(_is_changed(child) for child in children):
        return None
    tensors = [
        [name, str(t.dtype), list(t.shape), t.device.type, type(t).__name__]
        for name, t in (*module.named_parameters(), *module.named_buffers())
    ]
    device, kernels = input_device(module), [kernel_of(c) for c in attention_configs(module)]
    try:
        code = _code_of_all(children, [str(kernel) for kernel in kernels])
    except _ForeignCodeError:
        return None
    facts = {
        "weights": [sums[0], sums[1].decode()],
        "tensors": tensors,
        "modules": [[name, _name(type(child))] for name, child in module.named_modules()],
        "code": digest(code),
        "files": {name: _file_state(name) for name in {type(c).__module__ for c in children}},
        "kernels": kernels,
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else [device.type, platform.machine(), torch.get_num_threads()],
        "versions": [torch.__version__, transformers.__version__, _own_code()],
    }
    return digest(as_json(facts))


def _recall(key: str | None) -> Remembered | None:
    """The proof with this key, if there is one; a damaged one counts as none."""
    facts = None if key is None else remembered(FILE).get(key)
    try:
        return None if facts is None else _from_json(facts)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _is_changed(module: nn.Module) -> bool:
    """Whether somebody has changed what this one module computes."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    compiled = getattr(module, "_compiled_call_impl", None) is not None
    return "forward" in vars(module) or any(hooks) or compiled or hasattr(module, "_hf_hook")


def is_hooked(module: nn.Module) -> bool:
    """Whether hooks of the caller's own, or a replaced `forward`, may change what is computed.

    A hook before the whole model sees its arguments, and is taken for one that only watches.
    Accelerate replaces `forward` too, where it offloads weights, and transformers for tensor
    parallelism: that changes nothing.
    """
    top, *inner = module.modules()
    inside = any(part._forward_hooks or part._forward_pre_hooks for part in inner)
    forwards = [
        vars(part).get("forward") for part in (top, *inner) if not hasattr(part, "_hf_hook")
    ]
    homes = [str(getattr(forward, "__module__", "")) for forward in forwards if forward is not None]
    replaced = not all(home.startswith("transformers.distributed") for home in homes)
    return inside or replaced or bool(top._forward_hooks)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class _ForeignCodeError(Exception):
    """A function or class that no checksum can tell."""


def _code_of_all(children: Sequence[nn.Module], kernels: Sequence[str]) -> str:
    """What all methods of the modules and their attention functions do, as compiled."""
    kinds = {base for child in children for base in type(child).__mro__}
    functions = [
        getattr(value, "__func__", getattr(value, "fget", value))
        for kind in kinds
        # The classes on which all models are built have hundreds of methods for other purposes.
        if not kind.__module__.startswith("torch.") and kind not in PreTrainedModel.__mro__
        for value in vars(kind).values()
    ]
    found = [f for f in functions if isinstance(f, FunctionType)]
    attention = [attention_function(kernel) for kernel in kernels]
    if any(f is not None and not isinstance(f, FunctionType) for f in attention):
        raise _ForeignCodeError
    seen: set[int] = set()
    return "".join(
        sorted(code for f in [*found, *filter(None, attention)] for code in _code_of(f, seen))
    )


def _code_of(function: Any, seen: set[int]) -> Iterator[str]:
    """What a function does, as compiled: its own code, and that of the functions that it calls.

    A user may have replaced one of them, in this process only. Functions of other installed
    packages, such as torch, are taken as they are.
    """
    while isinstance(function, FunctionType):  # a decorated function has the original inside
        code, home = function.__code__, str(function.__module__)
        if id(function) in seen:  # of its code, a decorator's wrappers share one object
            return
        if home.split(".")[0] not in LIBRARIES:
            file = getattr(sys.modules.get(home), "__file__", None)
            if file is None or not file.startswith(INSTALLED):
                raise _ForeignCodeError
            return
        seen.add(id(function))
        yield f"{function.__module__}.{function.__qualname__} {function.__defaults__!r}"
        yield from _bytecode(code)
        for name in code.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, partial):
                raise _ForeignCodeError
            yield from _code_of(called, seen)
        function = getattr(function, "__wrapped__", None)


def _bytecode(code: CodeType) -> Iterator[str]:
    plain_constants = [c for c in code.co_consts if isinstance(c, int | float | str)]
    yield f"{code.co_code.hex()} {code.co_names} {plain_constants!r}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # a function inside
            yield from _bytecode(constant)


def _file_state(module: str) -> list[Any]:
    try:
        stat = Path(str(sys.modules[module].__file__)).stat()
    except (KeyError, AttributeError, OSError):
        return []
    return [stat.st_size, stat.st_mtime_ns]


@cache
def _own_code() -> str:
    """A checksum of the code that finds and proves head sites."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return digest(b"".join(file.read_bytes() for file in files))


def _from_json(facts: Mapping[str, Any]) -> Remembered:
    proof, paths = facts["proof"], facts["paths"]
    sites = tuple(HeadSite(**site) for site in proof["sites"])
    checks = tuple(Check(**check) for check in proof["checks"])
    if paths is not None:
        trunk = paths["trunk"] and Trunk(**{k: tuple(v) for k, v in paths["trunk"].items()})
        paths = FastPaths(**{**paths, "trunk": trunk})
    if not (sites and checks and all(check.holds for check in checks)):
        raise ValueError("no proof")
    return Remembered(Proof(sites, checks, tuple(proof["mixers"])), paths, facts["scores_alone"])
