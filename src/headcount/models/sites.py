"""Head sites: where in a causal LM the heads stand side by side, and how to read them there."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.errors import HeadcountError

TOKENS = 11  # length of the probing prompt: a prime that no size of a model is likely to equal

# How a projection's input lies in memory: (rows, tokens, …), (rows·tokens, …) or (tokens, rows, …);
# all further axes are flattened into one, the width.
Order = Literal["rows", "flat", "tokens"]


@dataclass(frozen=True)
class HeadSite:
    """One attention block's output projection and the slices of its input that are heads."""

    index: int
    module: str  # the projection's name inside the model
    attention: str  # the name of the module in which its attention runs
    call: int  # how many times that module ran before in the same pass: blocks may be shared
    heads: int
    size: int  # numbers per head
    width: int  # numbers in the projection's input
    start: int = 0  # where the first head begins
    order: Order = "rows"
    runs: int = 1  # how many times the projection runs in one pass
    queries: int = 1  # query heads that share a slice: 2 in differential attention
    coupled: bool = False  # a norm over all heads stands between attention and projection
    rank: int = 0  # this process, if tensor parallelism shares the heads out over `ranks` processes
    ranks: int = 1

    @property
    def span(self) -> slice:
        """The columns that are heads: usually all."""
        return slice(self.start, self.start + self.heads * self.size)

    @property
    def own(self) -> HeadSite:
        """The part of the site that this process holds: the whole of it without `ranks`."""
        if self.ranks == 1:
            return self
        heads, width = self.heads // self.ranks, self.width // self.ranks
        return replace(self, heads=heads, width=width, rank=0, ranks=1)

    def own_columns(self, z: Tensor) -> Tensor:
        """The columns, of all heads side by side, that this process holds."""
        width = self.width // self.ranks
        return z[..., self.rank * width : (self.rank + 1) * width]


def input_order(x: Tensor, rows: int, tokens: int) -> Order | None:
    """How rows and tokens lie in a projection's input, or None if no order fits."""
    if x.ndim >= 3 and x.shape[:2] == (rows, tokens):
        return "rows"
    if x.ndim >= 2 and x.shape[0] == rows * tokens:
        return "flat"
    if x.ndim >= 3 and x.shape[:2] == (tokens, rows):
        return "tokens"
    return None


def to_rows(x: Tensor, order: Order, rows: int) -> Float[Tensor, "rows tokens width"]:
    """See a projection's input as (rows, tokens, width)."""
    if order == "tokens":
        return x.flatten(2).transpose(0, 1)
    if order == "flat":
        return x.reshape(rows, x.shape[0] // rows, -1)
    return x.flatten(2)


def from_rows(x: Float[Tensor, "rows tokens width"], order: Order, like: Tensor) -> Tensor:
    """Undo `to_rows`: lay `x` out as the projection's input `like` was."""
    return (x.transpose(0, 1) if order == "tokens" else x).reshape(like.shape).contiguous()


def plain(module: nn.Module) -> nn.Module:
    """The module behind a `torch.compile` wrapper, or the module itself."""
    inner = getattr(module, "_orig_mod", module)
    return inner if isinstance(inner, nn.Module) else module


def is_unloaded(module: nn.Module) -> bool:
    """Whether the module has names and shapes, and no weights at all."""
    return all(parameter.is_meta for parameter in module.parameters())


def accepted(module: nn.Module, **options: Any) -> dict[str, Any]:
    """The `options` that the module's `forward` accepts, by name or through **kwargs."""
    parameters = inspect.signature(plain(module).forward).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        # Wrappers (PEFT) pass everything on to a model that does name its arguments.
        return options
    return {name: value for name, value in options.items() if name in parameters}


def input_device(module: nn.Module) -> torch.device:
    """The device that the token ids go to."""
    embeddings = plain(module).get_input_embeddings()  # type: ignore[operator]
    device: torch.device = embeddings.weight.device
    if device.type != "meta":
        return device
    # Accelerate moves offloaded weights to this device when they are needed.
    hook = getattr(embeddings, "_hf_hook", None)
    target = getattr(hook, "execution_device", None)
    return torch.device("cpu" if target is None else target)


def coarsest_dtype(module: nn.Module) -> torch.dtype:
    """The number format that decides how exact the model's results are."""
    dtypes = {p.dtype for p in plain(module).parameters() if p.is_floating_point()}
    # Eight-bit formats only store weights: the model computes in a wider one.
    wide = [dtype for dtype in dtypes if dtype.itemsize > 1]
    return max(wide, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)


def probe_prompt(module: nn.Module, rows: int) -> Int[Tensor, "rows tokens"]:
    """Distinct token ids from the middle of the vocabulary, the same in every row."""
    vocabulary = int(plain(module).get_input_embeddings().weight.shape[0])  # type: ignore[operator]
    ids = (torch.arange(TOKENS) * 7 + vocabulary // 3) % vocabulary
    return ids.expand(rows, TOKENS).to(input_device(module))


@torch.no_grad()
def run(
    module: nn.Module, ids: Int[Tensor, "rows tokens"]
) -> Float[Tensor, "rows positions vocab"]:
    """The logits of an ordinary forward pass without padding and without a cache."""
    options = accepted(module, use_cache=False)
    with torch.compiler.set_stance("force_eager"):
        output = module(input_ids=ids, **options)
    logits: Tensor = output.logits
    if logits.ndim != 3:
        raise HeadcountError(
            f"{type(plain(module)).__name__} gives one answer per text (a classifier?): headcount "
            "needs logits at every token."
        )
    return logits
