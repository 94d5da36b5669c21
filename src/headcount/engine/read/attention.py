"""Read the heads' attention weights while a model runs.

Fast attention kernels never form the weights, so the model runs with transformers' eager attention
here, and with its own kernel again afterwards. An attention module returns its weights next to its
output. They are reduced to a few numbers at once, so that memory holds the weights of only one
layer and batch at a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.engine.read.collect import each_length, run_through
from headcount.errors import HeadcountError
from headcount.models.gate import require_one_process
from headcount.models.model import Model
from headcount.models.sites import HeadSite, coarsest_dtype, plain
from headcount.models.slices import tolerance
from headcount.sparse.attention import SPARSE, forming_weights
from headcount.system.transformers_compat import other_attention

Read = Callable[[HeadSite, Float[Tensor, "rows heads queries keys"]], None]
Reduce = Callable[
    [HeadSite, Float[Tensor, "rows heads queries keys"], Sequence[int]],
    Float[Tensor, "rows heads *_"],
]


def _eager(_: Any, kernel: str) -> str:
    """Replace every kernel but sparse attention, which itself forms the weights of open edges."""
    return kernel if kernel == SPARSE else "eager"


@contextmanager
def reading_attention(model: Model, read: Read) -> Iterator[None]:
    """Call `read` with each site's attention weights whenever the model runs in this context.

    The weights' heads are the site's query heads, in order. A pass in which a site gives no weights
    is refused, as soon as its attention module returns or at the latest at the end of the context.
    """
    require_one_process(model.sites, "Reading attention")
    for site in model.sites:
        if site.queries != 1:
            raise HeadcountError(
                f"{site.attention} has {site.queries} attention patterns for each head, and a "
                "ranking by attention needs a single one: use another ranking, such as attribution."
            )
    reader = _AttentionReader(model, read)
    named = dict(plain(model.module).named_modules())
    with ExitStack() as stack:
        top = plain(model.module)
        stack.callback(top.register_forward_pre_hook(reader.start, with_kwargs=True).remove)
        for name in dict.fromkeys(site.attention for site in model.sites):
            attention = named[name]
            if "output_attentions" in inspect.signature(attention.forward).parameters:
                handle = attention.register_forward_pre_hook(_ask_for_weights, with_kwargs=True)
                stack.callback(handle.remove)
            stack.callback(attention.register_forward_hook(reader.hook(name)).remove)
        stack.enter_context(other_attention(model.module, _eager))
        stack.enter_context(forming_weights())
        # A model that the user has compiled would ignore hooks that are registered afterwards.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield
        reader.finish()


def attend(
    model: Model, sequences: Sequence[Sequence[int]], reduce: Reduce, *, progress: bool = True
) -> Float[np.ndarray, "sequences heads"]:
    """One number per sequence and head, computed from the attention weights on token sequences.

    `reduce(site, weights, indices)` turns the weights of one site on some of the sequences, whose
    indices it is given, into one number for each of these sequences and each head.

    >>> from headcount import load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> ids = model.tokenizer.encode("The capital of France is")
    >>> to_the_first = attend(model, [ids], lambda site, weights, indices: weights[:, :, -1, 0])
    >>> to_the_first.shape
    (1, 270)
    """
    return np.stack(attend_each(model, sequences, reduce, progress=progress))


@torch.no_grad()
def attend_each(
    model: Model,
    sequences: Sequence[Sequence[int]],
    reduce: Reduce,
    *,
    gates: Float[np.ndarray, "heads"] | None = None,
    label: str = "reading attention",
    progress: bool = True,
) -> list[Float[np.ndarray, "heads *_"]]:
    """For each sequence, what `reduce` makes of the attention weights: a number or array per head.

    With `gates` the model runs under that head set.
    """

    def run(indices: list[int]) -> Float[np.ndarray, "rows heads *_"]:
        at_site: dict[int, Tensor] = {}

        def read(site: HeadSite, weights: Tensor) -> None:
            at_site[site.index] = reduce(site, weights, indices)

        with reading_attention(model, read):
            run_through(model, [sequences[index] for index in indices], gates)
        table = torch.cat([at_site[site.index].cpu().double() for site in model.sites], dim=1)
        return table.numpy()

    return each_length(model, sequences, run, label=label, progress=progress)


def _ask_for_weights(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Set `output_attentions`, because some attention modules return no weights without it."""
    return args, {**kwargs, "output_attentions": True}


class _AttentionReader:
    """Reads the weights of one pass after the other, and checks that every site has given some."""

    def __init__(self, model: Model, read: Read) -> None:
        self.model, self.read = model, read
        self.shape: tuple[int, int] | None = None  # rows, tokens
        self.runs: dict[str, int] = {}
        self.seen: set[int] = set()
        self.limit = 1 + 10 * tolerance(coarsest_dtype(model.module))

    def start(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.finish()
        given = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args)
        ids = next(x for x in given if isinstance(x, Tensor))
        self.shape = (ids.shape[0], ids.shape[1])
        self.runs.clear()
        self.seen.clear()

    def hook(self, name: str) -> Callable[..., None]:
        sites = {site.call: site for site in self.model.sites if site.attention == name}

        def hook(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            run = self.runs.get(name, 0)
            self.runs[name] = run + 1
            if run in sites and self.shape is not None:
                self.seen.add(sites[run].index)
                self.read(sites[run], self._weights(sites[run], output))

        return hook

    def finish(self) -> None:
        """Refuse a pass in which a site's attention module did not run."""
        if self.shape is not None:
            for site in self.model.sites:
                if site.index not in self.seen:
                    raise _no_weights(site)

    def _weights(self, site: HeadSite, output: Any) -> Float[Tensor, "rows heads queries keys"]:
        rows, tokens = self.shape or (0, 0)
        for part in output if isinstance(output, tuple | list) else ():
            if isinstance(part, Tensor) and part.shape == (rows, site.heads, tokens, tokens):
                # Scores before the softmax have the same shape, so check that the numbers are
                # probabilities (with attention sinks they sum to less than 1) and causal.
                probabilities = float(part.sum(-1).max()) <= self.limit and float(part.min()) >= 0
                if probabilities and not part.triu(1).any():
                    return part
        raise _no_weights(site)


def _no_weights(site: HeadSite) -> HeadcountError:
    return HeadcountError(
        f"{site.attention} gives no softmax weights of its {site.heads} heads over the tokens, so "
        "their attention cannot be read: use another ranking, such as attribution."
    )
