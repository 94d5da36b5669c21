# mypy: ignore-errors
# ruff: noqa: N803, D103
"""The source of the kernels in `gpu_kernels`, in Triton's dialect of Python."""

import triton
import triton.language as tl


@triton.jit
def attend(
    q, k, v, out, positions, gates, scale,
    q_row, q_head, k_row, k_group, k_token, v_row, v_group, v_token,
    PER: tl.constexpr, QUERIES: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, GATED: tl.constexpr,
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
    mixed = mixed / total[:, None]
    heads = tl.num_programs(1) * PER
    if GATED:
        gate = tl.load(gates + row * heads + head, mask=query < PER, other=0)
        mixed = mixed * gate[:, None].to(tl.float32)
    place = out + (row * heads + head[:, None]) * WIDTH + width[None]
    tl.store(place, mixed.to(out.dtype.element_ty), mask=own)


@triton.jit
def rotate(
    q, k, out, cos, sin, q_row, q_head, q_token, k_row, k_head, k_token, cos_row, sin_row,
    tokens, HEADS: tl.constexpr, BOTH: tl.constexpr, HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    row, token = at // tokens, at % tokens
    head = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[:, None]
    one = tl.arange(0, HALF)[None]
    two = HALF + one
    from_q = q + row * q_row + token * q_token + head * q_head
    from_k = k + row * k_row + token * k_token + (head - HEADS) * k_head
    is_q, is_k = head < HEADS, (head >= HEADS) & (head < BOTH)
    first = tl.load(from_q + one, mask=is_q, other=0) + tl.load(from_k + one, mask=is_k, other=0)
    second = tl.load(from_q + two, mask=is_q, other=0) + tl.load(from_k + two, mask=is_k, other=0)
    first, second = first.to(tl.float32), second.to(tl.float32)
    cosines = cos + row * cos_row + token * 2 * HALF
    sines = sin + row * sin_row + token * 2 * HALF
    place = out + (at * BOTH + head) * 2 * HALF
    kind = out.dtype.element_ty
    turned = first * tl.load(cosines + one) - second * tl.load(sines + one)
    tl.store(place + one, turned.to(kind), mask=head < BOTH)
    turned = second * tl.load(cosines + two) + first * tl.load(sines + two)
    tl.store(place + two, turned.to(kind), mask=head < BOTH)


@triton.jit
def rms_norm(x, weight, out, width, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, BLOCK)
    own = number < width
    numbers = tl.load(x + row * width + number, mask=own, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(numbers * numbers, 0) / width + epsilon)
    weights = tl.load(weight + number, mask=own, other=0).to(tl.float32)
    tl.store(
        out + row * width + number, (numbers * scale * weights).to(out.dtype.element_ty), mask=own
    )


@triton.jit
def put(
    keys, values, key_table, value_table, places, key_row, value_row, key_size, value_size,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    place = tl.load(places + row)
    number = tl.arange(0, BLOCK)
    own = number < key_size
    tl.store(
        key_table + place * key_size + number,
        tl.load(keys + row * key_row + number, mask=own),
        mask=own,
    )
    own = number < value_size
    tl.store(
        value_table + place * value_size + number,
        tl.load(values + row * value_row + number, mask=own),
        mask=own,
    )


@triton.jit
def silu_product(both, out, half, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    number = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    own = number < half
    first = tl.load(both + row * 2 * half + number, mask=own, other=0).to(tl.float32)
    second = tl.load(both + row * 2 * half + half + number, mask=own, other=0).to(tl.float32)
    product = first * tl.sigmoid(first) * second
    tl.store(out + row * half + number, product.to(out.dtype.element_ty), mask=own)
