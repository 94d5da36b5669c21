"""A tiny random causal language model for every architecture that transformers knows.

    model = tiny_model("qwen3_5_text")
    model(input_ids=torch.tensor([[5, 6, 7]])).logits.shape  # (1, 3, VOCAB)

The recipe is one table of small sizes, applied wherever a config has a field of that name, and
a table of exceptions. Sizes are chosen so that wrong guesses fail: `head_dim` is not
`hidden_size // n_heads`, value heads are narrower than query heads where they may be, windows
are shorter than the texts, and every kind of layer that an architecture mixes is there.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCAB = 101

NOT_DECODER_ONLY_TEXT: dict[str, str] = {
    "gemma4_assistant": "a draft head: reads hidden states and keys of a larger model, no tokens",
    "gemma4_unified_assistant": "a draft head: as gemma4_assistant",
    "musicgen": "reads several streams of audio codes, no text",
    "musicgen_melody": "reads several streams of audio codes, no text",
}
CANNOT_BUILD: dict[str, str] = {}
NOT_CAUSAL: dict[str, str] = {
    "cpmant": "its forward marks all tokens as context, and context is attended both ways",
}
NO_SOFTMAX_ATTENTION: dict[str, str] = {
    "falcon_mamba": "selective state space (mamba 1) in every layer",
    "mamba": "selective state space (mamba 1) in every layer",
    "mamba2": "state space with scalar decay for each head (mamba 2) in every layer",
    "rwkv": "weighted average of the past with a decay for each channel (RWKV-4) in every layer",
    "xlstm": "matrix memory with exponential gates (mLSTM) in every layer",
}

# Small sizes by field name: applied wherever a config, or a config inside it, has the field.
SIZES: dict[str, Any] = {
    # vocabulary and special tokens: ids 0, 1, 2 are special, so tests draw from 3 upwards
    **dict.fromkeys(("vocab_size", "decoder_vocab_size", "vocab_size_per_layer_input"), VOCAB),
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "is_decoder": True,
    # width
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "emb_dim", "embedding_dim"), 32),
    **dict.fromkeys(("embedding_size", "input_embedding_size", "output_embedding_size"), 32),
    **dict.fromkeys(("word_embed_proj_dim", "lru_width", "hidden_size_global"), 32),
    **dict.fromkeys(("pronunciation_embed_dim", "shape_embed_dim"), 8),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim"), 24),
    **dict.fromkeys(("n_inner", "dff", "dim_ff", "d_inner", "ffn_hidden_size"), 24),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 20),
    **dict.fromkeys(("expert_ffn_hidden_size", "intermediate_size_mlp"), 20),
    **dict.fromkeys(("shared_intermediate_size", "dense_intermediate_size"), 20),
    **dict.fromkeys(("feed_forward_size", "moe_shared_expert_intermediate_size"), 20),
    **dict.fromkeys(("hidden_size_per_layer_input", "router_hidden_size"), 8),
    **dict.fromkeys(("laurel_rank", "hc_lowrank", "o_lora_rank", "gated_norm_rank"), 6),
    # depth
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("decoder_layers", "encoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_encoder_layers", "depth"), 2),
    **dict.fromkeys(("num_mtp_layers", "num_nextn_predict_layers", "num_kv_shared_layers"), 0),
    # softmax attention
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("attention_heads", "decoder_attention_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("num_decoder_attention_heads", "num_encoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "d_head", "dim_head", "kv_channels", "attention_head_size"), 16),
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "q_lora_rank": 20,
    "kv_lora_rank": 14,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 6,
    "rotary_dim": 8,
    **dict.fromkeys(("sliding_window", "window_size", "attention_window_size"), 8),
    **dict.fromkeys(("sliding_window_size", "attention_chunk_size"), 8),
    "local_attention": 16,  # counts both sides
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    # experts
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("moe_top_k", "zero_expert_num"), 2),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), 1),
    "moe_num_experts": 4,
    "first_k_dense_replace": 1,
    # logits of about unit size
    "logit_scale": 1.0,
    "dim_model_base": 32,
    # linear attention, state space and convolution
    **dict.fromkeys(("linear_num_key_heads", "linear_num_heads"), 2),
    "linear_num_value_heads": 4,
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 16),
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), 8),
    **dict.fromkeys(("mamba_chunk_size", "chunk_size"), 8),
    **dict.fromkeys(("mamba_dt_rank", "time_step_rank"), 4),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 4),
    "mamba_head_dim": 16,
    **dict.fromkeys(("mamba_n_groups", "n_groups", "mamba_ngroups"), 2),
    # encoders of images and sound, which text never reaches
    "image_size": 8,
    "patch_size": 4,
}

# These read a `head_dim` that their configs do not declare (Qwen3-30B-A3B, say, depends on it).
UNDECLARED_HEAD_DIM = """
    apertus bamba cohere doge dots1 ernie4_5_moe exaone4 exaone_moe falcon_h1 flex_olmo glm4_moe
    granite granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared jamba lfm2
    lfm2_moe nanochat olmo olmo2 olmo3 olmo_hybrid phi phi3 phi4_multimodal phimoe qwen2 qwen2_moe
    qwen3_moe smollm3 starcoder2
"""

LAYER_PATTERNS = {"layer_types", "mlp_layer_types", "layers_block_type"}

GEMMA4 = {"global_head_dim": 24}  # of the layers that see the whole text

QWEN4_EXP = {
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 4,
    "indexer_compress_ratio": 2,
    "ple_layer_ids": [1],
    "ple_embed_dim": 16,
    "heads_per_ngram": 2,
    "ngram_vocab_size_base": 50,
    "make_ngram_vocab_size_divisible_by": 8,
    "split_ngram_parts": 1,
}

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "blt": {"encoder_hash_byte_group_vocab": 50, "patching_threshold": 4.2, "use_cache": False},
    # its config leaves the rotary parameters of each kind of layer to the caller
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [2, 1, 1],
            },
            "full_attention": None,
        },
    },
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    "deepseek_v4": {
        "num_key_value_heads": 1,
        "layer_types": [
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
        ],
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
        "o_groups": 2,
        "index_topk": 2,
    },
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_d_head": 16},
    # the last layers take their keys and values from earlier ones
    "gemma3n_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 2},
    "gemma4": {"text_config": GEMMA4},
    "gemma4_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 2} | GEMMA4,
    "gemma4_unified": {"text_config": GEMMA4},
    "gemma4_unified_text": GEMMA4,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "helium": {"head_dim": 8},  # its output projection takes hidden_size inputs
    "inkling_text": {
        "swa_num_attention_heads": 6,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 12,
        "d_rel": 4,
        "rel_extent": 16,
        "logits_mup_width_multiplier": 1.0,
    },
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "laguna": {
        "layer_types": ["full_attention", "sliding_attention"],
        "num_attention_heads_per_layer": [4, 6],
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "longcat_flash": {"head_dim": 8},  # the rotary part alone
    "minimax_m3_vl_text": {
        "layer_types": ["full_attention", "minimax_m3_sparse"],
        "index_block_size": 2,
        "index_topk_blocks": 2,
    },
    # text alone skips the layers that look at images
    "mllama": {"text_config": {"num_hidden_layers": 3, "cross_attention_layers": [1]}},
    "phi4_multimodal": {
        "audio_config": {
            "ext_pw_out_channel": 16,
            "depthwise_separable_out_channel": 16,
            "nemo_conv_channels": 16,
        },
    },
    "qwen4_exp": {"text_config": QWEN4_EXP},
    "qwen4_exp_text": QWEN4_EXP,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_shape": (8, 8),
        "axial_pos_embds_dim": (8, 24),
    },
    "xlm": {"causal": True},
    "xlnet": {"attn_type": "uni", "d_head": 8},
    # the sizes of its cache are rounded up to multiples of 64, those of its layers are not
    "xlstm": {"hidden_size": 64, "embedding_dim": 64, "qk_dim_factor": 1.0},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 4},
    "zamba2": {"num_hidden_layers": 4},
    "zaya": {"num_experts_per_tok": 1, "layer_types": ["hybrid", "hybrid_sliding"]},
}


def model_types() -> list[str]:
    """Return every model type that `AutoModelForCausalLM` can build."""
    return list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def tiny_model(model_type: str, *, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Build the tiny model of an architecture: random weights, fp32, eval mode.

    `overrides` are config fields, as in `tiny_model("llama", num_hidden_layers=3)`.
    """
    transformers.logging.set_verbosity_error()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        config = tiny_config(model_type, **overrides)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    _randomise(model, torch.Generator().manual_seed(seed))
    return model


def tiny_config(model_type: str, **overrides: Any) -> PreTrainedConfig:
    """Build the tiny config of an architecture."""
    exceptions = EXCEPTIONS.get(model_type, {}) | overrides
    if model_type in UNDECLARED_HEAD_DIM.split():
        exceptions = {"head_dim": SIZES["head_dim"]} | exceptions
    cls = CONFIG_MAPPING[model_type]
    config = cls(**_sizes(cls(), exceptions))
    if model_type == "gemma3n":
        # Its image encoder needs timm. Any other will do, since text never reaches it, but the
        # config checks the class of what is set: hence the detour.
        tokens = {"vocab_size": 8, "vocab_offset": VOCAB, "rms_norm_eps": 1e-6}
        vars(config)["vision_config"] = tiny_config("siglip_vision_model", **tokens)
    return config


def _sizes(default: PreTrainedConfig, exceptions: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a small config of the same class, and of the configs inside it."""
    fields = {field.name for field in dataclasses.fields(default)}
    sizes = {name: value for name, value in SIZES.items() if name in fields}
    if "kv_lora_rank" in fields:  # latent attention unpacks one key and value per query head
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    sizes |= exceptions

    # One layer of each kind that the full-size default has, repeated up to the depth.
    patterns = {
        name: exceptions.get(name) or list(dict.fromkeys(getattr(default, name)))
        for name in LAYER_PATTERNS & fields
        if exceptions.get(name) or getattr(default, name)
    }
    depth = exceptions.get("num_hidden_layers") or max([2, *map(len, patterns.values())])
    if patterns:
        sizes["num_hidden_layers"] = depth
    for name, kinds in patterns.items():
        sizes[name] = [kinds[layer % len(kinds)] for layer in range(depth)]

    for name in default.sub_configs:
        inner = getattr(default, name, None)
        if isinstance(inner, PreTrainedConfig):
            sizes[name] = type(inner)(**_sizes(inner, exceptions.get(name, {})))
    return sizes


@torch.no_grad()
def _randomise(model: PreTrainedModel, generator: torch.Generator) -> None:
    """Draw the weights anew: the usual initialisation leaves small, zero or equal ones.

    Weights centred on zero keep the size of what they read. All else (the ones of norms, decay
    rates, gates and biases that start at zero) keeps its place and gets noise, so that nothing
    on the way to the logits is exactly zero, or the same for two heads.
    """
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        mean, std = parameter.mean().abs(), parameter.std(correction=0)
        if parameter.ndim >= 2 and not mean > std:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
        else:
            parameter.add_(0.1 * noise)
