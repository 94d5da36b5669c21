"""Fold a head set into the weights, and write an ordinary checkpoint."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads import as_gates
from headcount.models.forward_modes import exactly
from headcount.models.gate import gating, require_one_process
from headcount.models.kinds import KINDS
from headcount.models.model import Model, check_model
from headcount.models.proof import plain_weight
from headcount.models.saved_as import loading_class
from headcount.models.sites import HeadSite, coarsest_dtype, plain, probe_prompt, run
from headcount.models.slices import tolerance
from headcount.system.files import checked_path
from headcount.system.transformers_compat import quiet_transformers

# What transformers raises where a model cannot be saved, or cannot be loaded again.
NOT_WRITTEN = (ValueError, TypeError, KeyError, AttributeError, RuntimeError, ImportError)


@torch.no_grad()
def fold(model: Model, gates: Float[Tensor, "heads"]) -> dict[str, Tensor]:
    """The projections' weights with each head's columns multiplied by its gate, by name.

    Scaling a head's output by g equals scaling its columns of W by g, so a gate of 0 removes the
    head. Projections whose gates are all 1 are left out.
    """
    folded: dict[str, Tensor] = {}
    start = 0
    for site in model.sites:
        g = gates[start : start + site.heads]
        start += site.heads
        if bool((g == 1).all()):
            continue
        weight, axis = _weight(plain(model.module), site)
        scale = torch.ones(site.width)
        scale[site.span] = g.float().repeat_interleave(site.size)
        shape = [1, 1]
        shape[axis] = site.width
        scaled = weight.float() * scale.to(weight.device).view(shape)
        folded[f"{site.module}.weight"] = scaled.to(weight.dtype)
    return folded


def _weight(module: nn.Module, site: HeadSite) -> tuple[nn.Parameter, int]:
    """The matrix of a site's projection, and the axis on which its inputs lie."""
    projection = module.get_submodule(site.module)
    weight, axis = plain_weight(projection), inputs_axis(projection)
    why = why_inseparable(module, site)
    if weight is None and site.runs == 1:
        why = "its weights are not plain numbers (load the model without quantisation and "
        why += "offloading, and merge adapters first)"
    if weight is None or why:
        raise HeadcountError(f"Cannot fold heads into {site.module}: {why}.")
    return weight, axis


def inputs_axis(projection: nn.Module) -> int:
    """The axis of a projection's weight on which its inputs lie: GPT-2's layer is transposed."""
    return 0 if type(projection).__name__ == "Conv1D" else 1


def why_inseparable(module: nn.Module, site: HeadSite) -> str:
    """Why a site's columns of the weights are not its own; empty if they are."""
    projection = module.get_submodule(site.module)
    weight: Any = getattr(projection, "weight", None)
    sharing = [
        name
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if parameter is weight and name != f"{site.module}.weight"
    ]
    if site.runs > 1:
        return f"it runs {site.runs} times in a pass, for different heads"
    matrix = type(weight) is nn.Parameter and weight.ndim == 2 and weight.is_floating_point()
    if matrix and weight.shape[inputs_axis(projection)] != site.width:
        return "the columns of its weights are not the columns of its heads"
    return f"its weights are shared with {sharing[0]}" if sharing else ""


def check_new(folder: str | Path) -> Path:
    """The path of a folder to write; one that holds something already is refused."""
    target = checked_path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise HeadcountError(f"{target} exists and is not an empty folder: choose another name.")
    return target


@torch.no_grad()
def export(model: Model, heads: Any, folder: str | Path) -> Path:
    """Write the model with a head set folded in, as a folder that `from_pretrained` loads.

    `heads` is a list of heads to remove, or one gate for each head (any damping). The written model
    is loaded again and must give the gated model's logits, or it is deleted. headcount loads an
    exported sparse model as sparse; transformers alone would run it with dense attention.

    >>> from headcount import export, load_model
    >>> folder = getfixture("tmp_path") / "without"
    >>> _ = export(load_model("smollm2-135m-q4"), ["3.4", "11.2"], folder)
    >>> load_model(folder).layout.total
    270
    """
    gates = torch.from_numpy(as_gates(heads, check_model(model).layout))
    target = check_new(folder)
    module = plain_module(model, "export")
    folded = fold(model, gates)
    with exactly(model.module):
        expected = gated_logits(model, gates)
        write_checkpoint(model, module, {**module.state_dict(), **folded}, expected, target)
    return target


def plain_module(model: Model, what: str) -> Any:
    """The Hugging Face model inside; one that cannot be saved as it is, is refused."""
    require_one_process(model.sites, f"To {what} a model")
    module: Any = plain(model.module)
    if not hasattr(module, "save_pretrained") or hasattr(module, "peft_config"):
        raise HeadcountError(
            f"Cannot {what} {model.name}: it is not a plain Hugging Face model (merge adapters "
            "first)."
        )
    return module


def write_checkpoint(
    model: Model,
    module: Any,
    weights: dict[str, Tensor],
    expected: Float[Tensor, "rows tokens vocab"],
    target: Path,
) -> float:
    """Write `module` with these weights; the folder must load again and give the expected logits.

    Returns how far its logits are from them, as a share of the largest. Without success nothing is
    left.
    """
    with new_folder(target) as made, quiet_transformers():
        try:
            with config_kept(module):
                module.save_pretrained(made, state_dict=weights)
            if model.tokenizer is not None:
                model.tokenizer.save_pretrained(made)
            loader = loading_class(model.name, module.config.to_dict())
            written = loader.from_pretrained(made, dtype="auto").eval()
            for kind in KINDS:
                kind.loader.export(module, written, made)
        except NOT_WRITTEN as error:
            raise HeadcountError(
                f"Cannot export {model.name}: transformers cannot save it and load it again "
                f"({type(error).__name__}: {error})."
            ) from error
        written.to(model.device)
        differs = difference(written, expected)
        if not differs <= 10 * tolerance(coarsest_dtype(model.module)):
            raise HeadcountError(
                f"The exported model differs from the gated one by {differs:.1e} of its largest "
                "logit, so it was deleted."
            )
    return differs


@contextmanager
def config_kept(module: Any, *without: str) -> Iterator[None]:
    """Keep the config as it is while the model is saved: saving changes a copy minus some names."""
    config = module.config
    module.config = copy.deepcopy(config)
    for name in without:
        module.config.__dict__.pop(name, None)
    try:
        yield
    finally:
        module.config = config


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `target` at the end, or deleted after an error."""
    missing = [parent for parent in target.absolute().parents if not parent.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield made
        made.chmod(0o755)  # mkdtemp lets only the owner read
        if target.exists():
            target.rmdir()
        os.replace(made, target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        for parent in missing:  # the innermost first
            with suppress(OSError):
                parent.rmdir()
        raise


def gated_logits(model: Model, gates: Float[Tensor, "heads"]) -> Float[Tensor, "rows tokens vocab"]:
    """The logits of the gated model on a made-up prompt."""
    with gating(model.module, model.sites, gates[None]):
        return run(model.module, probe_prompt(model.module, 2)).float()


def difference(written: Any, expected: Float[Tensor, "rows tokens vocab"]) -> float:
    """How far the logits of a model are from those expected, relative to the largest."""
    logits = run(written, probe_prompt(written, 2)).float()
    return float((logits - expected).abs().max() / expected.abs().max())
