"""Checkpoints of nanoGPT as ordinary folders: the layout of the released sparse GPT-2.

Such a checkpoint is a pickle (.pth, .pt). headcount never loads one as a model. It is converted by
a command of its own, for a file that the user chose, without running what a pickle can ask for:
torch's restricted reader (`weights_only`) knows tensors and plain containers, and refuses a file
with anything else before it is called. A .safetensors file in the same layout needs none of this.

nanoGPT is GPT-2 with two differences: its linear layers have the transposed weights, and its
activation is the exact GELU†. The sparse layer has no parameters, so nothing else is in the file.

† As nanoGPT has it today; the file does not say.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.models.export import check_new, new_folder
from headcount.models.load_errors import plain_errors, shorten
from headcount.sparse.checkpoint import SparseFacts, write_facts
from headcount.system.files import checked_path, file_digest
from headcount.system.transformers_compat import quiet_transformers

TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
WRAPPERS = ("model", "model_state_dict", "state_dict")  # under which a checkpoint has its tensors
HEAD_SIZE = 64  # of all GPT-2 models, where the file does not count its heads
NO_CHECKPOINT = "is damaged, or no checkpoint of torch, and was not opened."
TOKENIZER = "openai-community/gpt2"


def convert(
    path: str | Path,
    folder: str | Path,
    *,
    gate_bias: float | None = 0.0,
    heads: int | None = None,
    tokenizer: str = TOKENIZER,
) -> Path:
    """Write a nanoGPT checkpoint as a folder that `load_model` reads.

    `gate_bias` makes it a sparse model; without it (None) it is a dense one. `heads` is the number
    of heads in a layer, where the file does not say it.
    """
    from transformers import AutoTokenizer

    target = check_new(folder)
    found, arguments = read_checkpoint(path)
    tensors = as_gpt2(found, str(path))
    config = config_of(tensors, heads or arguments.get("n_head"), str(path))
    with plain_errors(tokenizer), quiet_transformers():
        words = AutoTokenizer.from_pretrained(tokenizer)
    with new_folder(target) as made:
        from safetensors.torch import save_file

        config.save_pretrained(made)
        save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
        words.save_pretrained(made)
        if gate_bias is not None:
            source = {"file": Path(path).name, "sha256": file_digest(Path(path))}
            write_facts(made, SparseFacts(base=None, gate_bias=gate_bias, training=source))
    return target


def read_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, int]]:
    """The tensors of a checkpoint by name, and the whole numbers among its arguments."""
    path = checked_path(path)
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        with plain_errors(str(path)):
            return load_file(path), {}
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise HeadcountError(f"Cannot read {path} ({error.strerror or error}).") from error
    except pickle.UnpicklingError as error:
        if not zipfile.is_zipfile(path):
            raise HeadcountError(f"{path} {NO_CHECKPOINT}") from error
        what = re.search(r"GLOBAL (\S+)", str(error))
        asks = f" (it asks for {what[1]})" if what else ""
        raise HeadcountError(
            f"{path} holds more than tensors and plain containers{asks}, and opening that could "
            "run code, so it was not opened: ask for a file of tensors alone, or for safetensors."
        ) from error
    except Exception as error:  # zip files, legacy files and cut ones fail in many ways
        raise HeadcountError(f"{path} {NO_CHECKPOINT}") from error
    return _unwrapped(content, path)


def _unwrapped(content: Any, path: Path) -> tuple[dict[str, Tensor], dict[str, int]]:
    """The mapping of tensors in a checkpoint, and the arguments beside it."""
    whole = content if isinstance(content, Mapping) else {}
    inner = next((whole[name] for name in WRAPPERS if isinstance(whole.get(name), Mapping)), whole)
    tensors = {str(name): value for name, value in inner.items() if isinstance(value, Tensor)}
    if not tensors:
        raise HeadcountError(f"{path} holds no tensors by name, as a state dict does.")
    arguments = whole.get("model_args")
    numbers = arguments.items() if isinstance(arguments, Mapping) else ()
    return tensors, {str(name): value for name, value in numbers if type(value) is int}


def as_gpt2(found: Mapping[str, Tensor], path: str) -> dict[str, Tensor]:
    """The tensors under the names and in the shapes that transformers' GPT-2 has."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in found.items():
        name = re.sub(r"^(_orig_mod\.|module\.)+", "", name)
        if re.search(r"\.attn\.(bias|masked_bias)$", name):
            continue  # the causal mask
        value = tensor.detach().to(torch.float32)
        tensors[name] = (value.t() if name.endswith(TRANSPOSED) else value).contiguous().clone()
    layers = sorted({int(m[1]) for n in tensors if (m := re.match(r"transformer\.h\.(\d+)\.", n))})
    if "transformer.wte.weight" not in tensors or layers != list(range(len(layers))) or not layers:
        raise HeadcountError(
            f"{path} does not have the layout of nanoGPT (transformer.wte, h.0 …)."
        )
    _add_zero_biases(tensors, len(layers))
    tied = torch.equal(
        tensors.get("lm_head.weight", tensors["transformer.wte.weight"]),
        tensors["transformer.wte.weight"],
    )
    if tied:
        tensors.pop("lm_head.weight", None)
    return tensors


def _add_zero_biases(tensors: dict[str, Tensor], layers: int) -> None:
    """nanoGPT can be trained without biases, and GPT-2 has them everywhere."""
    inner = ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    names = [f"transformer.h.{n}.{part}" for n in range(layers) for part in inner]
    for name in [*names, "transformer.ln_f"]:
        weight = tensors.get(f"{name}.weight")
        if weight is not None:
            tensors.setdefault(f"{name}.bias", torch.zeros(weight.shape[-1]))


def config_of(tensors: Mapping[str, Tensor], heads: int | None, path: str) -> Any:
    """The GPT-2 config that fits the tensors; refuses missing, further and misshapen ones."""
    from transformers import GPT2Config, GPT2LMHeadModel

    vocabulary, width = tensors["transformer.wte.weight"].shape
    positions = tensors.get("transformer.wpe.weight")
    layers = len({name.split(".")[2] for name in tensors if name.startswith("transformer.h.")})
    heads = heads or width // HEAD_SIZE
    if positions is None or heads < 1 or width % heads:
        raise HeadcountError(
            f"{path}: a width of {width} cannot be that of {heads} heads in a layer, or positions "
            "are missing: give the number of heads with --heads."
        )
    end = vocabulary - 1 if vocabulary <= 50256 else 50256
    config = GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_positions=positions.shape[0],
        n_layer=layers,
        n_head=heads,
        activation_function="gelu",
        bos_token_id=end,
        eos_token_id=end,
        tie_word_embeddings="lm_head.weight" not in tensors,
        architectures=["GPT2LMHeadModel"],
    )
    with torch.device("meta"):
        shapes = {n: p.shape for n, p in GPT2LMHeadModel(config).named_parameters()}
    wrong = {n for n in shapes.keys() & tensors.keys() if shapes[n] != tensors[n].shape}
    wrong |= shapes.keys() ^ tensors.keys()
    if wrong:
        raise HeadcountError(
            f"{path} is not a GPT-2 in the layout of nanoGPT (missing, further or of another "
            f"shape: {shorten(sorted(wrong))})."
        )
    return config
