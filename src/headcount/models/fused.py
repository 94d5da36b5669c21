"""Fewer kernels for the small steps of a block, where a GPU waits for launches, not for arithmetic.

transformers writes a norm as eight kernels and a rotary embedding as ten. Inside `fused_kernels`
they run as one and at most four: in float32 with the same results up to rounding, in half precision
with one rounding in place of several. A norm or a rotary embedding is replaced only if it is seen
to compute just that.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headcount.models import gpu_kernels
from headcount.models.forward_modes import instead
from headcount.models.sites import plain
from headcount.models.slices import tolerance
from headcount.system.transformers_compat import replaced

ROTARY = "apply_rotary_pos_emb"  # the function's name in the model files of transformers


@dataclass(frozen=True)
class _Fusible:
    norms: tuple[tuple[str, float], ...]  # names of RMS norms, each with its epsilon
    rotary: tuple[str, ...]  # the files whose rotary embedding is the usual one


_KNOWN: WeakKeyDictionary[nn.Module, _Fusible] = WeakKeyDictionary()


@contextmanager
def fused_kernels(module: nn.Module) -> Iterator[None]:
    """Run the RMS norms and rotary embeddings of a model in fewer kernels inside this context."""
    module = plain(module)
    if module not in _KNOWN:
        _KNOWN[module] = _find(module)
    named = dict(module.named_modules())
    with ExitStack() as stack:
        for name, epsilon in _KNOWN[module].norms:
            stack.enter_context(instead(named[name], _rms_norm(named[name], epsilon)))
        for file in _KNOWN[module].rotary:
            stack.enter_context(replaced(file, ROTARY, _rotate))
        yield


def _rms_norm(norm: nn.Module, epsilon: float) -> Callable[[Tensor], Tensor]:
    weight: Any = norm.weight
    return lambda x: gpu_kernels.rms_norm(x, weight, epsilon)


def _rotate(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys, (rows, heads, tokens, size); some models turn only their start."""
    if unsqueeze_dim == 1 and gpu_kernels.can_rotate(q, k, cos):
        return gpu_kernels.rotate(q, k, cos, sin)
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    whole = torch.cat((q, k), dim=1)
    both = whole[..., : cos.shape[-1]]
    half = both.shape[-1] // 2
    first, second = both[..., :half], both[..., half:]
    rotated = both * cos
    rotated[..., :half].addcmul_(second, sin[..., :half], value=-1)
    rotated[..., half:].addcmul_(first, sin[..., half:])
    if both.shape != whole.shape:
        rotated = torch.cat((rotated, whole[..., cos.shape[-1] :]), dim=-1)
    return rotated[:, : q.shape[1]], rotated[:, q.shape[1] :]


@torch.no_grad()
def _find(module: nn.Module) -> _Fusible:
    epsilons: dict[tuple[type, tuple[float, ...]], float | None] = {}
    norms = []
    for name, part in module.named_modules():
        if [p for p, _ in part.named_parameters()] != ["weight"] or any(part.children()):
            continue
        candidates = tuple(v for v in vars(part).values() if isinstance(v, float) and 0 < v < 0.01)
        kind = type(part), candidates
        if kind not in epsilons:
            epsilons[kind] = next((e for e in candidates if _is_rms_norm(part, e)), None)
        epsilon = epsilons[kind]
        if epsilon is not None and "forward" not in vars(part):
            norms.append((name, epsilon))
    files = sorted({type(part).__module__ for part in module.modules()})
    dtype = next(p.dtype for p in module.parameters() if p.is_floating_point())
    rotary = tuple(file for file in files if _is_usual(file, module, dtype))
    return _Fusible(tuple(norms), rotary)


def _is_rms_norm(part: nn.Module, epsilon: float) -> bool:
    weight: Any = part.weight
    if weight.ndim != 1 or not weight.is_floating_point():
        return False
    x = _numbers((3, len(weight)), weight)
    try:
        expected, got = part(x), _rms_norm(part, epsilon)(x)
        # Small inputs show whether the epsilon is the right one.
        small, fused = part(x * 1e-3), _rms_norm(part, epsilon)(x * 1e-3)
    except Exception:  # another kind of module
        return False
    return _close(got, expected) and _close(fused, small)


def _is_usual(file: str, module: nn.Module, dtype: torch.dtype) -> bool:
    """Whether the rotary embedding of a model file turns the two halves of each head."""
    function = getattr(sys.modules[file], ROTARY, None)
    if function is None:
        return False
    if [*inspect.signature(function).parameters][:4] != ["q", "k", "cos", "sin"]:
        return False
    like = next(p for p in module.parameters() if p.is_floating_point())
    q, k = _numbers((2, 4, 1, 16), like), _numbers((2, 2, 1, 16), like)
    cos, sin = _numbers((2, 1, 16), like), _numbers((2, 1, 16), like).flip(-1)
    for turned in (16, 8):  # the whole head, or its first half
        try:
            expected = function(q, k, cos[..., :turned], sin[..., :turned])
        except Exception:  # a rotary embedding of another form, or one that turns whole heads only
            if turned == 16:
                return False
            continue
        got = _rotate(q, k, cos[..., :turned], sin[..., :turned])
        if not all(_close(a, b) for a, b in zip(got, expected, strict=True)):
            return False
    return True


def _numbers(shape: tuple[int, ...], like: Tensor) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=draw).to(like)


def _close(got: Tensor, expected: Tensor) -> bool:
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    error = (got - expected).abs().max() / expected.abs().max()
    return bool(error <= tolerance(expected.dtype))
