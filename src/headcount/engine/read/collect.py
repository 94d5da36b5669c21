"""Read the heads' outputs while a model runs, and keep only what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.engine.measure.forward import measuring
from headcount.engine.measure.plan import default_tokens
from headcount.errors import HeadcountError
from headcount.models.forward_modes import scored_logits
from headcount.models.memory import within_memory
from headcount.models.model import Model
from headcount.models.sites import HeadSite, accepted, plain, to_rows
from headcount.system.progress import progress as progress_bar


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
    progress: bool = True,
) -> list[Float[np.ndarray, "..."]]:
    """Each head's output at chosen positions of token sequences, site by site.

    Returns one array per site: (sequences, positions, heads, size) as float32, or, with `mean`,
    (sequences, heads, size), averaged over the positions, which then may differ in number. Negative
    positions count from the end.

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
    if not sequences:
        raise HeadcountError("Give at least one sequence to collect from.")
    found: list[dict[int, Tensor]] = [{} for _ in model.sites]  # site → sequence → z
    by_length: dict[int, list[int]] = {}
    for place, ids in enumerate(sequences):
        by_length.setdefault(len(ids), []).append(place)
    with progress_bar("collecting", len(sequences), show=progress, unit="sequence") as bar:

        def work(tokens: int) -> None:
            for length, alike in by_length.items():
                left = [place for place in alike if place not in found[-1]]
                rows = max(1, tokens // length)
                for start in range(0, len(left), rows):
                    chosen = left[start : start + rows]
                    _collect(model, sequences, positions, chosen, mean, found)
                    bar.update(len(chosen))

        within_memory(model, work, default_tokens(model), max(by_length))
    order = range(len(sequences))
    return [torch.stack([at[place] for place in order]).numpy() for at in found]


def _collect(
    model: Model,
    sequences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    places: Sequence[int],
    mean: bool,
    found: list[dict[int, Tensor]],
) -> None:
    def read(site: HeadSite, z: Tensor) -> None:
        heads = z[..., site.span].unflatten(-1, (site.heads, site.size))
        some = [heads[row, list(positions[place])].float() for row, place in enumerate(places)]
        # (rows, positions, heads, size), or without the positions; fetched in one go
        kept = torch.stack([one.mean(0) for one in some] if mean else some).cpu()
        found[site.index].update(zip(places, kept, strict=True))

    ids = torch.tensor([list(sequences[place]) for place in places], device=model.device)
    only_last = scored_logits(model.module, 1) if model.short_cuts.head else nullcontext()
    # A user's compiled graph does not see hooks that came after it.
    eager = torch.compiler.set_stance("force_eager")
    with measuring(model), reading(model, read), only_last, eager:
        model.module(input_ids=ids, **accepted(model.module, use_cache=False))
