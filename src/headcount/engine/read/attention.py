"""Read the heads' attention weights while a model runs, and keep only what is asked for.

Fast kernels never form the weights, so the model runs with transformers' eager attention inside,
and with its own kernel again afterwards. A site's weights are what its attention module returns
beside its output; they are reduced at once, so that those of one layer and batch are all that
memory ever holds.
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
    """Sparse attention stays: it forms its own weights, those of open edges, where it is asked."""
    return kernel if kernel == SPARSE else "eager"


@contextmanager
def reading_attention(model: Model, read: Read) -> Iterator[None]:
    """Call `read` with each site's attention weights whenever the model runs in this context.

    Heads are the site's query heads, in its order. A pass that leaves out a site's weights is
    refused: at the end of the context, or at the module whose weights are of no use.
    """
    for site in model.sites:
        if site.queries != 1:
            raise HeadcountError(
                f"{site.attention} has {site.queries} attention patterns for each head, so that no "
                "single one could be called the head's."
            )
    watch = _Watch(model, read)
    named = dict(plain(model.module).named_modules())
    with ExitStack() as stack:
        top = plain(model.module)
        stack.callback(top.register_forward_pre_hook(watch.start, with_kwargs=True).remove)
        for name in dict.fromkeys(site.attention for site in model.sites):
            attention = named[name]
            if "output_attentions" in inspect.signature(attention.forward).parameters:
                ask = attention.register_forward_pre_hook(_ask, with_kwargs=True)
                stack.callback(ask.remove)
            stack.callback(attention.register_forward_hook(watch.hook(name)).remove)
        stack.enter_context(other_attention(model.module, _eager))
        stack.enter_context(forming_weights())
        # A user's compiled graph does not see hooks that came after it.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield
        watch.finish()


def attend(
    model: Model, sequences: Sequence[Sequence[int]], reduce: Reduce, *, progress: bool = True
) -> Float[np.ndarray, "sequences heads"]:
    """One number per sequence and head, from the attention weights on token sequences.

    `reduce` makes the numbers of one site's heads from its weights on some of the sequences; it is
    told which.

    >>> from headcount import load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> ids = model.tokenizer.encode("The capital of France is")
    >>> to_the_first = attend(model, [ids], lambda site, weights, places: weights[:, :, -1, 0])
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
    """What `reduce` makes of the attention weights on each sequence: numbers or arrays, by head.

    With `gates` the model runs under that head set.
    """

    def run(places: list[int]) -> Float[np.ndarray, "rows heads *_"]:
        at_site: dict[int, Tensor] = {}

        def read(site: HeadSite, weights: Tensor) -> None:
            at_site[site.index] = reduce(site, weights, places)

        with reading_attention(model, read):
            run_through(model, [sequences[place] for place in places], gates)
        table = torch.cat([at_site[site.index].cpu().double() for site in model.sites], dim=1)
        return table.numpy()

    return each_length(model, sequences, run, label=label, progress=progress)


def _ask(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Some attention modules return their weights only where they are asked for them."""
    return args, {**kwargs, "output_attentions": True}


class _Watch:
    """The pass that is running: its shape, and which sites have been read in it."""

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
        """Refuse a pass in which a site did not run."""
        if self.shape is not None:
            for site in self.model.sites:
                if site.index not in self.seen:
                    raise _no_weights(site)

    def _weights(self, site: HeadSite, output: Any) -> Float[Tensor, "rows heads queries keys"]:
        rows, tokens = self.shape or (0, 0)
        for part in output if isinstance(output, tuple | list) else ():
            if isinstance(part, Tensor) and part.shape == (rows, site.heads, tokens, tokens):
                # Scores before the softmax have the same shape; sinks leave sums below 1.
                sums = float(part.sum(-1).max()) <= self.limit and float(part.min()) >= 0
                if sums and not part.triu(1).any():  # and nobody looks at later tokens
                    return part
        raise _no_weights(site)


def _no_weights(site: HeadSite) -> HeadcountError:
    return HeadcountError(
        f"{site.attention} gives no softmax weights of its {site.heads} heads over the tokens, so "
        "that nothing can be said about what they look at: rank by another ranking, such as "
        "attribution."
    )
