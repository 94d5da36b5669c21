"""Fold a head set into the weights, and write an ordinary checkpoint."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads import as_gates
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.models.quiet import quiet_transformers
from headcount.models.sites import HeadSite, plain, probe_prompt, run
from headcount.models.slices import tolerance


@torch.no_grad()
def fold(model: Model, gates: Float[Tensor, "heads"]) -> dict[str, Tensor]:
    """The projections' weights with each head's columns multiplied by its gate, by name.

    A head whose gate is 0 is gone: g·z through W is z through W with scaled columns.
    """
    named = dict(plain(model.module).named_modules())
    folded: dict[str, Tensor] = {}
    owners: dict[int, str] = {}
    start = 0
    for site in model.sites:
        g = gates[start : start + site.heads]
        start += site.heads
        name, weight, axis = _weight(site, named[site.module])
        if weight.data_ptr() in owners:
            raise HeadcountError(
                f"Cannot fold heads into {name}: the same weight serves "
                f"{owners[weight.data_ptr()]}."
            )
        owners[weight.data_ptr()] = name
        if bool((g == 1).all()):
            continue
        scale = torch.ones(site.width)
        scale[site.span] = g.float().repeat_interleave(site.size)
        shape = [1, 1]
        shape[axis] = site.width
        scaled = weight.float() * scale.to(weight.device).view(shape)
        folded[name] = scaled.to(weight.dtype)
    return folded


def _weight(site: HeadSite, projection: nn.Module) -> tuple[str, Tensor, int]:
    weight = getattr(projection, "weight", None)
    plain_weight = (
        isinstance(weight, nn.Parameter)
        and weight.ndim == 2
        and weight.is_floating_point()
        and not list(projection.children())
    )
    if not plain_weight or site.call:
        reason = (
            "it runs several times in a pass" if site.call else "its weights are not plain numbers"
        )
        raise HeadcountError(
            f"Cannot fold heads into {site.module}: {reason} (quantised models must be loaded "
            "unquantised, adapters merged first)."
        )
    assert isinstance(weight, nn.Parameter)
    axis = 0 if type(projection).__name__ == "Conv1D" else 1  # GPT-2's linear layer is transposed
    if weight.shape[axis] != site.width:
        raise HeadcountError(
            f"Cannot fold heads into {site.module}: its columns are not its heads."
        )
    return f"{site.module}.weight", weight, axis


@torch.no_grad()
def export(model: Model, heads: Any, folder: str | Path) -> Path:
    """Write the model with a head set folded in, as a folder that `from_pretrained` loads.

    `heads` is a list of heads to remove, or one gate for each head (any damping). The written model
    is loaded again and must give the gated model's logits, or nothing is left behind.

    >>> from headcount import export, load_model
    >>> folder = getfixture("tmp_path") / "without"
    >>> _ = export(load_model("smollm2-135m"), ["3.4", "11.2"], folder)
    >>> load_model(folder).layout.total
    270
    """
    gates = torch.from_numpy(as_gates(heads, model.layout))
    if len(gates) != 1:
        raise HeadcountError(f"Export one head set at a time, not {len(gates)}.")
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise HeadcountError(f"{target} exists and is not empty: choose another folder.")
    module: Any = plain(model.module)
    if not hasattr(module, "save_pretrained") or hasattr(module, "peft_config"):
        raise HeadcountError(
            f"Cannot export {model.name}: it is not a plain Hugging Face model (merge adapters "
            "first)."
        )
    folded = fold(model, gates[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with quiet_transformers():
            module.save_pretrained(made, state_dict={**module.state_dict(), **folded})
            if model.tokenizer is not None:
                model.tokenizer.save_pretrained(made)
            _check(model, gates, made)
        if target.exists():
            target.rmdir()
        os.replace(made, target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    target.chmod(0o755)  # mkdtemp makes folders for their owner alone
    return target


def _check(model: Model, gates: Tensor, folder: Path) -> None:
    """Load what was written, as anybody would, and compare logits with the gated model."""
    from transformers import AutoModelForCausalLM

    written: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=model.dtype)
    written.to(model.device).eval()
    ids = probe_prompt(model.module, 2)
    with gating(model.module, model.sites, gates):
        expected = run(model.module, ids).float()
    error = float((run(written, ids).float() - expected).abs().max() / expected.abs().max())
    if not error <= 10 * tolerance(model.dtype):
        raise HeadcountError(
            f"The exported model differs from the gated one by {error:.1e} of its largest logit, "
            "so it was not kept."
        )
