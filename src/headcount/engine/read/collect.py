"""Read the heads' outputs while a model runs, and keep only what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.engine.read.lengths import each_length, run_through
from headcount.errors import HeadcountError
from headcount.models.model import Model
from headcount.models.sites import HeadSite, plain, to_rows


@contextmanager
def reading(
    model: Model, read: Callable[[HeadSite, Float[Tensor, "rows tokens width"]], None]
) -> Iterator[None]:
    """Call `read` with each site's z, before any gate, whenever the model runs in this context."""
    named = dict(plain(model.module).named_modules())
    runs: dict[str, int] = {}
    rows = [1]

    def starting(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        runs.clear()
        ids = kwargs.get("input_ids", args[0] if args else None)
        rows[0] = 1 if ids is None else ids.shape[0]

    def hook_for(name: str, sites: dict[int, HeadSite]) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            call = runs.get(name, 0)
            runs[name] = call + 1
            if call in sites:
                read(sites[call], to_rows(args[0], sites[call].order, rows[0]))

        return hook

    with ExitStack() as stack:
        top = plain(model.module)
        stack.callback(top.register_forward_pre_hook(starting, with_kwargs=True).remove)
        for name in dict.fromkeys(site.module for site in model.sites):
            sites = {site.call: site for site in model.sites if site.module == name}
            # First in line, so that z is read as the attention left it.
            hook = hook_for(name, sites)
            handle = named[name].register_forward_pre_hook(hook, prepend=True)
            stack.callback(handle.remove)
        yield


@torch.no_grad()
def collect(
    model: Model,
    sequences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    *,
    mean: bool = False,
    gates: Float[np.ndarray, "heads"] | None = None,
    progress: bool = True,
) -> list[Float[np.ndarray, "..."]]:
    """Each head's output at chosen positions of token sequences, site by site.

    Returns one array per site: (sequences, positions, heads, size) as float32, or, with `mean`,
    (sequences, heads, size), averaged over the positions, which then may differ in number. Negative
    positions count from the end. With `gates` the model runs under that head set; what a head says
    is read before its own gate.

    >>> from headcount import collect, load_model
    >>> model = load_model("smollm2-135m")
    >>> ids = model.tokenizer.encode("The capital of France is")
    >>> [z.shape for z in collect(model, [ids], [[-1]])][:1]
    [(1, 1, 9, 64)]
    """
    if len(sequences) != len(positions):
        raise HeadcountError(
            f"Give the positions of each of the {len(sequences)} sequences, not of "
            f"{len(positions)}."
        )
    for place, (ids, chosen) in enumerate(zip(sequences, positions, strict=True)):
        if not chosen or not all(-len(ids) <= p < len(ids) for p in chosen):
            raise HeadcountError(
                f"Sequence {place} has {len(ids)} tokens: name at least one position, and none "
                f"beyond them (asked for: {list(chosen)})."
            )
    counts = {len(chosen) for chosen in positions}
    if not mean and len(counts) > 1:
        raise HeadcountError("Ask for equally many positions of each sequence, or for their mean.")
    at_site: list[dict[int, Tensor]] = [{} for _ in model.sites]  # site → sequence → z

    def run(places: list[int]) -> None:
        def read(site: HeadSite, z: Tensor) -> None:
            heads = z[..., site.span].unflatten(-1, (site.heads, site.size))
            some = [heads[row, list(positions[place])].float() for row, place in enumerate(places)]
            # (rows, positions, heads, size), or without the positions; fetched in one go
            kept = torch.stack([z.mean(0) for z in some] if mean else some).cpu()
            at_site[site.index].update(zip(places, kept, strict=True))

        with reading(model, read):
            run_through(model, [sequences[place] for place in places], gates)

    each_length(model, sequences, run, label="collecting", progress=progress)
    order = range(len(sequences))
    return [torch.stack([by_place[place] for place in order]).numpy() for by_place in at_site]
