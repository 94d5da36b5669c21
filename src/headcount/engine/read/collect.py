"""Run a model on token sequences, and read the heads' outputs during the pass.

Sequences of equal length run together, so that no padding is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.engine.measure.forward import measuring
from headcount.engine.measure.plan import default_tokens
from headcount.errors import HeadcountError
from headcount.heads import as_gates
from headcount.models.forward_modes import scored_logits
from headcount.models.gate import gating
from headcount.models.memory import within_memory
from headcount.models.model import Model, check_model
from headcount.models.sites import HeadSite, accepted, plain, to_rows
from headcount.models.tensor_parallel import whole_width
from headcount.system.progress import progress as progress_bar


def each_length(
    model: Model,
    sequences: Sequence[Sequence[int]],
    run: Callable[[list[int]], Iterable[Any]],
    *,
    label: str,
    progress: bool,
) -> list[Any]:
    """Call `run` with the indices of sequences of equal length, until all sequences have been run.

    If memory runs out, `run` is called again with fewer sequences. Returns one result per sequence.
    """
    if not sequences or not all(sequences):
        raise HeadcountError("Give at least one sequence, each with at least one token.")
    for ids in sequences:
        model.check_readable(ids, "A sequence")
    by_length: dict[int, list[int]] = {}
    for index, ids in enumerate(sequences):
        by_length.setdefault(len(ids), []).append(index)
    results: dict[int, Any] = {}
    with (
        progress_bar(label, len(sequences), show=progress, unit="sequence") as bar,
        measuring(model),
    ):

        def work(tokens: int) -> None:
            for length, left in by_length.items():
                rows = max(1, tokens // length)
                while left:
                    results.update(zip(left[:rows], run(left[:rows]), strict=True))
                    bar.update(len(left[:rows]))
                    del left[:rows]

        within_memory(model, work, default_tokens(model), max(by_length))
    return [results[index] for index in range(len(sequences))]


def run_through(
    model: Model,
    sequences: Sequence[Sequence[int]],
    gates: Float[np.ndarray, "heads"] | None = None,
) -> None:
    """Run one pass over sequences of equal length under a head set; hooks read what they need."""
    ids = torch.tensor([list(sequence) for sequence in sequences], device=model.device)
    with ExitStack() as stack:
        if model.scores_alone:
            stack.enter_context(scored_logits(model.module, 1))
        if gates is not None:
            stack.enter_context(gating(model.module, model.sites, torch.from_numpy(gates[None])))
        # A model that the user has compiled would ignore hooks that are registered afterwards.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        model.module(input_ids=ids, **accepted(model.module, use_cache=False))


@contextmanager
def reading(
    model: Model, read: Callable[[HeadSite, Float[Tensor, "rows tokens width"]], None]
) -> Iterator[None]:
    """Call `read` with each site's ungated z whenever the model runs in this context."""
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
                z = whole_width(model.module, sites[call], args[0])
                read(sites[call], to_rows(z, sites[call].order, rows[0]))

        return hook

    with ExitStack() as stack:
        top = plain(model.module)
        stack.callback(top.register_forward_pre_hook(starting, with_kwargs=True).remove)
        for name in dict.fromkeys(site.module for site in model.sites):
            sites = {site.call: site for site in model.sites if site.module == name}
            # This hook runs before the gating hook, so that it reads z before the gate.
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
    heads: Any = (),
    progress: bool = True,
) -> list[Float[np.ndarray, "..."]]:
    """Each head's output at the given positions of token sequences.

    Returns one float32 array per site (attention layer) of shape (sequences, positions, heads,
    size). With `mean` the outputs are averaged over the positions, whose number may then differ
    between sequences, and the shape is (sequences, heads, size). Negative positions count from the
    end. The model runs under the head set `heads`, given as for `gated`; a head's output is read
    before its gate.

    >>> from headcount import collect, load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> ids = model.tokenizer.encode("The capital of France is")
    >>> [z.shape for z in collect(model, [ids], [[-1]])][:1]
    [(1, 1, 9, 64)]
    """
    if len(sequences) != len(positions):
        raise HeadcountError(
            f"Give the positions of each of the {len(sequences)} sequences, not of "
            f"{len(positions)}."
        )
    for index, (ids, chosen) in enumerate(zip(sequences, positions, strict=True)):
        if not chosen or not all(-len(ids) <= p < len(ids) for p in chosen):
            raise HeadcountError(
                f"Sequence {index} has {len(ids)} tokens: name at least one position, and none "
                f"beyond them (asked for: {list(chosen)})."
            )
    gates = as_gates(heads, check_model(model).layout)
    counts = {len(chosen) for chosen in positions}
    if not mean and len(counts) > 1:
        raise HeadcountError("Ask for equally many positions of each sequence, or for their mean.")

    def run(indices: list[int]) -> list[tuple[Tensor, ...]]:
        at_site: dict[int, Tensor] = {}

        def read(site: HeadSite, z: Tensor) -> None:
            heads = z[..., site.span].unflatten(-1, (site.heads, site.size))
            outputs = [heads[row, list(positions[i])].float() for row, i in enumerate(indices)]
            outputs = [output.mean(0) for output in outputs] if mean else outputs
            at_site[site.index] = torch.stack(outputs).cpu()  # (rows, [positions,] heads, size)

        with reading(model, read):
            run_through(model, [sequences[index] for index in indices], gates)
        return list(zip(*(at_site[site.index] for site in model.sites), strict=True))

    outputs = each_length(model, sequences, run, label="collecting", progress=progress)
    return [torch.stack(by_sequence).numpy() for by_sequence in zip(*outputs, strict=True)]
