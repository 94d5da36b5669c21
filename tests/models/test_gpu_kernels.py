"""The kernels of decoding, on a GPU or in Triton's interpreter, against torch."""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F

from headcount.models import gpu_kernels

GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="the kernels need Triton, which comes with torch for CUDA")
if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("without a GPU, TRITON_INTERPRET=1 runs the kernels", allow_module_level=True)


@pytest.fixture(autouse=True)
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_kernels, "_usable", lambda x: True)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to("cuda" if GPU else "cpu")


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("heads", "groups", "size"), [(6, 2, 32), (14, 2, 64), (3, 3, 16)])
def test_attend(heads: int, groups: int, size: int, gated: bool) -> None:
    rows, positions = 5, 150
    q = numbers(rows, heads, 1, size)
    k, v = numbers(rows, groups, positions, size, seed=1), numbers(rows, groups, positions, size)
    last = torch.tensor([0, 3, 63, 64, 149], device=q.device)
    gates = numbers(rows, heads, seed=2) if gated else None
    got = gpu_kernels.attend(q, k, v, last, size**-0.5, gates)
    seen = torch.arange(positions, device=q.device) <= last[:, None]
    expected = F.scaled_dot_product_attention(
        q, k, v, attn_mask=seen[:, None, None], enable_gqa=True
    ).transpose(1, 2)
    if gates is not None:
        expected = expected * gates[:, None, :, None]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("rows_of_cos", [1, 3])
def test_rotate(tokens: int, rows_of_cos: int) -> None:
    # As projections write them: (rows, tokens, heads, size), seen as (rows, heads, tokens, size).
    q, k = (numbers(3, tokens, heads, 16, seed=heads).transpose(1, 2) for heads in (4, 2))
    cos, sin = (numbers(rows_of_cos, tokens, 16, seed=seed) for seed in (7, 8))
    assert gpu_kernels.can_rotate(q, k, cos)
    for x, got in zip((q, k), gpu_kernels.rotate(q, k, cos, sin), strict=True):
        half = torch.cat((-x[..., 8:], x[..., :8]), -1)
        torch.testing.assert_close(got, x * cos[:, None] + half * sin[:, None])


def test_put() -> None:
    wide = numbers(4, 60)
    new = wide[:, 5:29], wide[:, 30:48]  # slices of one product, with a stride between rows
    tables, expected = (numbers(40, 24), numbers(40, 18)), (numbers(40, 24), numbers(40, 18))
    places = torch.tensor([3, 39, 0, 17], device=wide.device)
    gpu_kernels.put(new, tables, places)
    for table, plain, rows in zip(tables, expected, new, strict=True):
        plain.index_copy_(0, places, rows)
        assert torch.equal(table, plain)


def test_blocks_that_exceed_shared_memory_are_left_to_torch() -> None:
    fits = {(128, torch.float32), (256, torch.bfloat16)}
    for size, dtype in {*fits, (256, torch.float32), (96, torch.float32)}:
        sample = numbers(1, 1, 1, size).to(dtype)
        assert gpu_kernels.can_attend([(sample, sample)]) == ((size, dtype) in fits)


def test_silu_product() -> None:
    both = numbers(3, 2, 2600)
    expected = F.silu(both[..., :1300]) * both[..., 1300:]
    torch.testing.assert_close(gpu_kernels.silu_product(both), expected)


@pytest.mark.parametrize("width", [16, 576])
def test_rms_norm(width: int) -> None:
    x, weight = numbers(2, 3, width), numbers(width, seed=1)
    for scale in (1.0, 1e-3):  # a small input shows whether epsilon is at work
        expected = F.rms_norm(x * scale, (width,), weight, 1e-5)
        torch.testing.assert_close(gpu_kernels.rms_norm(x * scale, weight, 1e-5), expected)
