"""Every causal LM of transformers, tiny: its heads are proven, and right, or it is refused by name.

What is expected is written down from the configs, by someone who knows the architectures; the code
under test never looks at a config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from tiny import (
    CANNOT_BUILD,
    NO_SOFTMAX_ATTENTION,
    NOT_DECODER_ONLY_TEXT,
    model_types,
    tiny_model,
)
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from headcount.errors import HeadcountError
from headcount.models.gate import gating
from headcount.models.proof import Proof, prove

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore")

REFUSED = {
    "blt": "no linear output projection receives",  # several models in one
    "jetmoe": "does not take one slice",  # experts hold the output projection
    "prophetnet": "does not take one slice",  # several streams of queries in one attention
    "reformer": "no softmax attention was seen",  # buckets of keys, normalised by a logsumexp
    "xlnet": "does not take one slice",  # its projection is an einsum, not a module
}
LEFT_OUT = NOT_DECODER_ONLY_TEXT | CANNOT_BUILD
SOFTMAX = [n for n in model_types() if n not in LEFT_OUT and n not in NO_SOFTMAX_ATTENTION]
PROVEN = [name for name in SOFTMAX if name not in REFUSED]

HEADLESS = {"linear_attention", "conv", "moe", "mlp"}  # kinds of layers without softmax attention

# Heads and their sizes at each site, where one head count and size do not say it all.
GEOMETRY = {
    "cpmant": [(4, 16), (4, 16)],  # its config calls the size dim_head
    "diffllama": [(2, 32), (2, 32)],  # two query heads make one
    "gemma4": [(4, 16), (4, 24)],  # layers that see the whole text have larger heads
    "gemma4_text": [(4, 16), (4, 24), (4, 16), (4, 24)],
    "gemma4_unified": [(4, 16), (4, 24)],
    "gemma4_unified_text": [(4, 16), (4, 24)],
    "hrm_text": [(4, 16)] * 16,  # two blocks for each of two timescales, each run over and over
    "inkling_text": [(6, 12), (4, 16)],  # sliding layers have heads of their own
    "laguna": [(4, 16), (6, 16)],
    "longcat_flash": [(4, 10)] * 4,  # two attentions in each layer
    "mllama": [(4, 8), (4, 8)],  # without an image, layers of cross-attention are skipped
    "recurrent_gemma": [(4, 8)],  # block_types: one recurrent, one attention
}

# Modules in which tokens mix without heads.
MIXERS = {
    "bailing_hybrid": ["model.layers.0.self_attn"],
    "bamba": ["model.layers.0.mamba"],
    "falcon_h1": ["model.layers.0.mamba", "model.layers.1.mamba"],  # beside the heads
    "granitemoehybrid": ["model.layers.0.mamba"],
    "inkling_text": ["model.layers.0.mlp_sconv", "model.layers.1.mlp_sconv"],
    "jamba": ["model.layers.0.mamba"],
    "kimi_linear": ["model.layers.0.self_attn"],
    "lfm2": ["model.layers.0.conv"],
    "lfm2_moe": ["model.layers.0.conv"],
    "minimax": ["model.layers.1.self_attn"],
    "nemotron_h": ["model.layers.0.mixer"],
    "olmo_hybrid": ["model.layers.0.linear_attn"],
    **{
        name: ["model.layers.0.linear_attn"]
        for name in (*("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),)
    },
    # embeddings of the last few tokens together
    "qwen4_exp": ["model.layers.0.ple", "model.layers.0.linear_attn"],
    "qwen4_exp_text": ["model.layers.0.ple", "model.layers.0.linear_attn"],
    "recurrent_gemma": ["model.layers.0.temporal_block"],
    **{
        name: [
            *("model.layers.0.mamba", "model.layers.1.mamba_decoder.mamba"),
            *("model.layers.2.mamba", "model.layers.3.mamba_decoder.mamba"),
        ]
        for name in ("zamba", "zamba2")
    },
}


@cache
def model(name: str) -> Any:
    return tiny_model(name)


@cache
def proof(name: str) -> Proof:
    return prove(model(name))


def geometry(name: str) -> list[tuple[int, int]]:
    """Heads and sizes that the config promises."""
    if name in GEOMETRY:
        return GEOMETRY[name]
    config = model(name).config.get_text_config(decoder=True)
    try:
        heads = config.num_attention_heads
    except AttributeError:
        heads = config.decoder_attention_heads
    size = (
        getattr(config, "v_head_dim", None)
        or getattr(config, "head_dim", None)
        or config.hidden_size // heads
    )
    if name in ("zamba", "zamba2"):  # "hybrid" layers have both
        layers = config.layers_block_type.count("hybrid")
    else:
        kinds = getattr(config, "layer_types", None) or [""] * config.num_hidden_layers
        layers = sum(kind not in HEADLESS for kind in kinds)
    return [(heads, size)] * layers


@pytest.mark.parametrize("name", PROVEN)
def test_proven(name: str) -> None:
    shown = proof(name)
    assert [(site.heads, site.size) for site in shown.sites] == geometry(name)
    assert [site.index for site in shown.sites] == list(range(len(shown.sites)))
    assert all(check.holds for check in shown.checks)
    assert list(shown.mixers) == MIXERS.get(name, [])
    for site in shown.sites:
        assert (site.start, site.width) == (0, site.heads * site.size)
        assert site.queries == (2 if name == "diffllama" else 1)
        assert site.coupled == (name == "bitnet")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(HeadcountError, match=REFUSED[name]):
        prove(tiny_model(name))


@pytest.mark.parametrize("name", NO_SOFTMAX_ATTENTION)
def test_no_heads(name: str) -> None:
    with pytest.raises(HeadcountError, match="has no heads to measure"):
        prove(tiny_model(name))


def test_the_share_that_is_proven() -> None:
    assert set(REFUSED) | set(GEOMETRY) | set(MIXERS) <= set(SOFTMAX)
    assert len(SOFTMAX) > 160
    assert len(PROVEN) >= 0.95 * len(SOFTMAX)


def test_blocks_that_are_shared() -> None:
    sites = proof("hrm_text").sites
    runs = [(site.module, site.call) for site in sites]
    assert len(set(runs)) == 16
    assert len({site.module for site in sites}) == 4
    assert {site.call for name in PROVEN if name != "hrm_text" for site in proof(name).sites} == {0}


# The cross-check: silence one head where attention itself is computed, which needs no knowledge of
# columns, and compare the logits with those of the gated model.

TEXTS = torch.randint(3, 101, (2, 9), generator=torch.Generator().manual_seed(2))


class Silencer:
    """Silences one head of one attention call in each pass, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.target: tuple[int, int] | None = None

    def silence(self, by_head: Tensor, axis: int) -> Tensor:
        """The tensor without the target head; `axis` is that of heads."""
        call, self.calls = self.calls, self.calls + 1
        if self.target is None or self.target[0] != call:
            return by_head
        keep = torch.ones(by_head.shape[axis], dtype=by_head.dtype)
        keep[self.target[1]] = 0
        return by_head * keep.view(-1, *(1,) * (by_head.ndim - 1 - axis % by_head.ndim))


@contextmanager
def through_interface(module: Any, silencer: Silencer) -> Iterator[None]:
    """Run attention by a function registered with transformers."""

    def attend(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        out, _ = sdpa_attention_forward(*args, **kwargs)  # (rows, tokens, heads, size)
        return silencer.silence(out, 2), None

    AttentionInterface.register("silenced", attend)
    AttentionMaskInterface.register("silenced", sdpa_mask)
    before = module.config._attn_implementation
    try:
        module.set_attn_implementation("silenced")
        yield
    finally:
        module.set_attn_implementation(before)
        AttentionInterface._global_mapping.pop("silenced")
        AttentionMaskInterface._global_mapping.pop("silenced")


class ThroughSoftmax(TorchFunctionMode):
    """Zero the weights that a head gives to all tokens, for models that compute them themselves."""

    def __init__(self, silencer: Silencer) -> None:
        super().__init__()
        self.silencer = silencer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        heads = func is nn.functional.scaled_dot_product_attention or (
            getattr(func, "__name__", "") == "softmax" and out.ndim == 4
        )
        return self.silencer.silence(out, 1) if heads and len(out) == len(TEXTS) else out


# Silencing a head before this is more than silencing its slice after it.
IN_BETWEEN = {
    "bitnet": "a norm over all heads",
    "diffllama": "two query heads make one",
}
NOT_CHECKED = {}
WAYS: dict[str, Callable[[Any, Silencer], Any]] = {
    "interface": through_interface,
    "softmax": lambda module, silencer: ThroughSoftmax(silencer),
}
ways: dict[str, str] = {}


@pytest.mark.parametrize("name", [name for name in PROVEN if name not in IN_BETWEEN])
@torch.no_grad()
def test_a_gated_head_is_a_silent_head(name: str) -> None:
    module, sites = model(name), proof(name).sites
    for way, context in WAYS.items():
        silencer = Silencer()
        with context(module, silencer):
            plain = module(input_ids=TEXTS, use_cache=False).logits
            if silencer.calls != len(sites):
                continue  # it computes attention in another way
            ways[name] = way
            places = {(0, 1), (len(sites) - 1, sites[-1].heads - 1), (len(sites) // 2, 2)}
            for site, head in places:
                silencer.calls, silencer.target = 0, (site, head)
                silent = module(input_ids=TEXTS, use_cache=False).logits
                silencer.target = None
                gates = torch.ones(1, sum(s.heads for s in sites))
                gates[0, sum(s.heads for s in sites[:site]) + head] = 0
                with gating(module, sites, gates):
                    gated = module(input_ids=TEXTS, use_cache=False).logits
                assert (silent - plain).abs().max() > 1e-3
                torch.testing.assert_close(gated, silent, atol=1e-5, rtol=1e-5)
            return
    pytest.fail(f"no way to silence a head of {name}")
