"""Fast paths through every architecture: which ones it carries, and that they change nothing."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from fast_paths_of_model import by_replay, by_whole_passes, error, left_behind, random_gates
from test_architectures import PROVEN
from tiny import VOCAB, tiny_config, tiny_model
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer

from headcount import wrap
from headcount.models.fast_paths import FastPaths
from headcount.models.proof import prove
from headcount.models.prove_fast_paths import prove_fast_paths
from headcount.models.sites import HeadSite

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore")

EVERY_BLOCK: dict[str, str] = {
    "blt": "its heads are in four transformers, each with a list of blocks of its own",
    "gemma3n": "blocks hand on four streams, stacked in front of the rows",
    "gemma3n_text": "as gemma3n; and the last blocks take keys and values from earlier ones",
    "gemma4_text": "the last blocks take keys and values from earlier ones",
    "hrm_text": "blocks run several times",
    "openai-gpt": "blocks give lists",
}
FROM_THE_BLOCK: dict[str, str] = {
    "bloom": "the output projection adds the residual, inside the attention",
    "deepseek_v4": "a second projection follows the one that takes the heads",
}
BERTS = """
    bert bert-generation big_bird camembert data2vec-text electra ernie git megatron-bert rembert
    roberta roberta-prelayernorm roc_bert roformer xlm-roberta xlm-roberta-xl xmod
"""
WHOLE_LAST_BLOCK: dict[str, str] = {
    **dict.fromkeys(BERTS.split(), "modules take the residual as a second argument"),
    **dict.fromkeys(("bloom", "mpt"), "modules take the residual as a second argument"),
    **dict.fromkeys(("llama4", "llama4_text", "opt"), "MLPs run on rows and tokens in one axis"),
    **dict.fromkeys(("deepseek_v4", "hy_v4", "qwen4_exp", "qwen4_exp_text"), "several streams"),
    **dict.fromkeys(("zamba", "zamba2", "zaya"), "modules take or give more than one stream"),
    **dict.fromkeys(("minimax", "nemotron_h"), "the last block has no softmax attention"),
    "axk2": "norms with weights that look like a layer's stand before the attention",
    "falcon_h1": "a state-space layer stands beside the attention",
    "inkling_text": "short convolutions follow the attention",
    "xlm": "blocks are attentions: MLPs are in another list",
}
# Caches of plain key/value layers are split, unless:
NO_CACHE: dict[str, str] = {
    "blt": "its transformers keep caches of different lengths",
    "mllama": "its cache also has layers for images",
    "openai-gpt": "it keeps no keys and values",
    "xlm": "it keeps no keys and values",
}

Proven = tuple[nn.Module, tuple[HeadSite, ...], FastPaths]


@cache
def proven(model_type: str) -> Proven:
    module = tiny_model(model_type)
    sites = prove(module).sites
    return module, sites, prove_fast_paths(module, sites)


def texts(rows: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCAB, (rows, 12), generator=generator)


def plain_layers(model_type: str) -> bool:
    """Whether the cache of an architecture has plain key/value layers only."""
    try:
        layers = DynamicCache(config=tiny_config(model_type)).layers
    except (AttributeError, KeyError):  # kinds of layers that only the model's own code makes
        return False
    return all(type(layer) is DynamicLayer for layer in layers)


# Which fast paths there are


@pytest.mark.parametrize("model_type", PROVEN)
def test_what_each_architecture_carries(model_type: str) -> None:
    module, _, paths = proven(model_type)
    late = model_type not in EVERY_BLOCK
    assert paths.head
    assert (paths.trunk is not None) == late
    assert paths.attention == (late and model_type not in FROM_THE_BLOCK)
    assert paths.scored == (late and model_type not in WHOLE_LAST_BLOCK)
    assert paths.cache == (plain_layers(model_type) and model_type not in NO_CACHE)
    assert left_behind(module) == []


def test_nearly_all_carry_the_first_two() -> None:
    assert len(EVERY_BLOCK) <= 0.05 * len(PROVEN)
    assert set(EVERY_BLOCK) | set(FROM_THE_BLOCK) | set(WHOLE_LAST_BLOCK) <= set(PROVEN)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gpt_neox", "gemma2", "mixtral", "bert"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_carries_the_same(model_type: str, dtype: torch.dtype) -> None:
    module = tiny_model(model_type).to(dtype)
    half = prove_fast_paths(module, prove(module).sites)
    assert half == proven(model_type)[2]


def test_shared_keys_and_values_lose_the_late_start() -> None:
    """The same architecture, with and without layers that take keys from earlier ones."""
    alone = tiny_model("gemma4_text", num_kv_shared_layers=0)
    paths = prove_fast_paths(alone, prove(alone).sites)
    assert paths.trunk is not None
    assert proven("gemma4_text")[2].trunk is None


# That they change nothing


@pytest.mark.parametrize("model_type", [name for name in PROVEN if name not in EVERY_BLOCK])
def test_replays_equal_whole_passes_from_every_site(model_type: str) -> None:
    module, sites, paths = proven(model_type)
    for folds, scored in ((1, 12), (3, 2)):
        ids = texts(rows=4 - folds, seed=folds)
        for start in range(len(sites)):
            gates = random_gates(sites, start, sets=folds, seed=start)
            expected = by_whole_passes(module, sites, ids, gates)[:, -scored:]
            got = by_replay(module, sites, paths, ids, gates, start, scored)
            assert error(got, expected) < 1e-5
    assert left_behind(module) == []


# The proof itself


def test_the_proof_leaves_the_model_as_it_was() -> None:
    module = tiny_model("llama", attention_dropout=0.5)
    sites = prove(module).sites
    module.train()
    module.model.layers[0].eval()
    modes = [part.training for part in module.modules()]
    state, random = {n: p.clone() for n, p in module.state_dict().items()}, torch.get_rng_state()
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        # Dropout would make every comparison fail.
        assert prove_fast_paths(module, sites) == proven("llama")[2]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(precision)
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(state[name], value) for name, value in module.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert left_behind(module) == []


def test_a_proof_that_is_interrupted_leaves_nothing() -> None:
    """At any of its passes, by what is not an error of the model."""
    module, sites, _ = proven("llama")
    left = [0]  # passes until it stops

    def stop(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    handle = module.model.layers[1].mlp.register_forward_pre_hook(stop)
    try:
        prove_fast_paths(module, sites)
        passes = -left[0]
        assert passes > 10
        for at in range(1, passes + 1):
            left[0] = at
            with pytest.raises(KeyboardInterrupt):
                prove_fast_paths(module, sites)
            assert left_behind(module) == ["model.layers.1.mlp: hooks"]
    finally:
        handle.remove()


def test_the_proof_is_made_once_and_when_asked_for() -> None:
    module = tiny_model("llama")
    model = wrap(module, None)
    passes: list[int] = []
    handle = module.register_forward_pre_hook(lambda *_: passes.append(1))
    assert model.fast_paths is model.fast_paths
    first = len(passes)
    model.fast_paths
    handle.remove()
    assert 0 < first == len(passes)


def test_a_deep_model_is_proven_in_few_passes() -> None:
    """Every start is tried, but whole passes are for a few."""
    module = tiny_model("llama", num_hidden_layers=24)
    sites = prove(module).sites
    blocks = 0

    def count(*_: object) -> None:
        nonlocal blocks
        blocks += 1

    for layer in module.model.layers:
        layer.mlp.register_forward_pre_hook(count)
    prove_fast_paths(module, sites)
    assert blocks < 24 * (len(sites) / 2 + 40)
