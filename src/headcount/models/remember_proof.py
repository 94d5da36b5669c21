"""Remember proofs: a model that was proven on this machine need not be proven in every process.

A proof is a function of the model's weights, settings and code, of the versions of the libraries,
and of the device. Its key is a checksum of them all, functions that somebody has replaced included,
so a remembered proof is the one that would be found again. A model that is more than its key (with
hooks of the user's own, or a `forward` that was replaced on one module) is proven anew each time.
`HEADCOUNT_PROOFS=off` remembers nothing.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal

import torch
import transformers
from torch import nn

from headcount.models.fast_paths import FastPaths, Trunk
from headcount.models.fingerprint import checksum
from headcount.models.proof import Check, Proof
from headcount.models.sites import HeadSite, input_device, plain
from headcount.system.files import digest
from headcount.system.fingerprint import as_json
from headcount.system.remembered import remember, remembered
from headcount.system.transformers_compat import attention_configs, attention_function, kernel_of

FILE = "proofs.json"
KEPT = 50  # models: each takes some 10 kB
SLOW = 0.25  # seconds: a proof that took less is not worth a line in the file

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
        """Whether nobody has changed since then what a module computes."""
        return self.key is not None and not any(map(_is_changed, self.module.modules()))

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
    functions = [getattr(kind, "forward", None) for kind in {type(child) for child in children}]
    functions += [attention_function(str(kernel)) for kernel in kernels]
    seen: set[int] = set()
    facts = {
        "weights": [sums[0], sums[1].decode()],
        "tensors": tensors,
        "modules": [[name, _name(type(child))] for name, child in module.named_modules()],
        "code": digest("".join(sorted(code for f in functions for code in _code_of(f, seen)))),
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


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _code_of(function: Any, seen: set[int]) -> Iterator[str]:
    """What a function does, as compiled: its own code, and that of the functions that it calls.

    A user may have replaced one of them, in this process only. Functions outside of the libraries'
    modelling code, such as those of torch, are known by the versions.
    """
    while function is not None:  # a decorated function has the original inside
        code: CodeType | None = getattr(function, "__code__", None)
        if code is None or id(code) in seen:
            return
        seen.add(id(code))
        yield f"{function.__module__}.{function.__qualname__}"
        yield from _bytecode(code)
        for name in code.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, FunctionType) and not called.__module__.startswith("torch"):
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
