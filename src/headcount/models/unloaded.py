"""A model whose weights are not loaded: its heads, its names and its tokenizer.

It serves to write adapters for a checkpoint that does not fit into memory, and to describe sweeps
that a server carries out. Running it would prove its head sites, and that is what cannot be done.
So they are proven on a model of the same class and config with random weights, in which only the
number of layers, the vocabulary and the MLPs are smaller; all layers of the whole model must then
have projections of the same names and shapes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headcount.errors import HeadcountError
from headcount.models.bundled import BUNDLED, bundled_folder, full_name
from headcount.models.forward_modes import exactly
from headcount.models.load import (
    ADAPTER,
    CONFIG,
    hub_answers,
    load_tokenizer,
    looks_like_path,
    weight_files,
)
from headcount.models.load_errors import plain_errors
from headcount.models.model import Model
from headcount.models.proof import Proof, prove
from headcount.models.saved_as import loading_class
from headcount.models.sites import HeadSite
from headcount.system.transformers_compat import quiet_transformers

FEW_TOKENS = 128
NARROW = 64  # width of the MLPs of the model that is proven
WIDTHS = (
    *("intermediate_size", "ffn_dim", "n_inner", "d_inner", "ffn_hidden_size", "dim_ff"),
    *("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"),
)


def unloaded_model(
    spec: str | Path, *, revision: str | None = None, trust_remote_code: bool = False
) -> Model:
    """Describe a model without loading its weights: for adapters, and for sweeps on a server.

    `spec` is a folder with a config, a tokenizer and, for adapters, safetensors; a hub id; or a
    bundled name. Whatever would run the model is refused.

    >>> model = unloaded_model("smollm2-135m-q4")
    >>> model.layout.total, next(model.module.parameters()).device
    (270, device(type='meta'))
    """
    spec = full_name(str(spec))
    folder = bundled_folder(spec) if spec in BUNDLED else Path(spec).expanduser()
    hub: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if folder.is_dir():
        where = str(folder)
        if not (folder / CONFIG).exists() or (folder / ADAPTER).exists():
            raise HeadcountError(
                f"{spec} is not the folder of a plain checkpoint: give one with a {CONFIG} and "
                "safetensors, or load the model."
            )
    elif folder.is_file() or looks_like_path(spec):
        raise HeadcountError(f"{spec} is not the folder of a checkpoint: load the model instead.")
    else:
        where = spec
        hub |= {"revision": revision or "main", "local_files_only": not hub_answers()}
    with plain_errors(spec):
        module, config, loader = _on_meta(where, hub)
        tokenizer = load_tokenizer(where, hub)
    proof = _proof_by_a_small_one(spec, module, config, loader)
    name = spec if spec in BUNDLED or not folder.is_dir() else folder.resolve().name
    module.register_forward_pre_hook(lambda *_: _refuse_to_run(name))
    return Model(module, tokenizer, name, proof, _files(where, hub), {"spec": spec})


def _refuse_to_run(name: str) -> None:
    raise HeadcountError(
        f"The weights of {name} are not loaded: it can be measured on a server, by metrics of "
        "log-probabilities and of texts, and cannot run here; for this, load the model."
    )


def _on_meta(where: str, hub: dict[str, Any]) -> tuple[nn.Module, Any, Any]:
    """The whole model without weights, its config, and the class that makes models of it."""
    from transformers import AutoConfig, PreTrainedConfig

    settings, _ = PreTrainedConfig.get_config_dict(where, **hub)
    loader = partial(
        loading_class(where, settings).from_config,
        trust_remote_code=hub["trust_remote_code"],
        dtype=torch.float32,
    )
    config = AutoConfig.from_pretrained(where, **hub)
    with suppress(AttributeError):
        del config.quantization_config
    with quiet_transformers(), torch.device("meta"):
        module = loader(copy.deepcopy(config))
    return module.eval().requires_grad_(False), config, loader


def _proof_by_a_small_one(spec: str, whole: nn.Module, config: Any, loader: Any) -> Proof:
    """Prove the heads of a small model of the same config, and find their like in the whole one."""
    try:
        with quiet_transformers(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            small = loader(_smaller(config)).eval().requires_grad_(False)
        with exactly(small):
            proof = prove(small)
    except Exception as error:  # whatever a class makes of numbers that it was not made for
        raise HeadcountError(
            f"The heads of {spec} cannot be proven on a small model of its config "
            f"({type(error).__name__}: {error}): load the model."
        ) from error
    if tuple(_in_all_layers(proof.sites, small, small)) != proof.sites:
        raise HeadcountError(
            f"The config of {spec} does not tell which of its layers are alike: load the model."
        )
    return replace(proof, sites=tuple(_in_all_layers(proof.sites, small, whole)))


def _smaller(config: Any) -> Any:
    """The config with few layers, among them one of each kind, few tokens and narrow MLPs."""
    config = copy.deepcopy(config)
    text = config.get_text_config()
    kinds = _kinds(text)
    layers = next(n for n in range(1, len(kinds) + 1) if {*kinds[:n]} == {*kinds})
    layers = max(layers, min(2, len(kinds)))
    for name, value in vars(text).items():
        if isinstance(value, list | tuple) and len(value) == len(kinds):
            setattr(text, name, list(value[:layers]))
        elif name in WIDTHS and isinstance(value, int):
            setattr(text, name, min(value, NARROW))
        elif name.endswith("_token_id") and value is not None:
            setattr(text, name, None)
    text.num_hidden_layers, text.vocab_size = layers, min(text.vocab_size, FEW_TOKENS)
    return config


def _kinds(text: Any) -> list[tuple[str, ...]]:
    """What a config says of each layer."""
    count = text.num_hidden_layers
    lists = [v for v in vars(text).values() if isinstance(v, list | tuple) and len(v) == count]
    return [tuple(str(values[layer]) for values in lists) for layer in range(count)]


def _in_all_layers(
    proven: Sequence[HeadSite], small: nn.Module, whole: nn.Module
) -> Iterator[HeadSite]:
    """The sites of the whole model: in each layer those of a proven layer of the same kind."""
    few, all_kinds = (_kinds(module.config.get_text_config()) for module in (small, whole))  # type: ignore[union-attr, operator]
    named = {name: dict(module.named_modules()) for name, module in (("s", small), ("w", whole))}
    index = 0
    for layer, kind in enumerate(all_kinds):
        alike = few.index(kind)
        for site in proven:
            if _layer_of(site.module) != alike:
                continue
            name = _LAYER.sub(f".{layer}.", site.module, count=1)
            one, other = named["s"][site.module], named["w"].get(name)
            if _form(one) != _form(other):
                raise HeadcountError(
                    f"The heads of {name} cannot be told without loading the model: it is not of "
                    f"the form of {site.module} in a small model of the same config. Load it."
                )
            owner = _LAYER.sub(f".{layer}.", site.attention, count=1)
            yield replace(site, index=index, module=name, attention=owner)
            index += 1


_LAYER = re.compile(r"\.(\d+)\.")


def _layer_of(module: str) -> int:
    found = _LAYER.search(module)
    if found is None:
        raise HeadcountError(f"{module} belongs to no layer of its own: load the model.")
    return int(found[1])


def _form(module: nn.Module | None) -> Any:
    """The class of a module, and the shapes of its own tensors."""
    own = [] if module is None else module.named_parameters()
    return type(module), [(name, tuple(tensor.shape)) for name, tensor in own]


def _files(where: str, hub: dict[str, Any]) -> list[Path] | None:
    """The safetensors and the config, as far as they are on this machine."""
    folder = Path(where)
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache

        config = try_to_load_from_cache(where, CONFIG, revision=hub["revision"])
        if not isinstance(config, str):
            return None
        folder = Path(config).parent
    with suppress(HeadcountError):
        return [*weight_files(folder), folder / CONFIG]
    return None
