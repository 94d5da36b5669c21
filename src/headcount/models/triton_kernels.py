# mypy: ignore-errors
# ruff: noqa: N803, D103
"""The source of the kernels in `gpu_kernels`, in Triton's dialect of Python."""

import triton
import triton.language as tl


@triton.jit
def attend(
    q, k, v, out, positions, scale,
    q_row, q_head, k_row, k_group, k_token, v_row, v_group, v_token,
    PER: tl.constexpr, QUERIES: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    end = tl.load(positions + row) + 1
    query = tl.arange(0, QUERIES)
    head = group * PER + query
    size, width = tl.arange(0, SIZE), tl.arange(0, WIDTH)
    own = (query < PER)[:, None]
    queries = tl.load(q + row * q_row + head[:, None] * q_head + size[None], mask=own, other=0)
    best = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, WIDTH], tl.float32)
    for start in range(0, end, BLOCK):
        token = start + tl.arange(0, BLOCK)
        seen = token < end
        at = token[:, None]
        keys = k + row * k_row + group * k_group + at * k_token + size[None]
        scores = tl.dot(
            queries,
            tl.trans(tl.load(keys, mask=seen[:, None], other=0)),
            input_precision="ieee",
        )
        scores = tl.where(seen[None], scores * scale, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(best - higher)
        total = total * shrink + tl.sum(weights, 1)
        values = v + row * v_row + group * v_group + at * v_token + width[None]
        values = tl.load(values, mask=seen[:, None], other=0)
        mixed = mixed * shrink[:, None]
        mixed += tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        best = higher
    groups = tl.num_programs(1)
    place = out + (row * groups * PER + head[:, None]) * WIDTH + width[None]
    tl.store(place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=own)


@triton.jit
def rotate(
    q, k, out, cos, sin, q_row, q_head, k_row, k_head, cos_row, sin_row,
    HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    source = q + row * q_row + head * q_head
    if head >= HEADS:
        source = k + row * k_row + (head - HEADS) * k_head
    one = tl.arange(0, HALF)
    two = HALF + one
    first, second = tl.load(source + one).to(tl.float32), tl.load(source + two).to(tl.float32)
    cosines, sines = cos + row * cos_row, sin + row * sin_row
    place = out + (row * tl.num_programs(1) + head) * 2 * HALF
    kind = out.dtype.element_ty
    turned = first * tl.load(cosines + one) - second * tl.load(sines + one)
    tl.store(place + one, turned.to(kind))
    turned = second * tl.load(cosines + two) + first * tl.load(sines + two)
    tl.store(place + two, turned.to(kind))
