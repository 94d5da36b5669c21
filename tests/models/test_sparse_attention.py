"""Sparse attention: equal to a slow reference in outputs, edges and gradients, in many models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import VOCAB, tiny_model
from torch import Tensor, nn

from headcount import HeadcountError
from headcount.sparse import attention as kernel
from headcount.sparse.attention import SPARSE, logistic_noise, sparse_attention
from headcount.sparse.make_sparse import (
    OPEN,
    drawing,
    gate_bias,
    make_dense,
    make_sparse,
)

MODELS = ("gpt2", "llama", "qwen3", "olmo2", "mistral", "gemma3_text", "phi3", "opt", "mixtral")


def slow(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor,
    bias: float,
    seed: Tensor | None,
    spread: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The definition, edge by edge, and the gradients by torch; expected edges, and softplus's."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    s = torch.einsum("bhqd,bhkd->bhqk", query, key) * scale
    p = s.masked_fill(~seen, float("-inf")).softmax(-1)
    p = p.nan_to_num(0) if not seen.any(-1).all() else p
    g = s + bias
    if seed is not None:
        g = g + spread * logistic_noise(seed, *s.shape[:2], range(s.shape[2]), s.shape[3])
    a = (g > 0).to(s.dtype)
    if seed is not None:
        a = a + g.sigmoid() - g.sigmoid().detach()
    output = torch.einsum("bhqk,bhkd->bhqd", p * a * seen, value)
    expected = ((s + bias).sigmoid() * seen).sum((-1, -2))
    wide = (F.softplus(s + bias) * seen).sum((-1, -2))
    return output.transpose(1, 2), expected, wide


class Attention(nn.Module):
    """What the function needs of the module that calls it."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.config = type("Config", (), {"gate_bias": bias})()
        self.weight = nn.Parameter(torch.zeros(1))


def tensors(seed: int = 0, queries: int = 7, keys: int = 7) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shapes = ((2, 4, queries, 6), (2, 2, keys, 6), (2, 2, keys, 5))
    made = [torch.randn(s, generator=draw, dtype=torch.float64) * 2 for s in shapes]
    return [x.float().requires_grad_() for x in made]


def masks() -> dict[str, tuple[Tensor | None, Tensor, int, int]]:
    """Name → the mask that is given, which keys are seen, queries, keys."""
    causal = torch.ones(7, 7, dtype=torch.bool).tril()[None, None].expand(2, 1, 7, 7)
    padded = causal.clone()
    padded[1, :, :, :3] = False  # the first queries of this row see nothing
    window = causal & ~torch.ones(7, 7, dtype=torch.bool).tril(-3)
    added = torch.where(padded, 0.0, torch.finfo(torch.float32).min)
    every = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    behind = torch.ones(7, 7, dtype=torch.bool).tril()[None, None, 4:].expand(2, 1, 3, 7)
    return {
        "causal": (None, causal, 7, 7),
        "padded": (padded, padded, 7, 7),
        "window": (window, window, 7, 7),
        "added": (added, padded, 7, 7),
        "one new token": (None, every, 1, 7),
        "new tokens": (behind, behind, 3, 7),
    }


@pytest.mark.parametrize("at_once", [1 << 22, 100])  # all queries, or one at a time
@pytest.mark.parametrize(
    ("noise", "pressure", "spread"),
    [(False, 0.0, 1.0), (True, 0.0, 1.0), (True, 0.2, 1.0), (True, 0.2, 0.3), (True, 0.0, 0.0)],
)
@pytest.mark.parametrize("name", masks())
def test_outputs_edges_and_gradients_equal_a_slow_reference(
    name: str,
    noise: bool,
    pressure: float,
    spread: float,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(kernel.AT_ONCE, "cpu", at_once)
    mask, seen, queries, keys = masks()[name]
    module = Attention(0.3)
    inputs = tensors(queries=queries, keys=keys)
    weights = torch.randn(2, queries, 4, 5, generator=torch.Generator().manual_seed(3))
    got = []
    with drawing([module], 0.3, pressure) as (draw,):
        draw.spread.fill_(spread)
        draw.seed = torch.zeros((), dtype=torch.int32) if noise else None
        output, _ = sparse_attention(module, *inputs, mask, scaling=0.4)
        loss = (output * weights).sum()
        if noise:
            assert draw.expected is not None
            loss = loss + 0.7 * (draw.expected * torch.arange(4)).sum()
        got = [output, draw.expected, *torch.autograd.grad(loss, inputs)]
        opened, possible, seed = draw.open, draw.possible, draw.seed
    output, edges, wide = slow(*inputs, seen, 0.3, seed, spread, 0.4)
    pressed = edges + pressure * wide
    loss = (output * weights).sum() + (0.7 * (pressed * torch.arange(4)).sum() if noise else 0)
    expected = [output, edges, *torch.autograd.grad(loss, inputs)]
    for a, b in zip(got, expected, strict=True):
        assert a is not None
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)
    assert possible is not None
    assert possible.tolist() == seen[:, 0].sum((-1, -2)).tolist()
    assert opened is not None
    assert (opened <= possible[:, None]).all()
    assert 0 < opened.sum() < possible.sum() * 4


def test_a_shut_edge_takes_its_weight_with_it() -> None:
    query, key = torch.ones(1, 1, 1, 1), torch.tensor([1.0, -1.0])[None, None, :, None]
    value = torch.ones(1, 1, 2, 1)
    output, _ = sparse_attention(Attention(0.0), query, key, value, None, scaling=1.0)
    assert output.item() == pytest.approx(F.softmax(torch.tensor([1.0, -1.0]), 0)[0].item())


def texts(rows: int = 2, length: int = 12) -> Tensor:
    return torch.randint(3, VOCAB, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_models_of_many_architectures_run_sparse_with_padding_and_cache(name: str) -> None:
    model = tiny_model(name)
    ids = texts()
    dense = model(input_ids=ids).logits
    attentions = make_sparse(model, bias=0.2)
    assert gate_bias(model) is not None
    assert gate_bias(model) == 0.2
    assert len(attentions) == model.config.num_hidden_layers
    whole = model(input_ids=ids).logits
    assert (whole - dense).abs().max() > 0.01  # some edges are shut
    with drawing(attentions, OPEN):
        torch.testing.assert_close(model(input_ids=ids).logits, dense, rtol=1e-4, atol=1e-4)
    first = model(input_ids=ids[:, :6], use_cache=True)
    logits = [first.logits]
    for place in range(6, 10):  # one token at a time, then two at once
        step = model(input_ids=ids[:, place : place + 1], past_key_values=first.past_key_values)
        logits.append(step.logits)
    step = model(input_ids=ids[:, 10:], past_key_values=first.past_key_values)
    torch.testing.assert_close(torch.cat([*logits, step.logits], 1), whole, rtol=1e-3, atol=1e-4)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    options = {} if name == "opt" else {"position_ids": positions}  # OPT reads them off the mask
    padded = model(input_ids=ids, attention_mask=mask, **options).logits[1, 4:]
    torch.testing.assert_close(padded, model(input_ids=ids[1:, 4:]).logits[0], rtol=1e-3, atol=1e-4)
    make_dense(model)
    torch.testing.assert_close(model(input_ids=ids).logits, dense, rtol=1e-4, atol=1e-4)
    assert not hasattr(model.config, "gate_bias")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bloom", "BloomForCausalLM cannot be made sparse: it does not use"),
        ("falcon", "FalconForCausalLM cannot be made sparse: it does not use"),
        ("gemma2", "changes its attention scores .softcap."),
        ("gpt_oss", "changes its attention scores .s_aux."),
    ],
)
def test_models_that_it_cannot_enter_are_refused_by_name(name: str, says: str) -> None:
    model = tiny_model(name)
    before = model.config._attn_implementation
    with pytest.raises(HeadcountError, match=says):
        make_sparse(model)
    assert model.config._attn_implementation == before
    assert not hasattr(model.config, "gate_bias")


def test_the_kernel_alone_does_not_make_a_model_sparse() -> None:
    kernel.register()
    model = tiny_model("llama")
    model.config._attn_implementation_internal = SPARSE
    with pytest.raises(HeadcountError, match="needs a gate bias"):
        model(input_ids=texts())


def test_noise_is_logistic_and_the_same_in_every_chunk() -> None:
    seed = torch.tensor(7, dtype=torch.int32)
    noise = logistic_noise(seed, 3, 4, range(64), 64)
    chances = noise.sigmoid()
    assert abs(chances.mean() - 0.5) < 0.01
    assert abs(chances.std() - 12**-0.5) < 0.01
    counts = torch.histc(chances, 20, 0, 1)
    assert counts.min() > 0.9 * chances.numel() / 20
    flat = noise.reshape(12, -1)
    alike = torch.corrcoef(flat) - torch.eye(12)
    assert alike.abs().max() < 0.08
    assert torch.equal(noise[:, :, 10:20], logistic_noise(seed, 3, 4, range(10, 20), 64))
    assert not torch.equal(noise, logistic_noise(seed + 1, 3, 4, range(64), 64))


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_blocks_give_the_same_numbers() -> None:
    def run(compiled: bool) -> list[Any]:
        model = tiny_model("llama")
        attentions = make_sparse(model)
        if compiled:
            for block in model.model.layers:
                block.compile()
        found = []
        with drawing(attentions, 0.5) as draws:
            for draw in draws:
                draw.seed = torch.zeros((), dtype=torch.int32)
            for step in range(2):
                for place, draw in enumerate(draws):
                    draw.bias.fill_(0.5 - step)
                    assert draw.seed is not None
                    draw.seed.fill_(10 * step + place)
                model.zero_grad()
                logits = model(input_ids=texts(2, 9), use_cache=False).logits
                edges = torch.stack([draw.expected.sum() for draw in draws])
                (logits.square().mean() + edges.mean()).backward()
                found += [logits.detach(), edges.detach()]
                found += [p.grad.clone() for p in model.parameters()]
        return found

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for a, b in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    # One graph for all blocks and steps, whatever their seeds and biases.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
