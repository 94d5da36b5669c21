"""How rows and tokens lie in a projection's input, and small facts about a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from headcount.models.sites import (
    HeadSite,
    Order,
    accepted,
    coarsest_dtype,
    from_rows,
    input_device,
    input_order,
    plain,
    probe_prompt,
    to_rows,
)

ORDERS: list[Order] = ["rows", "flat", "tokens"]
SIZES = st.integers(1, 6)


def laid_out(by_row: Tensor, order: Order, heads: int) -> Tensor:
    """(rows, tokens, width) as a projection might get it, with or without an axis for heads."""
    x = by_row.transpose(0, 1) if order == "tokens" else by_row
    x = x.flatten(0, 1) if order == "flat" else x
    return x.unflatten(-1, (heads, -1)) if heads else x


class TestLayouts:
    @given(st.sampled_from(ORDERS), SIZES, SIZES, SIZES, st.sampled_from([0, 1, 2]))
    def test_there_and_back(
        self, order: Order, rows: int, tokens: int, width: int, heads: int
    ) -> None:
        by_row = torch.randn(rows, tokens, width * max(heads, 1))
        x = laid_out(by_row, order, heads)
        assert torch.equal(to_rows(x, order, rows), by_row)
        assert torch.equal(from_rows(by_row, order, x), x)

    @given(st.sampled_from(ORDERS), st.integers(2, 9), st.sampled_from([0, 2]))
    def test_orders_are_recognised(self, order: Order, rows: int, heads: int) -> None:
        x = laid_out(torch.randn(rows, 11, 6), order, heads)
        assert input_order(x, rows, 11) == order

    @pytest.mark.parametrize("shape", [(3,), (3, 11), (11, 3), (4, 11, 6), (3, 12, 6), (34, 6)])
    def test_other_shapes_are_not(self, shape: tuple[int, ...]) -> None:
        assert input_order(torch.zeros(shape), 3, 11) is None

    def test_the_columns_of_heads(self) -> None:
        site = HeadSite(0, "o", "a", 0, heads=3, size=4, width=20, start=5)
        assert site.span == slice(5, 17)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(23, 4)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor, use_cache: bool = True) -> Any: ...


class TestModels:
    def test_only_options_that_a_model_takes(self) -> None:
        assert accepted(Model(), use_cache=False, other=1) == {"use_cache": False}

        class Wrapper(Model):
            def forward(self, *args: Any, **kwargs: Any) -> Any: ...

        assert accepted(Wrapper(), use_cache=False, other=1) == {"use_cache": False, "other": 1}

    def test_behind_a_compiled_model(self) -> None:
        module = Model()
        assert plain(module) is module
        assert plain(torch.compile(module, backend="eager")) is module

    def test_the_prompt_is_the_same_in_every_row_and_never_repeats(self) -> None:
        ids = probe_prompt(Model(), rows=3)
        assert ids.shape == (3, 11)
        assert (ids == ids[0]).all()
        assert len(set(ids[0].tolist())) == 11
        assert 0 <= int(ids.min()) <= int(ids.max()) < 23

    @pytest.mark.parametrize(
        ("kinds", "coarsest"),
        [
            ([torch.float32], torch.float32),
            ([torch.float32, torch.bfloat16], torch.bfloat16),
            ([torch.float16, torch.bfloat16], torch.bfloat16),
            ([torch.float64, torch.float16], torch.float16),
            ([torch.float8_e4m3fn, torch.float16], torch.float16),  # for storage alone
            ([torch.uint8, torch.float16], torch.float16),
            ([torch.uint8], torch.float32),
        ],
    )
    def test_the_coarsest_numbers(self, kinds: list[torch.dtype], coarsest: torch.dtype) -> None:
        module = nn.Module()
        for number, kind in enumerate(kinds):
            parameter = nn.Parameter(torch.zeros(2).to(kind), requires_grad=False)
            module.register_parameter(f"p{number}", parameter)
        assert coarsest_dtype(module) == coarsest

    @pytest.mark.parametrize(("place", "expected"), [("cuda:1", "cuda:1"), (None, "cpu")])
    def test_ids_go_where_offloaded_embeddings_run(self, place: Any, expected: str) -> None:
        module = Model().to("meta")
        module.embed._hf_hook = SimpleNamespace(execution_device=place)
        assert input_device(module) == torch.device(expected)
        assert input_device(Model()) == torch.device("cpu")
