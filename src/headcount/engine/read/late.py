"""Read the attention weights of late queries only, so that memory grows with the text's length.

`reading_attention` has the model form all its weights, queries × keys for each head. Here the model
runs through a fused kernel, and the weights of the last few queries are formed beside it, from
their query vectors and all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.engine.edges.attention import KNOWN_KERNELS, Call
from headcount.engine.read.attention import Reduce
from headcount.engine.read.collect import each_length, run_through
from headcount.errors import HeadcountError
from headcount.models.gate import require_one_process
from headcount.models.model import Model
from headcount.models.sites import HeadSite, plain
from headcount.sparse.attention import SPARSE, prepared, scale_of
from headcount.system.transformers_compat import (
    CHANGED_SCORES,
    attention_function,
    kernel_of,
    other_attention,
    replaced,
)

LATE = "headcount-late"  # the kernel's name in transformers

_pass: LatePass | None = None  # the pass that is running; set by `reading_late`


@dataclass(eq=False)
class LatePass:
    """One pass of the model: its last `count` queries are read at every head site."""

    sites: dict[int, list[HeadSite]]  # by the identity of the attention module
    count: int
    read: Callable[[HeadSite, Float[Tensor, "rows heads late keys"]], None]
    runs: dict[int, int] = field(default_factory=dict)

    def site(self, module: nn.Module) -> HeadSite | None:
        """The site of the attention call that is running, if it is one."""
        run = self.runs.get(id(module), 0)
        self.runs[id(module)] = run + 1
        return next((site for site in self.sites.get(id(module), ()) if site.call == run), None)


def late_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls: a fused kernel, and the weights of late queries."""
    now = _pass
    if now is None:
        raise HeadcountError(f"The kernel {LATE} runs inside headcount's own passes only.")
    changed = [name for name in CHANGED_SCORES if kwargs.get(name) is not None]
    if changed or dropout:
        why = f"changes its attention scores ({', '.join(changed) or 'dropout'})"
        raise _refused(type(module).__name__, why)
    bias = getattr(getattr(module, "config", None), "gate_bias", None)
    site = now.site(module)
    if site is not None:
        given = prepared(module, query, key, value, attention_mask, is_causal)
        opened = query.new_full((), float("inf") if bias is None else bias, dtype=torch.float32)
        call = Call(*given[:4], opened, scale_of(query, scaling), given[4])
        tokens = query.shape[2]
        _, weights = call.part(range(max(0, tokens - now.count), tokens))
        now.read(site, weights)
    kernel = attention_function("sdpa" if bias is None else SPARSE)
    how = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **kwargs}
    output: Tensor = kernel(module, query, key, value, attention_mask, **how)[0]
    return output, None


@contextmanager
def reading_late(model: Model, now: LatePass) -> Iterator[None]:
    """Read late queries while the model runs one pass in this context."""
    _register()
    with ExitStack() as stack:
        stack.enter_context(other_attention(model.module, lambda config, kernel: LATE))
        stack.enter_context(replaced(__name__, "_pass", now))
        yield


def _refused(what: str, why: str) -> HeadcountError:
    return HeadcountError(
        f"{what} {why}, so the attention of its last tokens cannot be read: use another ranking, "
        "such as attention-retrieval."
    )


def _sites_of(model: Model) -> dict[int, list[HeadSite]]:
    """The head sites by the identity of their attention module; refuses what cannot be read."""
    named = dict(plain(model.module).named_modules())
    found: dict[int, list[HeadSite]] = {}
    require_one_process(model.sites, "Reading attention")
    for site in model.sites:
        module = named[site.attention]
        kernel = kernel_of(getattr(module, "config", None))
        if site.queries != 1 or kernel not in KNOWN_KERNELS:
            raise _refused(site.attention, "does not run one pattern for each head in a known way")
        found.setdefault(id(module), []).append(site)
    return found


@torch.no_grad()
def attend_late(
    model: Model,
    sequences: Sequence[Sequence[int]],
    late: Sequence[int],
    reduce: Reduce,
    *,
    progress: bool = True,
) -> Float[np.ndarray, "sequences heads"]:
    """One number per sequence and head, from the attention weights of its last queries.

    `late` says how many queries of each sequence are read. `reduce(site, weights, indices)` turns
    the weights (rows, heads, late queries, keys) of sequences of equal length, of which it is given
    the indices, into one number for each of them and each head; where `late` differs among
    sequences of equal length, they get as many queries as the longest asks for.

    >>> from headcount import load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> ids = model.tokenizer.encode("The capital of France is")
    >>> attend_late(model, [ids], [1], lambda site, weights, indices: weights[..., -1, 0]).shape
    (1, 270)
    """
    sites = _sites_of(model)

    def run(indices: list[int]) -> Float[np.ndarray, "rows heads"]:
        at_site: dict[int, Tensor] = {}

        def read(site: HeadSite, weights: Tensor) -> None:
            at_site[site.index] = reduce(site, weights, indices)

        now = LatePass(sites, max(late[index] for index in indices), read)
        with reading_late(model, now):
            run_through(model, [sequences[index] for index in indices])
        for site in model.sites:
            if site.index not in at_site:
                raise _refused(site.attention, "does not use transformers' attention functions")
        table = torch.cat([at_site[site.index].cpu().double() for site in model.sites], dim=1)
        return table.numpy()

    label = "reading late attention"
    return np.stack(each_length(model, sequences, run, label=label, progress=progress))


def _register() -> None:
    """Register the kernel with transformers; a second call changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(LATE, late_attention)
    AttentionMaskInterface.register(LATE, sdpa_mask)
