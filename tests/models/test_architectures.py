"""Every causal LM of transformers, tiny: its heads are proven, and right, or it is refused by name.

What is expected is written down from the configs, by someone who knows the architectures; the code
under test never looks at a config.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
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
    "cpmant": "CpmAntForCausalLM is not causal",  # all tokens count as context
    "jetmoe": "does not take one slice",  # experts hold the output projection
    "prophetnet": "does not take one slice",  # several streams of queries in one attention
    "reformer": "normalised by hand, as Reformer's is",  # by a logsumexp over buckets of keys
    "xlnet": "does not take one slice",  # its projection is an einsum, not a module
}
LEFT_OUT = NOT_DECODER_ONLY_TEXT | CANNOT_BUILD
SOFTMAX = [n for n in model_types() if n not in LEFT_OUT and n not in NO_SOFTMAX_ATTENTION]
PROVEN = [name for name in SOFTMAX if name not in REFUSED]

HEADLESS = {"linear_attention", "conv", "moe", "mlp"}  # kinds of layers without softmax attention

# Heads and their sizes at each site, where one head count and size do not say it all.
GEOMETRY = {
    # a model that cuts bytes into patches (2), one from bytes to patches (2 and 1 across), one of
    # patches (2), and one from patches to bytes (2 and 2 across)
    "blt": [(4, 8)] * 11,
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

# Modules in which tokens mix without heads; numbers are those of "model.layers".
MIXERS = {
    "bailing_hybrid": ["0.self_attn"],
    "bamba": ["0.mamba"],
    "blt": ["model"],  # embeddings of several bytes together, patches
    "falcon_h1": ["0.mamba", "1.mamba"],  # beside the heads
    "granitemoehybrid": ["0.mamba"],
    "inkling_text": ["0.mlp_sconv", "1.mlp_sconv"],  # short convolutions
    "jamba": ["0.mamba"],
    "kimi_linear": ["0.self_attn"],
    "lfm2": ["0.conv"],
    "lfm2_moe": ["0.conv"],
    "minimax": ["1.self_attn"],
    "nemotron_h": ["0.mixer"],
    "olmo_hybrid": ["0.linear_attn"],
    "qwen3_5": ["0.linear_attn"],
    "qwen3_5_moe": ["0.linear_attn"],
    "qwen3_5_moe_text": ["0.linear_attn"],
    "qwen3_5_text": ["0.linear_attn"],
    "qwen3_next": ["0.linear_attn"],
    # embeddings of several tokens together, then a convolution
    "qwen4_exp": ["0.ple.ple_embedding", "0.ple", "0.linear_attn"],
    "qwen4_exp_text": ["0.ple.ple_embedding", "0.ple", "0.linear_attn"],
    "recurrent_gemma": ["0.temporal_block"],
    "zamba": ["0.mamba", "1.mamba_decoder.mamba", "2.mamba", "3.mamba_decoder.mamba"],
    "zamba2": ["0.mamba", "1.mamba_decoder.mamba", "2.mamba", "3.mamba_decoder.mamba"],
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
    assert [mixer.removeprefix("model.layers.") for mixer in shown.mixers] == MIXERS.get(name, [])
    for site in shown.sites:
        assert (site.start, site.width) == (0, site.heads * site.size)
        assert site.queries == (2 if name == "diffllama" else 1)
        assert site.coupled == (name == "bitnet")


@pytest.mark.parametrize("name", PROVEN)
def test_eager_attention_has_the_same_heads(name: str) -> None:
    """Its softmax is seen, whatever the numbers of queries and keys: blt attends to patches."""
    eager = tiny_model(name)
    eager.set_attn_implementation("eager")
    assert prove(eager).sites == proof(name).sites


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(HeadcountError, match=REFUSED[name]):
        prove(tiny_model(name))


@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
def test_models_that_see_later_tokens_are_refused(name: str) -> None:
    prove(tiny_model(name))
    with pytest.raises(HeadcountError, match=r"is not causal: .*is_decoder=True"):
        prove(tiny_model(name, is_decoder=False))


@pytest.mark.parametrize("name", NO_SOFTMAX_ATTENTION)
def test_no_heads(name: str) -> None:
    with pytest.raises(HeadcountError, match="has no heads that can be measured"):
        prove(tiny_model(name))


@pytest.mark.parametrize(
    ("name", "field"),
    [("zaya", "num_experts"), ("mixtral", "num_local_experts"), ("gpt_oss", "num_local_experts")],
)
def test_more_experts_than_tokens(name: str, field: str) -> None:
    # The softmax of such a router looks much like that of an attention.
    assert prove(tiny_model(name, **{field: 16})).sites == proof(name).sites


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
    """Silences query heads in some of a pass's attention calls, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.silent = range(0)  # calls
        self.heads: list[int] = []

    def silence(self, by_head: Tensor, axis: int) -> Tensor:
        """The tensor without those heads; `axis` is that of heads."""
        self.calls += 1
        if self.calls - 1 not in self.silent:
            return by_head
        return by_head.index_fill(axis, torch.tensor(self.heads), 0)


@contextmanager
def through_interface(module: Any, silencer: Silencer) -> Iterator[None]:
    """Run attention by a function registered with transformers."""

    def attend(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        kwargs.pop("softcap", None)  # not for this kernel, and no matter here
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
        softmax = getattr(func, "__name__", "") == "softmax" and out.ndim > 2
        if not softmax and func is not nn.functional.scaled_dot_product_attention:
            return out
        by_head = out.view(len(TEXTS), -1, *out.shape[-2:])  # (rows, heads, tokens, …)
        return self.silencer.silence(by_head, 1).view(out.shape)


# The norm over all heads that stands between its attention and its gates lifts the other heads when
# one is silent before it.
IN_BETWEEN = ["bitnet"]
WAYS: list[Callable[[Any, Silencer], Any]] = [
    through_interface,
    lambda module, silencer: ThroughSoftmax(silencer),
]


@pytest.mark.parametrize("name", [name for name in PROVEN if name not in IN_BETWEEN])
@torch.no_grad()
def test_a_gated_head_is_a_silent_head(name: str) -> None:
    module, sites = model(name), proof(name).sites
    for context in WAYS:
        silencer = Silencer()
        with context(module, silencer):
            plain = module(input_ids=TEXTS, use_cache=False).logits
            each = 2 if name == "diffllama" else 1  # calls for each site
            if silencer.calls != each * len(sites):
                continue  # it computes attention in another way
            last = len(sites) - 1
            places = {(0, 1), (last // 2, 0), (last, sites[-1].heads - 1)}
            for site, head in places:
                silencer.calls, silencer.silent = 0, range(each * site, each * (site + 1))
                # What a head of diffllama says is the difference of two query heads.
                silencer.heads = [head, head + 2] if name == "diffllama" else [head]
                silent = module(input_ids=TEXTS, use_cache=False).logits
                silencer.silent = range(0)
                gates = torch.ones(1, sum(s.heads for s in sites))
                gates[0, sum(s.heads for s in sites[:site]) + head] = 0
                with gating(module, sites, gates):
                    gated = module(input_ids=TEXTS, use_cache=False).logits
                assert (silent - plain).abs().max() > 1e-4
                torch.testing.assert_close(gated, silent, atol=1e-5, rtol=1e-5)
            return
    pytest.fail(f"no way to silence a head of {name}")


@cache
def script() -> Any:
    path = Path(__file__).parents[2] / "scripts" / "architectures.py"
    spec = importlib.util.spec_from_file_location("architectures", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["architectures"] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def outcome(name: str) -> Any:
    if name in LEFT_OUT:
        return None
    try:
        return proof(name)
    except HeadcountError as refusal:
        return refusal


def test_the_table_is_up_to_date() -> None:
    text = script().TABLE.read_text(encoding="utf-8")
    made_with = re.search(r"Made with transformers (\S+)", text)
    assert made_with is not None
    if made_with[1] != transformers.__version__:
        pytest.skip(
            f"docs/architectures.md was made with transformers {made_with[1]}, and "
            f"{transformers.__version__} is installed: `make architectures` makes it anew"
        )
    modules = {name: None if name in LEFT_OUT else model(name) for name in model_types()}
    rows = [script().row(name, outcome(name), modules[name]) for name in sorted(modules)]
    assert text == script().page(rows), "run `make architectures`"
