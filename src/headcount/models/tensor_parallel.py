"""Models whose heads are shared out over processes: `tp_plan="auto"` of transformers, by torchrun.

Each process (a *rank*) holds the weights of some heads, side by side at its own output projection.
It finds and proves these as in any model. The sites are then those of the whole model, so that all
ranks take the same gates, and each applies its own. All ranks must ask for the same work in the
same order, because every pass is one pass of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError, counted
from headcount.models.sites import HeadSite, plain

T = TypeVar("T")


def mesh_of(module: nn.Module) -> Any | None:
    """The processes over which the weights are shared out; None for a model in one process."""
    meshes = (getattr(weight, "device_mesh", None) for weight in plain(module).parameters())
    return next((mesh for mesh in meshes if mesh is not None and mesh.size() > 1), None)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def check_divisible(module: nn.Module) -> None:
    """Refuse heads that cannot be shared out equally, before the model runs."""
    mesh = mesh_of(module)
    if mesh is None:
        return
    config: Any = plain(module).config
    text, kind = config.get_text_config(), type(plain(module)).__name__
    for name, what in (("num_attention_heads", "head"), ("num_key_value_heads", "key/value head")):
        count = getattr(text, name, None) or 0
        if mesh.ndim > 1 or count % mesh.size():
            raise HeadcountError(
                f"{kind} has {counted(count, what)}, which cannot be shared out equally over "
                f"{mesh.size()} processes: give torchrun a --nproc-per-node that divides them."
            )


def of_all_ranks(module: nn.Module, own: Sequence[HeadSite]) -> tuple[HeadSite, ...]:
    """The sites of the whole model, of which this rank has found its `own` part."""
    mesh = mesh_of(module)
    if mesh is None:
        return tuple(own)
    named, size = dict(plain(module).named_modules()), mesh.size()
    found: list[Any] = [None] * size
    torch.distributed.all_gather_object(found, [asdict(site) for site in own], mesh.get_group())
    sites = []
    for site in own:
        weight = getattr(named[site.module], "weight", None)
        shared = [p for p in getattr(weight, "placements", ()) if p.is_shard()]
        if not shared:  # every rank has all heads of this layer
            sites.append(site)
            continue
        if found != found[:1] * size or site.start or site.heads * site.size != site.width:
            raise HeadcountError(
                f"The heads of {site.attention} are not shared out as equal slices of "
                f"{site.module}: load the model without tp_plan."
            )
        whole = {"heads": site.heads * size, "width": site.width * size}
        sites.append(replace(site, **whole, rank=mesh.get_local_rank(), ranks=size))
    return tuple(sites)


def whole_width(module: nn.Module, site: HeadSite, z: Tensor) -> Tensor:
    """A projection's input with the heads of all ranks side by side, in order."""
    if site.ranks == 1:
        return z
    mesh: Any = mesh_of(module)
    parts = [torch.empty_like(z, memory_format=torch.contiguous_format) for _ in range(site.ranks)]
    torch.distributed.all_gather(parts, z.contiguous(), mesh.get_group())
    return torch.cat(parts, -1)


def from_first(module: nn.Module, value: T) -> T:
    """The value that the first rank has: a table of the store, say, which others may read later."""
    mesh = mesh_of(module)
    if mesh is None:
        return value
    box: list[Any] = [value]
    torch.distributed.broadcast_object_list(box, group=mesh.get_group(), group_src=0)
    first: T = box[0]
    return first


def is_first(module: nn.Module) -> bool:
    """Whether this process keeps what is measured: the first rank, or the only process."""
    mesh = mesh_of(module)
    return mesh is None or mesh.get_local_rank() == 0
