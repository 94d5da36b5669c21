"""A head set as a LoRA adapter: what engines that serve adapters load for each request.

Multiplying a head's output by g adds B·A to the output projection W: the rows of A pick the head's
columns, and B holds these columns of W times g − 1. So a head set is exactly an adapter, whose rank
is the number of columns that change in a layer. All layers get the rank of the layer that needs the
most, filled up with zeros, and alpha equals the rank: engines differ in whether they read a rank
for each layer. Layers that do not change are left out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from headcount.errors import HeadcountError, counted
from headcount.models.export import inputs_axis, why_inseparable
from headcount.models.forward_modes import exactly
from headcount.models.gate import gating, require_one_process
from headcount.models.load import ADAPTER, ADAPTER_WEIGHTS
from headcount.models.model import Model
from headcount.models.proof import plain_weight
from headcount.models.sites import (
    HeadSite,
    coarsest_dtype,
    is_unloaded,
    plain,
    probe_prompt,
    run,
)
from headcount.models.slices import tolerance
from headcount.system.files import write_json
from headcount.system.transformers_compat import quiet_transformers

MAX_RANK = 512  # the largest --max-lora-rank of vLLM
EXACT = 1e-5  # relative difference of weights that is rounding in float32
PREFIX = "base_model.model."  # of PEFT, before the name of a module


class AdapterPart(NamedTuple):
    """What an adapter adds to one projection: B·A."""

    down: Float[Tensor, "rank inputs"]  # A
    up: Float[Tensor, "outputs rank"]  # B


def changed_columns(
    model: Model, gates: Float[Tensor, "heads"]
) -> dict[HeadSite, tuple[list[int], Float[Tensor, "columns"]]]:
    """For each site whose heads change: the columns that change, and their gates."""
    require_one_process(model.sites, "Writing adapters")
    changed = {}
    for site, own in zip(model.sites, gates.split([s.heads for s in model.sites]), strict=True):
        heads = (own != 1).nonzero().flatten().tolist()
        if heads:
            starts = [site.start + head * site.size for head in heads]
            columns = [start + n for start in starts for n in range(site.size)]
            changed[site] = columns, own[heads].repeat_interleave(site.size)
    return changed


def check_rank(model: Model, gates: Float[Tensor, "heads"], name: str, most: int) -> int:
    """The rank of a head set's adapter; refused if it is above `most`, or if no head changes."""
    changed = changed_columns(model, gates)
    if not changed:
        raise HeadcountError(
            f"The head set {name} changes no head, so it needs no adapter: it is the base model."
        )
    site = max(changed, key=lambda site: len(changed[site][0]))
    rank = len(changed[site][0])
    if rank > most:
        whose = ", the most that vLLM takes" if most == MAX_RANK else ""
        raise HeadcountError(
            f"The head set {name} needs an adapter of rank {rank:,} "
            f"({counted(rank // site.size, 'head')} of {site.size} numbers change in layer "
            f"{site.index}), and the limit is {most}{whose}: export it as a checkpoint instead, "
            "or change fewer heads of one layer."
        )
    return rank


@torch.no_grad()
def low_rank_parts(model: Model, gates: Float[Tensor, "heads"]) -> dict[str, AdapterPart]:
    """The adapter of a head set: what it adds to each projection that changes, by its name."""
    changed = changed_columns(model, gates)
    rank = max(len(columns) for columns, _ in changed.values())
    parts = {}
    for site, (columns, scale) in changed.items():
        weight = head_columns(model, site, columns)
        up = weight.new_zeros(len(weight), rank)
        up[:, : len(columns)] = weight * (scale.float() - 1)
        down = torch.zeros(rank, site.width)
        down[range(len(columns)), columns] = 1
        parts[site.module] = AdapterPart(down, up)
    return parts


def head_columns(
    model: Model, site: HeadSite, columns: Sequence[int]
) -> Float[Tensor, "outputs columns"]:
    """Columns of a projection's weights in float32: de-quantised, or read from the checkpoint.

    Of a model that is not loaded only this one tensor is read. Weights that are not plain numbers
    are told by what the layer makes of unit vectors.
    """
    module = plain(model.module)
    projection = module.get_submodule(site.module)
    if why := why_inseparable(module, site):
        raise HeadcountError(f"Cannot write an adapter for {site.module}: {why}.")
    weight: Tensor | None = plain_weight(projection)
    own = getattr(projection, "weight", None)
    if isinstance(own, Tensor) and own.is_meta and not hasattr(projection, "_hf_hook"):
        weight = stored_weight(model, f"{site.module}.weight", own.shape)
    if weight is not None:
        axis = inputs_axis(projection)
        chosen = weight.index_select(axis, torch.tensor(columns, device=weight.device))
        return (chosen.T if axis == 0 else chosen).float().cpu()
    units = torch.zeros(1, len(columns) + 1, site.width, dtype=coarsest_dtype(module))
    units[0, range(len(columns)), columns] = 1
    with exactly(module):
        answers: Tensor = projection(units.to(model.device))[0].float().cpu()  # the bias last
    return (answers[:-1] - answers[-1]).T


def stored_weight(model: Model, name: str, shape: torch.Size) -> Any:
    """One tensor of a model's checkpoint, whose names may lack the prefix of the model's class."""
    module: Any = plain(model.module)
    names = name, name.removeprefix(f"{module.base_model_prefix}.")
    for path in model.weight_files or ():
        if path.suffix != ".safetensors":
            continue
        with safe_open(path, framework="pt") as file:
            found = next((one for one in names if one in file.keys()), None)  # noqa: SIM118
            weight = None if found is None else file.get_tensor(found)
        if weight is None:
            continue
        if weight.shape == shape and weight.is_floating_point() and weight.dtype.itemsize > 1:
            return weight
        raise HeadcountError(
            f"{path.name} stores {found} in a packed or quantised form: load the model to export "
            "adapters of it, which de-quantises its weights."
        )
    raise HeadcountError(
        f"No safetensors of {model.name} hold {name}: give the folder of the whole checkpoint, or "
        "load the model."
    )


def write_adapter(folder: Path, model: Model, parts: Mapping[str, AdapterPart], base: str) -> None:
    """Write an adapter as PEFT does, in the smallest number format that loses nothing."""
    half = (torch.bfloat16, torch.float16)
    fitting = (d for d in half if all(_fits(part.up, d) for part in parts.values()))
    dtype = next(fitting, torch.float32)
    tensors = {}
    for name, part in parts.items():
        for letter, tensor in (("A", part.down), ("B", part.up)):
            tensors[f"{PREFIX}{name}.lora_{letter}.weight"] = tensor.to(dtype).contiguous()
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    (folder / ADAPTER_WEIGHTS).chmod(0o644)  # safetensors lets only the owner read
    module = plain(model.module)
    rank = len(next(iter(parts.values())).down)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        # Whole names: in GPT-2, c_proj alone would also name a layer of each MLP.
        "target_modules": list(parts),
        "fan_in_fan_out": any(not inputs_axis(module.get_submodule(name)) for name in parts),
        "modules_to_save": None,
        "use_rslora": False,
        "use_dora": False,
        "inference_mode": True,
    }
    write_json(folder / ADAPTER, config)


def _fits(numbers: Tensor, dtype: torch.dtype) -> bool:
    return torch.equal(numbers.to(dtype).float(), numbers)


@torch.no_grad()
def check_adapter(folder: Path, model: Model, gates: Float[Tensor, "heads"]) -> float:
    """The relative error of a written adapter; refused if it is more than rounding.

    W + B·A is compared with W·diag(g), and then the logits with the adapter, which PEFT applies
    where it is installed, with those of the gated model. A model that is not loaded has no logits.
    """
    error = _column_error(folder, model, gates)
    if not error <= EXACT:
        raise HeadcountError(
            f"The adapter differs from the gates by {error:.1e} of the weights, so it was deleted."
        )
    if is_unloaded(model.module):
        return error
    ids = probe_prompt(model.module, 2)
    with exactly(model.module):
        with gating(model.module, model.sites, gates[None]):
            expected = run(model.module, ids).float()
        with adapted(model.module, folder) as module:
            got = run(module, ids).float()
        plain_logits = run(model.module, ids).float()
    error = float((got - expected).abs().max() / expected.abs().max())
    # In half precision the layers blow rounding up, to a third of the largest logit in 30 layers.
    limit = tolerance(torch.float32) if _is_whole(model) else 1.0
    ignored = torch.equal(got, plain_logits) and not torch.equal(expected, plain_logits)
    if ignored or not error <= limit:
        raise HeadcountError(
            f"The model with the adapter differs from the gated one by {error:.1e} of its largest "
            "logit, so the adapter was deleted."
        )
    return error


def _is_whole(model: Model) -> bool:
    return coarsest_dtype(model.module) in (torch.float32, torch.float64)


def _column_error(folder: Path, model: Model, gates: Float[Tensor, "heads"]) -> float:
    """How far W + B·A is from W·diag(g), relative to W."""
    errors = [0.0]
    parts = read_parts(folder)
    for site, (columns, scale) in changed_columns(model, gates).items():
        down, up = parts.pop(site.module)
        weight = head_columns(model, site, columns)
        added = up @ down
        error = (weight + added[:, columns] - weight * scale).abs().max()
        added[:, columns] = 0
        errors.append(float(torch.maximum(error, added.abs().max()) / weight.abs().max()))
    return max(errors) if not parts else float("inf")


def read_parts(folder: Path) -> dict[str, AdapterPart]:
    """What a written adapter adds to each projection, in float32."""
    tensors = load_file(folder / ADAPTER_WEIGHTS)
    names = dict.fromkeys(name.split(".lora_")[0] for name in tensors)
    return {
        name.removeprefix(PREFIX): AdapterPart(
            *(tensors[f"{name}.lora_{letter}.weight"].float() for letter in "AB")
        )
        for name in names
    }


@contextmanager
def adapted(module: nn.Module, folder: Path) -> Iterator[nn.Module]:
    """The module with an adapter of ours; the module itself is as before when the context ends."""
    if find_spec("peft") is not None:
        from peft import PeftModel

        with quiet_transformers():
            yield PeftModel.from_pretrained(_copy_of(plain(module)), str(folder))
        return
    named = dict(plain(module).named_modules())
    with ExitStack() as stack:
        for name, (down, up) in read_parts(folder).items():
            stack.enter_context(named[name].register_forward_hook(_adding(down, up)))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield module


def _adding(down: Tensor, up: Tensor) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        x = args[0].float()
        added: Tensor = x @ down.T.to(x) @ up.T.to(x)
        return (output + added).to(output.dtype)

    return hook


def _copy_of(module: nn.Module) -> nn.Module:
    """A copy that shares all tensors, so that PEFT changes nothing in the user's module."""

    def shared(tensor: Tensor) -> Tensor:
        plain_parameter = type(tensor) is nn.Parameter and type(tensor.data) is Tensor
        return nn.Parameter(tensor.detach(), requires_grad=False) if plain_parameter else tensor

    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(tensor): shared(tensor) for tensor in tensors})
