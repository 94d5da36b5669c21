"""Fast paths: ways through a model that leave out work and reproduce its logits.

Blocks before the first gated head need not run again: the model's own forward pass runs, and every
skipped module returns its recorded output of an earlier pass over the same tokens. What follows the
last attention runs only at the positions whose logits are scored. Every fast path is proven on the
model at hand before it is used: see `prove_fast_paths`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from headcount.models.forward_modes import Forward, instead, scored_logits
from headcount.models.sites import HeadSite, plain


@dataclass(frozen=True)
class Trunk:
    """The blocks that run one after the other, and where the head sites are in them."""

    blocks: tuple[str, ...]
    block_of: tuple[int, ...]  # the block of each site
    tokenwise: tuple[str, ...]  # modules after the last attention that treat each token alone


@dataclass(frozen=True)
class FastPaths:
    """The fast paths of a model: each is proven to reproduce its logits."""

    head: bool = False  # compute logits only at the scored positions
    trunk: Trunk | None = None  # start at the block of the first gated site
    attention: bool = False  # … and in that block, at the output projection
    scored: bool = False  # run the end of the last block only at the scored positions
    cache: bool = False  # run tokens that all rows share once, through the key/value cache


@dataclass(eq=False)
class Recording:
    """The outputs of blocks and attentions, and the inputs of projections, in one pass."""

    rows: int
    blocks: dict[int, Any] = field(default_factory=dict)  # block → its output
    # site → its attention's output minus the projection's, which is computed again
    attentions: dict[int, Any] = field(default_factory=dict)
    inputs: dict[int, Tensor] = field(default_factory=dict)  # site → its projection's input


def find_trunk(module: nn.Module, sites: Sequence[HeadSite], ran: Sequence[str]) -> Trunk | None:
    """Read the trunk off the names of the modules that `ran` in one pass, in their order.

    None where blocks run more than once or sites lie outside one list of blocks.
    """
    named = dict(plain(module).named_modules())
    parts = sites[0].module.split(".")
    around = (".".join(parts[:end]) for end in range(1, len(parts)))
    container = next((name for name in around if isinstance(named[name], nn.ModuleList)), None)
    if container is None:
        return None
    tops = [name for name in ran if _parent(name) == container]
    if len(set(tops)) != len(tops) or any(site.call for site in sites):
        return None
    block_of = tuple(
        next((i for i, top in enumerate(tops) if site.module.startswith(f"{top}.")), -1)
        for site in sites
    )
    if list(block_of) != sorted(block_of) or -1 in block_of:
        return None
    return Trunk(tuple(tops), block_of, _tokenwise(tops[-1], sites[-1], named))


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _tokenwise(block: str, last: HeadSite, named: dict[str, nn.Module]) -> tuple[str, ...]:
    """The last output projection, and what follows it in its block: in most models, the MLP.

    They are needed only at the positions whose logits are scored.
    """
    if not last.module.startswith(f"{block}."):
        return ()
    heavy = [
        name
        for name, child in named.items()
        if _parent(name) == block
        and not last.module.startswith(f"{name}.")
        and any(p.ndim > 1 for p in child.parameters())
    ]
    return (last.module, *heavy)


@contextmanager
def recording(
    module: nn.Module, trunk: Trunk, sites: Sequence[HeadSite], rows: int
) -> Iterator[Recording]:
    """Record the pass that runs in this context, so that `replaying` can skip parts of it."""
    kept = Recording(rows)
    named = dict(plain(module).named_modules())
    with ExitStack() as stack:
        for number, name in enumerate(trunk.blocks):
            stack.enter_context(named[name].register_forward_hook(_keep(kept.blocks, number)))
        for site in sites:
            if not site.attention.startswith(trunk.blocks[trunk.block_of[site.index]]):
                continue
            keep = _keep(kept.attentions, site.index, without_first=_inside(site))
            stack.enter_context(named[site.attention].register_forward_hook(keep))

            def keep_input(_: nn.Module, args: Any, number: int = site.index) -> None:
                kept.inputs[number] = args[0]

            before = named[site.module].register_forward_pre_hook(keep_input, prepend=True)
            stack.enter_context(before)
        yield kept


def _inside(site: HeadSite) -> bool:
    """Whether the projection is part of the module in which the attention runs."""
    return site.module.startswith(f"{site.attention}.")


def _keep(kept: dict[int, Any], number: int, *, without_first: bool = False) -> Callable[..., None]:
    """A hook that records a module's output, or only what follows its first tensor."""

    def hook(_: nn.Module, args: Any, output: Any) -> None:
        if without_first:
            output = (None, *output[1:]) if isinstance(output, tuple) else None
        kept[number] = output

    return hook


@contextmanager
def replaying(
    module: nn.Module,
    trunk: Trunk,
    site: HeadSite,
    kept: Recording,
    *,
    folds: int = 1,
    attention: bool = True,
) -> Iterator[None]:
    """Start passes at `site`: earlier blocks return their recorded output, repeated `folds` times.

    The pass inside must run the recorded tokens repeated `folds` times, one copy after the other.
    With `attention`, the site's own attention is not run again either, only its output projection.
    """
    named = dict(plain(module).named_modules())
    first = trunk.block_of[site.index]
    with ExitStack() as stack:
        for number, name in enumerate(trunk.blocks[:first]):
            # The block that runs next reads only the last of these outputs.
            copies = folds if number == first - 1 else 1
            output = _fold(kept.blocks[number], copies, kept.rows)
            stack.enter_context(instead(named[name], lambda *_, _output=output, **__: _output))
        if attention and site.index in kept.attentions:
            forward = _attend(named[site.module], site, kept, folds)
            stack.enter_context(instead(named[site.attention], forward))
        yield


def _attend(projection: nn.Module, site: HeadSite, kept: Recording, folds: int) -> Forward:
    """A forward for a site's attention that only projects the recorded head outputs."""
    before = kept.attentions[site.index]

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not _inside(site):
            return _fold(before, folds, kept.rows)  # the projection comes after this module
        z = kept.inputs[site.index]
        copies = (1, folds) if site.order == "tokens" else (folds,)
        z = z.repeat(*copies, *(1,) * (z.ndim - len(copies)))
        output = projection(z)
        return (output, *before[1:]) if isinstance(before, tuple) else output

    return forward


def _fold(value: Any, folds: int, rows: int) -> Any:
    """Repeat every tensor that has the recorded number of rows."""
    if isinstance(value, tuple):
        return tuple(_fold(item, folds, rows) for item in value)
    if folds == 1 or not isinstance(value, Tensor) or value.ndim < 2 or value.shape[0] != rows:
        return value
    return value.repeat(folds, *(1,) * (value.ndim - 1))


@contextmanager
def scored_only(module: nn.Module, trunk: Trunk, count: int) -> Iterator[None]:
    """Run what follows the last attention at the last `count` positions only; 0 elsewhere."""
    named = dict(plain(module).named_modules())
    with ExitStack() as stack:
        for name in trunk.tokenwise:
            stack.enter_context(instead(named[name], _at_end(named[name].forward, count)))
        yield


def _at_end(forward: Forward, count: int) -> Forward:
    def at_end(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        output = forward(x[:, x.shape[1] - count :].contiguous(), *args, **kwargs)
        end = output[0] if isinstance(output, tuple) else output
        whole = end.new_zeros(x.shape[0], x.shape[1], *end.shape[2:])
        whole[:, x.shape[1] - count :] = end
        return (whole, *output[1:]) if isinstance(output, tuple) else whole

    return at_end


@contextmanager
def scored_end(module: nn.Module, paths: FastPaths, count: int) -> Iterator[None]:
    """Run the end of the model at the last `count` positions only, as far as `paths` allow."""
    last_block = paths.head and paths.scored and paths.trunk is not None
    with (
        scored_logits(module, count) if paths.head else nullcontext(),
        scored_only(module, paths.trunk, count) if last_block and paths.trunk else nullcontext(),
    ):
        yield


def spread_cache(fresh: Any, prefix: Any, undisturbed: Any, folds: int, rows: int) -> Any:
    """Fill the `fresh` cache for `rows` rows under each of `folds` head sets; returns it.

    `prefix` is the cache of a pass over the tokens that all rows share, one row per head set.
    Layers that this pass skipped are filled from `undisturbed`, the cache of an ungated pass of one
    row.
    """
    for index, layer in enumerate(prefix.layers):
        ran = layer.is_initialized
        source, copies = (layer, rows) if ran else (undisturbed.layers[index], folds * rows)
        keys, values = (x.repeat_interleave(copies, 0) for x in (source.keys, source.values))
        fresh.update(keys, values, index)
    return fresh


@contextmanager
def watching(module: nn.Module, ran: list[str]) -> Iterator[None]:
    """Note the names of the modules that run in this context, in the order in which they start."""
    with ExitStack() as stack:
        for name, child in plain(module).named_modules():

            def note(*_: Any, name: str = name) -> None:
                ran.append(name)

            stack.enter_context(child.register_forward_pre_hook(note))
        yield
