"""A smaller checkpoint: the weights of removed heads are cut away, and the config says so.

Which rows and columns belong to a head is not looked up by architecture. A model of the smaller
config is made without memory, and each weight whose shape differs there is cut. Where a size can be
divided among heads in several ways (queries, keys and values in one matrix), each way is tried: the
cut model must give the logits of the model whose heads are gated.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads import HeadScores, as_gates
from headcount.models.export import (
    NOT_WRITTEN,
    check_new,
    difference,
    fold,
    gated_logits,
    plain_module,
    write_checkpoint,
)
from headcount.models.forward_modes import exactly
from headcount.models.groups import (
    Geometry,
    best_kept,
    check_size,
    choose_size,
    geometry_of,
    size_of,
)
from headcount.models.model import Model, check_model
from headcount.models.sites import accepted, coarsest_dtype, probe_prompt, run
from headcount.models.slices import tolerance
from headcount.system.transformers_compat import attention_configs, quiet_transformers

Cut = Bool[np.ndarray, "places"]  # which rows (or columns) of a weight are kept
Ways = Mapping[tuple[int, int], int]  # size before and after → number of a division


@dataclass(frozen=True)
class Footprint:
    """The size of a model: its parameters, and the bytes of its cache for each token.

    The cache is measured; its size is None if the model keeps no keys and values that can be told.
    """

    parameters: int
    cache_bytes: int | None


@dataclass(frozen=True)
class Pruned:
    """A checkpoint with fewer heads, and how it was proven.

    kept        the geometry that is left
    gates       the gates that it equals: 0 for heads that are gone
    difference  between its logits and the gated model's, after loading it again, relative to the
                largest
    before      the size of the whole model
    after       the size of the checkpoint
    """

    folder: Path
    whole: Geometry
    kept: Geometry
    gates: Float[np.ndarray, "heads"]
    difference: float
    before: Footprint
    after: Footprint

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.folder}: {self.whole.kept(self.kept)} in {self.whole.layers} layers",
                *size_lines(self.before, self.after),
                "logits after loading it again: the gated model's, largest difference "
                f"{self.difference:.1e} of the largest logit",
            ]
        )


def size_lines(before: Footprint, after: Footprint) -> Iterator[str]:
    """The sizes before and after, in words, with the share that is gone."""
    pairs = {
        "parameters": (before.parameters, after.parameters),
        "cache, bytes per token": (before.cache_bytes, after.cache_bytes),
    }
    for name, (old, new) in pairs.items():
        if old and new:
            yield f"{name}: {old:,} → {new:,} ({100 * (1 - new / old):.1f} % less)"
        else:
            yield f"{name}: not known, because this model's cache does not tell"


@torch.no_grad()
def prune(
    model: Model,
    heads: Any,
    folder: str | Path,
    *,
    keep_groups: int | None = None,
    keep_heads_per_group: int | None = None,
    cache: float | None = None,
) -> Pruned:
    """Write the model without some heads as a smaller folder that `from_pretrained` loads.

    With `HeadScores`, say how much to keep in every layer: `keep_groups` key/value groups (or the
    number that is nearest to a share of the `cache`), or `keep_heads_per_group` query heads of each
    group. The best are kept; which ones is free in each layer. Anything else is a head set or gates
    as for `export`: heads with a gate of 0 are removed, and other gates are folded in.

    The written model is loaded again and must give the gated model's logits, or it is deleted.

    >>> from headcount import load_model, make_task, prune, rank
    >>> model = load_model("smollm2-135m-q4")
    >>> scores = rank(model, make_task("ioi", model.tokenizer, n=8), "attribution")
    >>> pruned = prune(model, scores, getfixture("tmp_path") / "smaller", keep_groups=2)
    >>> str(load_model(pruned.folder).layout)
    '180 heads in 30 layers'
    >>> pruned.before.cache_bytes, pruned.after.cache_bytes
    (46080, 30720)
    """
    sizes: dict[str, Any] = {
        "keep_groups": keep_groups,
        "keep_heads_per_group": keep_heads_per_group,
        "cache": cache,
    }
    target = check_new(folder)
    whole = geometry_of(check_model(model))
    if isinstance(heads, HeadScores):
        check_size(keep_groups, keep_heads_per_group, cache)
        size = choose_size(model.name, whole, stock_sizes(model), **sizes)
        gates = best_kept(heads, whole, size).astype(np.float32)
    elif any(value is not None for value in sizes.values()):
        raise HeadcountError(
            f"{', '.join(name for name, value in sizes.items() if value is not None)} goes with "
            "scores, of which the best are kept: a head set says itself which heads are kept."
        )
    else:
        gates = as_gates(heads, model.layout)
    return write_pruned(model, pruned_module(model, gates), gates, target)


@torch.no_grad()
def write_pruned(
    model: Model,
    module: Any,
    gates: Float[np.ndarray, "heads"],
    target: Path,
    *,
    changed: bool = False,
) -> Pruned:
    """Write a pruned module, load it again, and compare logits: see `prune`.

    They are compared with those of the gated model or, if its weights were `changed` after pruning,
    with its own in memory.
    """
    whole = geometry_of(model)
    with exactly(model.module), exactly(module):
        before, after = footprint(model.module), footprint(module)
        expected = gated_logits(model, torch.from_numpy(gates))
        if changed:
            expected = run(module, probe_prompt(module, 2)).float()
        differs = write_checkpoint(model, module, module.state_dict(), expected, target)
    kept = size_of(gates != 0, whole, model.name)
    return Pruned(target, whole, kept, gates, differs, before, after)


@torch.no_grad()
def pruned_module(model: Model, gates: Float[np.ndarray, "heads"]) -> Any:
    """The model in memory without the heads whose gate is 0, proven equal to the gated model.

    Weights that are not cut are shared with the whole model: clone them before you change any.
    """
    module = check_prunable(model)
    whole, kept = geometry_of(model), gates != 0
    size = size_of(kept, whole, model.name)
    config = _smaller_config(model, module, size)
    _check_config(model, config, size)
    weights = {**module.state_dict(), **fold(model, torch.from_numpy(gates))}
    shapes = _shapes_of(model, module, config, size)
    layers = _layers(model, [name for name in weights if weights[name].shape != shapes[name]])
    by_layer = whole.by_group(kept)
    why = "its weights cannot be divided among its heads"
    with exactly(model.module):
        expected = gated_logits(model, torch.from_numpy(gates))
        for ways in _all_ways(weights, shapes, by_layer[0]):
            cut = {
                name: _cut(weights[name], shapes[name], by_layer[layer], ways)
                for name, layer in layers.items()
            }
            made = _build(model, module, config, {**weights, **cut})
            try:
                differs = difference(made, expected)
            except (RuntimeError, ValueError, IndexError) as error:
                why = f"it does not run with fewer heads ({error})"
                continue
            if differs <= tolerance(coarsest_dtype(model.module)):
                return made
            why = f"its logits differ from the gated model's by {differs:.1e} of the largest"
            del made
    raise _refused(model, why)


def check_prunable(model: Model) -> Any:
    """The Hugging Face model inside; sparse, quantised and offloaded ones are refused by name."""
    module = plain_module(model, "prune")
    if any(hasattr(config, "dense_kernel") for config in attention_configs(module)):
        why = "is a sparse model, whose attention no stock config holds: prune its dense base model"
    elif getattr(module, "is_quantized", False):
        why = "has quantised weights: load it without quantisation"
    elif any(parameter.is_meta for parameter in module.parameters()):
        why = "has offloaded weights: load it without offloading"
    else:
        return module
    raise HeadcountError(f"Cannot prune {model.name}: it {why}.")


def _refused(model: Model, why: str) -> HeadcountError:
    return HeadcountError(
        f"Cannot prune {model.name}: {why}. The nearest is headcount export, which writes it at "
        "full size with the heads switched off."
    )


def _smaller_config(model: Model, module: Any, size: Geometry) -> Any:
    """A copy of the config with fewer heads; their size is written out where it is not yet."""
    config = copy.deepcopy(module.config)
    text = getattr(config, "get_text_config", lambda: config)()
    for name, value in (("num_attention_heads", size.heads), ("num_key_value_heads", size.groups)):
        if hasattr(text, name):
            setattr(text, name, value)
    if getattr(text, "head_dim", None) is None:
        text.head_dim = model.sites[0].size
    return config


def stock_sizes(model: Model) -> list[Geometry]:
    """Every smaller size that the class of the model's config accepts.

    A class that ties the size of a head to the number of heads is refused.
    """
    module, whole = check_prunable(model), geometry_of(model)
    configs = {size: _smaller_config(model, module, size) for size in whole.sizes()}
    sizes = [size for size, config in configs.items() if not _objection(config)]
    if sizes:
        _shapes_of(model, module, configs[sizes[0]], sizes[0])
    return sizes


def _objection(config: Any) -> str:
    """Why the class of a config refuses it; an empty text if it does not."""
    try:
        getattr(config, "validate", lambda: None)()
    except Exception as error:  # of the library that checks configs
        return str(error.__cause__ or error)
    return ""


def _check_config(model: Model, config: Any, size: Geometry) -> None:
    if why := _objection(config):
        whole = geometry_of(model)
        known = "; ".join(map(whole.kept, stock_sizes(model))) or "all"
        raise HeadcountError(
            f"No stock config of {model.name} holds {size.heads} heads ({why}). It can keep: "
            f"{known}."
        )


def _shapes_of(
    model: Model, module: Any, config: Any, size: Geometry
) -> Mapping[str, tuple[int, ...]]:
    """The shapes of all weights under the smaller config, which must keep the size of a head."""
    site, now = model.sites[0], module.state_dict()
    what = f"{type(module).__name__} cannot have {size.heads} heads of size {site.size}"
    try:
        with torch.device("meta"), quiet_transformers():
            empty = type(module)(copy.deepcopy(config))
    except Exception as error:
        raise _refused(model, f"{what} ({error})") from error
    found = {name: tuple(weight.shape) for name, weight in empty.state_dict().items()}
    projection = f"{site.module}.weight"
    inputs = site.width - (site.heads - size.heads) * site.size
    if found.keys() != now.keys() or found[projection] == tuple(now[projection].shape):
        why = "it divides the hidden size by the number of heads"
        raise _refused(model, f"{what} ({why})")
    if inputs not in found[projection]:
        raise _refused(model, f"{what} (its output projection would take other inputs)")
    return found


def _layers(model: Model, names: Sequence[str]) -> dict[str, int]:
    """The layer to which each of these weights belongs: that of the nearest output projection."""
    found = {}
    for name in names:
        near = [_in_common(name, site.module) for site in model.sites]
        if near.count(max(near)) > 1 and len(near) > 1:
            raise _refused(model, f"the layer to which {name} belongs cannot be told")
        found[name] = near.index(max(near))
    return found


def _in_common(name: str, other: str) -> int:
    """How many parts two names have in common at their beginning."""
    pairs = zip(name.split("."), other.split("."), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _all_ways(
    weights: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    kept: Bool[np.ndarray, "groups heads"],
) -> Iterator[Ways]:
    """Every way to divide each size that differs among a layer's heads.

    A size is divided alike in all weights and layers, which all keep equally many heads.
    """
    differing = {
        pair
        for name, shape in shapes.items()
        for pair in zip(weights[name].shape, shape, strict=True)
        if pair[0] != pair[1]
    }
    fitting = {}
    for old, new in sorted(differing):
        found: dict[bytes, int] = {}
        for number, cut in _divisions(old, kept):
            if cut.sum() == new:
                found.setdefault(cut.tobytes(), number)
        fitting[old, new] = list(found.values())
    for numbers in product(*fitting.values()):
        yield dict(zip(fitting, numbers, strict=True))


def _divisions(size: int, kept: Bool[np.ndarray, "groups heads"]) -> Iterator[tuple[int, Cut]]:
    """Ways in which `size` rows may belong to a layer's heads, and which rows are then kept.

    0  queries, keys and values one below the other
    1  the queries of each group, and then its key and its value
    2  equal parts for each query head
    3  equal parts for each group
    """
    groups: Cut = np.asarray(kept.any(1))
    beside = np.column_stack([kept, groups, groups])
    below = np.concatenate([kept.ravel(), groups, groups])
    for number, owner in enumerate((below, beside.ravel(), kept.ravel(), groups)):
        if size % len(owner) == 0:
            yield number, owner.repeat(size // len(owner))


def _cut(
    weight: Tensor, shape: Sequence[int], kept: Bool[np.ndarray, "groups heads"], ways: Ways
) -> Tensor:
    """The weight without the rows and columns of removed heads."""
    for axis, pair in enumerate(zip(weight.shape, shape, strict=True)):
        if pair[0] != pair[1]:
            cut = dict(_divisions(pair[0], kept))[ways[pair]]
            weight = weight.index_select(
                axis, torch.from_numpy(cut).nonzero()[:, 0].to(weight.device)
            )
    return weight


def _build(model: Model, module: Any, config: Any, weights: dict[str, Tensor]) -> Any:
    """A model of the same class with this config and these weights."""
    try:
        with quiet_transformers():
            made = type(module).from_pretrained(
                None, config=copy.deepcopy(config), state_dict=weights, dtype=model.dtype
            )
    except NOT_WRITTEN as error:
        why = f"it cannot be made ({type(error).__name__}: {error})"
        raise _refused(model, why) from error
    made.generation_config = copy.deepcopy(getattr(module, "generation_config", None))
    made.requires_grad_(False)
    return made.eval().to(model.device)


def footprint(module: nn.Module) -> Footprint:
    """The parameters of a model, and the bytes that its cache takes for each token of a prompt."""
    ids = probe_prompt(module, 1)
    with torch.no_grad():
        output = module(input_ids=ids, **accepted(module, use_cache=True))
    layers = getattr(getattr(output, "past_key_values", None), "layers", ())
    kept = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
    # A sliding window may hold fewer tokens than the prompt has.
    size = sum(x.nbytes // x.shape[-2] for x in kept if isinstance(x, Tensor) and x.ndim > 1)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return Footprint(parameters, size or None)
