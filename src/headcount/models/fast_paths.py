"""Fast paths: ways through a model that leave out work and reproduce its logits.

Blocks before the first gated head need not run again: the model's own forward pass runs, and every
skipped module returns its recorded output of an earlier pass over the same tokens. What follows the
last attention runs only at the positions whose logits are scored. Every fast path is proven on the
model at hand before it is used: see `prove_fast_paths`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from headcount.models.forward_modes import Forward, instead, last_positions, scored_logits
from headcount.models.sites import HeadSite, plain

Along = Literal["rows", "tokens"]  # whether copies of a text are further rows or further tokens


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
    blocks_run: int = 0  # blocks that ran, where the pass stopped early

    def end(self) -> Recording:
        """What a pass needs that goes on where this one stopped."""
        last = self.blocks_run - 1
        return Recording(self.rows, {last: self.blocks[last]}, blocks_run=self.blocks_run)


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
    module: nn.Module,
    trunk: Trunk,
    sites: Sequence[HeadSite],
    rows: int,
    *,
    starts: Collection[int] | None = None,
    last: int | None = None,
) -> Iterator[Recording]:
    """Record the pass that runs in this context, so that `replaying` can skip parts of it.

    Kept is what a replay from the sites `starts` needs (default: from any site). With `last` the
    pass ends there: the output of block `last` is kept, and no later block runs.
    """
    kept = Recording(rows, blocks_run=0 if last is None else last + 1)
    named = dict(plain(module).named_modules())
    chosen = sites if starts is None else [sites[start] for start in starts]
    before = {trunk.block_of[site.index] - 1 for site in chosen}
    blocks = range(len(trunk.blocks)) if starts is None else sorted(before - {-1})
    with ExitStack() as stack:
        for number in sorted({*blocks} if last is None else {*blocks, last}):
            hook = _keep(kept.blocks, number)
            stack.enter_context(named[trunk.blocks[number]].register_forward_hook(hook))
        for name in () if last is None else trunk.blocks[last + 1 :]:
            stack.enter_context(
                instead(named[name], lambda *_, _last=last, **__: kept.blocks[_last])
            )
        for site in chosen:
            if not site.attention.startswith(trunk.blocks[trunk.block_of[site.index]]):
                continue
            keep = _keep(kept.attentions, site.index, without_first=_inside(site))
            stack.enter_context(named[site.attention].register_forward_hook(keep))

            def keep_input(_: nn.Module, args: Any, number: int = site.index) -> None:
                kept.inputs[number] = args[0]

            hook_before = named[site.module].register_forward_pre_hook(keep_input, prepend=True)
            stack.enter_context(hook_before)
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
    along: Along = "rows",
) -> Iterator[None]:
    """Start passes at `site`: what came before is not run again.

    The pass inside must run the recorded tokens repeated `folds` times, one copy after the other:
    as further rows, or as further tokens of each row. With `attention`, the site's own attention is
    not run again either, only its output projection.
    """
    named = dict(plain(module).named_modules())
    with ExitStack() as stack:
        first = trunk.block_of[site.index]
        stack.enter_context(skipping(module, trunk, first, kept, folds=folds, along=along))
        if attention and site.index in kept.attentions:
            forward = _attend(named[site.module], site, kept, folds, along)
            stack.enter_context(instead(named[site.attention], forward))
        yield


@contextmanager
def skipping(
    module: nn.Module,
    trunk: Trunk,
    first: int,
    kept: Recording,
    *,
    folds: int = 1,
    along: Along = "rows",
) -> Iterator[None]:
    """Start passes at block `first`: earlier blocks return the recorded output of the last of them.

    The block that runs next reads only that one.
    """
    named = dict(plain(module).named_modules())
    output = _fold(kept.blocks[first - 1], folds, kept.rows, along) if first else None
    with ExitStack() as stack:
        for name in trunk.blocks[:first]:
            stack.enter_context(instead(named[name], lambda *_, **__: output))
        yield


def _attend(
    projection: nn.Module, site: HeadSite, kept: Recording, folds: int, along: Along
) -> Forward:
    """A forward for a site's attention that only projects the recorded head outputs."""
    before = kept.attentions[site.index]

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not _inside(site):  # the projection comes after this module
            return _fold(before, folds, kept.rows, along)
        output = projection(_fold_input(kept.inputs[site.index], site, folds, kept.rows, along))
        return (output, *before[1:]) if isinstance(before, tuple) else output

    return forward


def _fold_input(z: Tensor, site: HeadSite, folds: int, rows: int, along: Along) -> Tensor:
    """Repeat a projection's input."""
    if folds == 1:
        return z
    z = z.unflatten(0, (rows, -1)) if site.order == "flat" else z
    rows_first = site.order != "tokens"
    copies = (folds, 1) if rows_first == (along == "rows") else (1, folds)
    z = z.repeat(*copies, *(1,) * (z.ndim - 2))
    return z.flatten(0, 1) if site.order == "flat" else z


def _fold(value: Any, folds: int, rows: int, along: Along) -> Any:
    """Repeat every tensor that has the recorded number of rows."""
    if isinstance(value, tuple):
        return tuple(_fold(item, folds, rows, along) for item in value)
    if folds == 1 or not isinstance(value, Tensor) or value.ndim < 2 or value.shape[0] != rows:
        return value
    copies = (folds, 1) if along == "rows" else (1, folds)
    return value.repeat(*copies, *(1,) * (value.ndim - 2))


@contextmanager
def scored_only(module: nn.Module, trunk: Trunk, count: int, folds: int = 1) -> Iterator[None]:
    """Run what follows the last attention at the positions of `scored_logits` only; 0 elsewhere."""
    named = dict(plain(module).named_modules())
    with ExitStack() as stack:
        for name in trunk.tokenwise:
            forward = _at_end(named[name].forward, count, folds)
            stack.enter_context(instead(named[name], forward))
        yield


def _at_end(forward: Forward, count: int, folds: int) -> Forward:
    def at_end(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        output = forward(last_positions(x, count, folds), *args, **kwargs)
        end = output[0] if isinstance(output, tuple) else output
        whole = end.new_zeros(x.shape[0], folds, x.shape[1] // folds, *end.shape[2:])
        whole[:, :, whole.shape[2] - count :] = end.unflatten(1, (folds, count))
        whole = whole.flatten(1, 2)
        return (whole, *output[1:]) if isinstance(output, tuple) else whole

    return at_end


@contextmanager
def in_pieces(module: nn.Module, trunk: Trunk, tokens: int) -> Iterator[None]:
    """Run what follows the attention of each block on this many tokens at a time: saves memory.

    Only where `scored_only` is proven: what treats each token alone in the last block is taken to
    do so in every block that has the same kind of module in the same place.
    """
    named = dict(plain(module).named_modules())
    last = trunk.blocks[-1]
    with ExitStack() as stack:
        for block in trunk.blocks:
            for name in trunk.tokenwise[1:]:
                part = named.get(block + name.removeprefix(last))
                if part is not None and type(part) is type(named[name]):
                    stack.enter_context(instead(part, _piecewise(part.forward, tokens)))
        yield


def _piecewise(forward: Forward, tokens: int) -> Forward:
    def piecewise(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        first = forward(x[:, :tokens].contiguous(), *args, **kwargs)
        if not isinstance(first, Tensor):  # it returns more than one number per token and column
            return forward(x, *args, **kwargs)
        whole = first.new_empty(*x.shape[:2], *first.shape[2:])
        whole[:, :tokens] = first
        for start in range(tokens, x.shape[1], tokens):
            piece = slice(start, start + tokens)
            whole[:, piece] = forward(x[:, piece].contiguous(), *args, **kwargs)
        return whole

    return piecewise


@contextmanager
def scored_end(module: nn.Module, paths: FastPaths, count: int, folds: int = 1) -> Iterator[None]:
    """Run the end of the model at the positions of `scored_logits`, as far as `paths` allow."""
    with ExitStack() as stack:
        if paths.head:
            stack.enter_context(scored_logits(module, count, folds))
        if paths.head and paths.scored and paths.trunk is not None:
            stack.enter_context(scored_only(module, paths.trunk, count, folds))
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
