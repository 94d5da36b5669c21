"""Which columns belong to which head, read off tensors that are made by hand."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from headcount.models.slices import (
    QUANTISED,
    is_projection,
    linear_limit,
    read_slices,
    rows_differ,
    tolerance,
)

TOKENS = 5
HEADS, SIZE = st.integers(1, 8), st.integers(1, 12)


def disturbed(
    heads: int, size: int, *, before: int = 0, after: int = 0, seed: int = 0, dead: int = 0
) -> Tensor:
    """Rows of which row r has head r − 1 disturbed; the first `dead` heads always say nothing."""
    generator = torch.Generator().manual_seed(seed)
    width = before + heads * size + after
    base = torch.randn(TOKENS, width, generator=generator)
    rows = base.repeat(heads + 1, 1, 1)
    for head in range(heads):
        start = before + head * size
        if head < dead:
            rows[:, :, start : start + size] = 0
        else:
            noise = torch.randn(TOKENS, size, generator=generator)
            rows[head + 1, :, start : start + size] += noise + noise.sign()
    return rows  # (rows, tokens, width)


def cut(rows: Tensor, queries: int) -> tuple[int, int, int] | None:
    """Start, heads and size, or None."""
    slices = read_slices(rows, queries)
    return None if slices is None else slices[:3]


class TestReadSlices:
    @given(heads=HEADS, size=SIZE, seed=st.integers(0, 9))
    def test_heads_side_by_side(self, heads: int, size: int, seed: int) -> None:
        slices = read_slices(disturbed(heads, size, seed=seed), heads)
        assert slices is not None
        assert slices == (0, heads, size, False, 0.0)

    @given(heads=HEADS, size=SIZE, before=st.integers(0, 9), after=st.integers(0, 9))
    def test_columns_beside_the_heads_are_no_heads(
        self, heads: int, size: int, before: int, after: int
    ) -> None:
        rows = disturbed(heads, size, before=before, after=after)
        assert cut(rows, heads) == (before, heads, size)

    @given(heads=st.integers(2, 6), size=st.integers(2, 8), shift=st.integers(1, 47))
    def test_shifted_columns_are_refused(self, heads: int, size: int, shift: int) -> None:
        # Rolled round the end, some head lies in two pieces or in another's place.
        assume(shift < heads * size)
        assert cut(disturbed(heads, size).roll(shift, -1), heads) is None

    @given(heads=st.integers(2, 6), size=st.integers(2, 8), data=st.data())
    def test_permuted_columns_are_refused(self, heads: int, size: int, data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(heads * size)))
        owners = [column // size for column in order]
        found = cut(disturbed(heads, size)[..., order], heads)
        assert found == ((0, heads, size) if owners == sorted(owners) else None)

    @pytest.mark.parametrize("heads", [2, 3, 4, 8])
    def test_interleaved_heads_are_refused(self, heads: int) -> None:
        rows = disturbed(heads, 6).unflatten(-1, (heads, 6)).transpose(-1, -2).flatten(-2)
        assert cut(rows, heads) is None

    @pytest.mark.parametrize("heads", [2, 3, 4])
    def test_heads_in_another_order_are_refused(self, heads: int) -> None:
        rows = disturbed(heads, 6).unflatten(-1, (heads, 6)).flip(-2).flatten(-2)
        assert cut(rows, heads) is None

    @given(
        heads=st.integers(2, 6),
        size=st.integers(2, 8),
        strength=st.floats(0.01, 1),
        data=st.data(),
    )
    def test_overlapping_heads_are_refused(
        self, heads: int, size: int, strength: float, data: st.DataObject
    ) -> None:
        head = data.draw(st.integers(0, heads - 1))
        columns = [c for c in range(heads * size) if c // size != head]
        rows = disturbed(heads, size)
        rows[head + 1, :, data.draw(st.sampled_from(columns))] += strength
        assert cut(rows, heads) is None

    def test_talking_heads_are_refused(self) -> None:
        rows = disturbed(4, 6)
        mixed = rows + 0.02 * rows.roll(6, -1)
        assert cut(mixed, 4) is None

    @pytest.mark.parametrize(
        ("heads", "dead", "accepted"),
        [(4, 1, True), (4, 2, True), (4, 3, False), (8, 4, True), (8, 5, False), (2, 1, True)],
    )
    def test_a_few_dead_heads_prove_nothing(self, heads: int, dead: int, accepted: bool) -> None:
        found = cut(disturbed(heads, 6, dead=dead), heads)
        assert found == ((0, heads, 6) if accepted else None)

    def test_nothing_disturbed_is_refused(self) -> None:
        assert cut(torch.randn(1, TOKENS, 24).repeat(5, 1, 1), 4) is None

    def test_one_slice_for_many_heads_is_refused(self) -> None:
        rows = torch.randn(1, TOKENS, 12).repeat(4, 1, 1)
        rows[1:] += torch.randn(3, TOKENS, 12)
        assert cut(rows, 3) is None

    @pytest.mark.parametrize("group", ["neighbours", "halves"])
    @pytest.mark.parametrize("per_slice", [2, 3])
    def test_query_heads_that_share_a_slice(self, per_slice: int, group: str) -> None:
        slices, size = 4, 6
        owners = torch.arange(slices * per_slice)
        owners = owners // per_slice if group == "neighbours" else owners % slices
        rows = torch.randn(1, TOKENS, slices * size).repeat(len(owners) + 1, 1, 1)
        for query, owner in enumerate(owners.tolist()):
            rows[query + 1, :, owner * size : (owner + 1) * size] += torch.randn(TOKENS, size)
        assert cut(rows, len(owners)) == (0, slices, size)

    def test_slices_shared_by_unequal_groups_are_refused(self) -> None:
        rows = torch.randn(1, TOKENS, 12).repeat(5, 1, 1)
        for query, owner in enumerate((0, 0, 0, 1)):
            rows[query + 1, :, owner * 6 : (owner + 1) * 6] += torch.randn(TOKENS, 6)
        assert cut(rows, 4) is None

    @pytest.mark.parametrize("heads", [2, 4])
    def test_a_norm_over_all_heads_is_recognised(self, heads: int) -> None:
        rows = torch.nn.functional.rms_norm(disturbed(heads, 6), (heads * 6,))
        slices = read_slices(rows * torch.rand(heads * 6), heads)
        assert slices is not None
        assert slices[:4] == (0, heads, 6, True)
        assert slices.leak < 1e-5

    def test_a_norm_of_each_head_couples_nothing(self) -> None:
        rows = torch.nn.functional.rms_norm(disturbed(4, 6).unflatten(-1, (4, 6)), (6,))
        slices = read_slices(rows.flatten(-2), 4)
        assert slices is not None
        assert not slices.coupled

    def test_a_norm_that_moves_the_others_is_refused(self) -> None:
        # LayerNorm also takes off the mean of all heads: every slice then holds a bit of each.
        assert cut(torch.nn.functional.layer_norm(disturbed(4, 6), (24,)), 4) is None

    def test_two_heads_of_one_number_are_not_taken_for_a_norm(self) -> None:
        rows = disturbed(2, 1)
        rows[1, :, 1] += torch.randn(TOKENS)
        assert cut(rows, 2) is None

    def test_half_precision_forgives_rounding_only(self) -> None:
        rows = disturbed(4, 6).bfloat16()
        limit = tolerance(torch.bfloat16)
        assert read_slices(rows, 4, limit) is not None
        rows[1, :, 6:] += 0.2
        assert read_slices(rows, 4, limit) is None


class Twice(nn.Module):
    """A linear layer with something beside it."""

    def __init__(self, beside: nn.Module) -> None:
        super().__init__()
        self.linear, self.beside = nn.Linear(8, 8), beside

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.beside(x)


class TestIsProjection:
    @pytest.mark.parametrize(
        ("module", "expected"),
        [
            (nn.Linear(8, 5), True),
            (nn.Linear(8, 8), True),
            (nn.Linear(8, 8, bias=False), True),
            (Twice(nn.Linear(8, 8)), True),  # an adapter
            (nn.Sequential(nn.Linear(8, 3), nn.Linear(3, 8)), True),  # of low rank
            (nn.Identity(), False),
            (nn.Dropout(0.5).eval(), False),
            (nn.RMSNorm(8), False),
            (nn.LayerNorm(8), False),
            (nn.SiLU(), False),
            (nn.Softmax(-1), False),
            (nn.Sequential(nn.Linear(8, 8), nn.Tanh()), False),
            (nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), False),
            (Twice(nn.SiLU()), False),
        ],
        ids=str,
    )
    @torch.no_grad()
    def test_modules(self, module: nn.Module, expected: bool) -> None:
        x = torch.randn(3, TOKENS, 8, generator=torch.Generator().manual_seed(0))
        assert is_projection(module, x, linear_limit(module, x.dtype)) == expected

    @torch.no_grad()
    def test_a_scale_for_each_column_is_no_projection(self) -> None:
        x, scale = torch.randn(3, 8), torch.randn(8)
        assert not is_projection(lambda x: x * scale, x, 1e-4)

    @torch.no_grad()
    def test_a_module_that_returns_no_tensor_is_no_projection(self) -> None:
        assert not is_projection(lambda x: (x, None), torch.randn(3, 8), 1e-4)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    @torch.no_grad()
    def test_a_large_residual_hides_nothing_but_rounding(self, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        linear = nn.Linear(64, 64).to(dtype)
        x = torch.randn(3, TOKENS, 64, generator=generator).to(dtype)
        residual = (20 * torch.randn(64, generator=generator)).to(dtype)
        assert is_projection(lambda x: linear(x) + residual, x, tolerance(dtype))
        assert not is_projection(lambda x: linear(x).relu() * 40 + residual, x, tolerance(dtype))

    @torch.no_grad()
    def test_nan_is_no_projection(self) -> None:
        assert not is_projection(lambda x: x @ torch.full((8, 8), torch.nan), torch.ones(3, 8), 1)


class TestLimits:
    def test_plain_weights_must_be_exact(self) -> None:
        assert linear_limit(nn.Linear(2, 2), torch.float32) == tolerance(torch.float32)

    def test_stored_in_eight_bits(self) -> None:
        eight = nn.Linear(2, 2).to(torch.float8_e4m3fn)
        assert linear_limit(eight, torch.float32) == QUANTISED

    def test_weights_of_a_kind_of_their_own(self) -> None:
        class Packed(nn.Parameter):
            """As quantisers have them: they look like plain numbers and multiply otherwise."""

        layer = nn.Linear(2, 2)
        layer.weight = Packed(layer.weight.data)
        assert linear_limit(layer, torch.float32) == QUANTISED

    @pytest.mark.parametrize("width", [20, 64, 300])
    @torch.no_grad()
    def test_eight_bit_rounding_of_inputs_is_forgiven(self, width: int) -> None:
        for seed in range(10):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                layer, x = nn.Sequential(nn.Linear(width, width)), torch.randn(5, TOKENS, width)
            x[1:, :, : width // 4] *= 4  # a head that is disturbed makes coarser steps for all
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch lets go of this, users have not yet
                layer = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear})
            assert is_projection(layer, x, linear_limit(layer, x.dtype))
            assert not is_projection(layer, x, tolerance(x.dtype))
            assert not is_projection(lambda x: layer(x).relu(), x, QUANTISED)  # noqa: B023

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_rounding_is_no_difference(self, dtype: torch.dtype) -> None:
        rows = torch.ones(2, TOKENS, 4, dtype=dtype)
        limit = tolerance(dtype)
        rows[1, 0, 0] += torch.finfo(dtype).eps
        assert not rows_differ(rows, limit)
        rows[1, 0, 0] += 8 * limit
        assert rows_differ(rows, limit)
