"""The one formula: z' = g·z + b at every head site, for one forward pass or many.

`gating` is a context: inside it the model's heads are gated, after it nothing is left behind, also
after an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.sites import HeadSite, from_rows, plain, to_rows
from headcount.models.streaming import Streaming

PerSite = Sequence[Tensor | None]  # for each site: broadcasts to (rows, tokens, width)
Ablations = PerSite | Streaming  # z₀ of each site, or how every pass computes it anew


def require_one_process(sites: Sequence[HeadSite], what: str) -> None:
    """Refuse what needs all heads in one process, where tensor parallelism shares them out."""
    if (ranks := max((site.ranks for site in sites), default=1)) > 1:
        raise HeadcountError(
            f"{what} needs all heads in one process, and tensor parallelism shares those of this "
            f"model out over {ranks}: load it without tp_plan (device_map spreads a large one)."
        )


@contextmanager
def gating(
    module: nn.Module,
    sites: Sequence[HeadSite],
    gates: Float[Tensor, "rows heads"] | Float[Tensor, "rows heads tokens"],
    *,
    ablations: Ablations | None = None,
    biases: PerSite | None = None,
    every_site: bool = False,
) -> Iterator[None]:
    """Gate the heads of `module` inside this context.

    `gates` holds one number per row and head (in the order of `sites`), optionally one per token;
    a single row of gates applies to every row of the batch. `ablations` gives z₀ of each site, from
    which b = (1 − g)·z₀ (zero where z₀ is not given), or says that the attention function is to
    compute z₀ in every pass (`Streaming`); `biases` gives b itself (steering). Sites whose gates
    are all 1 are not hooked unless `every_site` is set. Gates are read once, on first use, unless
    they carry gradients.
    """
    total = sum(site.heads for site in sites)
    if gates.ndim not in (2, 3) or gates.shape[1] != total:
        raise HeadcountError(
            f"Gates need shape (rows, {total}) or (rows, {total}, tokens), one number for each "
            f"head, not {tuple(gates.shape)}."
        )
    if gates.requires_grad:
        require_one_process(sites, "A derivative by gates")
    if isinstance(ablations, Streaming):
        require_one_process(sites, "Streaming attention")
        with ablations.mixing(module, sites, gates):
            yield
        return
    by_module: dict[str, dict[int, _Gate]] = {}  # projection → run in the pass → gate
    first = 0
    for site in sites:
        heads = slice(first, first + site.heads)
        first += site.heads
        bias = None if biases is None else biases[site.index]
        ablation = None if ablations is None else ablations[site.index]
        idle = bias is None and not gates.requires_grad and bool((gates[:, heads] == 1).all())
        if every_site or not idle:
            if site.ranks > 1:
                each = site.heads // site.ranks
                heads = slice(heads.start + site.rank * each, heads.start + (site.rank + 1) * each)
                ablation, bias = (z if z is None else site.own_columns(z) for z in (ablation, bias))
            gate = _Gate(site.own, heads, gates, ablation, bias)
            by_module.setdefault(site.module, {})[site.call] = gate
    running = _RunningPass()
    named = dict(plain(module).named_modules())
    with ExitStack() as stack:
        for top in _tops(module):
            stack.enter_context(top.register_forward_pre_hook(running.start, with_kwargs=True))
        for name, by_call in by_module.items():
            hook = running.gate(name, by_call)
            stack.enter_context(named[name].register_forward_pre_hook(hook))
        # A compiled graph does not see hooks that came after it.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _tops(module: nn.Module) -> list[nn.Module]:
    """The modules at which a forward pass may enter the model."""
    top = plain(module)
    inner = getattr(top, "get_base_model", None)  # PEFT: `generate` enters past the wrapper
    return [top] if inner is None else [top, inner()]


class _RunningPass:
    """The forward pass that is running: its rows, and how often each projection ran in it."""

    def __init__(self) -> None:
        self.rows: int | None = None
        self.runs: dict[str, int] = {}

    def start(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args)
        self.rows = next((x.shape[0] for x in given if isinstance(x, Tensor)), None)
        self.runs.clear()

    def gate(self, name: str, by_call: dict[int, _Gate]) -> Callable[..., Any]:
        in_one_pass = next(iter(by_call.values())).site.runs

        def hook(_: nn.Module, args: tuple[Any, ...]) -> Any:
            run = self.runs.get(name, 0)
            self.runs[name] = (run + 1) % in_one_pass  # a call of an inner module skips `start`
            gate = by_call.get(run)
            return None if gate is None else (gate.apply(args[0], self.rows), *args[1:])

        return hook


@dataclass(eq=False)
class _Gate:
    """The gates g and biases b of one site."""

    site: HeadSite
    heads: slice  # this site's columns of `gates`
    gates: Tensor  # of all sites; sliced on use, so that gradients reach the caller's tensor
    ablation: Tensor | None
    bias: Tensor | None
    _ready: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor | None]] = field(
        default_factory=dict
    )
    # g repeated to the width of the projection's input, so that gating is a single product: in
    # small models Python is the bottleneck, and every reshape would add to it.
    _wide: dict[tuple[torch.device, torch.dtype], Tensor] = field(default_factory=dict)

    def apply(self, x: Tensor, rows: int | None) -> Tensor:
        """Gate a projection's input; `rows` is the size of the batch (None if unknown)."""
        site = self.site
        g, b = self._prepare(x)
        wide = self._wide.get((x.device, x.dtype))
        if wide is not None and x.ndim == 3 and len(wide) in (1, len(x)):
            return x * wide
        by_row = to_rows(x, site.order, rows or g.shape[0])  # (rows, tokens, width)
        self._require_fit("Gates", g, by_row)
        self._require_fit("Ablations" if self.bias is None else "Biases", b, by_row)
        z = by_row[..., site.span].unflatten(-1, (site.heads, site.size))
        z = z * g if b is None else torch.addcmul(b, z, g)
        z = z.flatten(-2)  # (rows, tokens, heads·size)
        if site.heads * site.size != site.width:
            before, after = by_row[..., : site.span.start], by_row[..., site.span.stop :]
            z = torch.cat((before, z, after), dim=-1)
        return from_rows(z, site.order, x)

    def _require_fit(self, what: str, given: Tensor | None, by_row: Tensor) -> None:
        """Refuse a wrong number of rows or tokens; torch might broadcast it."""
        shape = (1, 1) if given is None else (1, 1, *given.shape[:-2])[-2:]
        for have, need, axis in zip(shape, by_row.shape[:2], ("rows", "tokens"), strict=True):
            if have not in (1, need):
                raise HeadcountError(
                    f"{what} for {have} {axis} do not fit {need} at {self.site.module}: give 1 or "
                    f"{need}."
                )

    def _prepare(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """g and b as (rows, tokens, heads, size), any of these may be 1, in x's dtype and device.

        The result is reused in later passes, unless gradients flow through it.
        """
        key = (x.device, x.dtype)
        if key in self._ready:
            return self._ready[key]
        exact = torch.promote_types(x.dtype, torch.float32)  # b is a product that is rounded once
        site = self.site
        gates = self.gates[:, self.heads].to(x.device, exact, non_blocking=x.is_cuda)
        by_token = gates[:, :, None] if gates.ndim == 2 else gates  # (rows, heads, tokens or 1)
        g = by_token.transpose(1, 2).unsqueeze(-1)  # (rows, tokens or 1, heads, 1)
        b = None
        given = self.ablation if self.bias is None else self.bias
        if given is not None:
            b = given.to(x.device, exact)[..., site.span].unflatten(-1, (site.heads, site.size))
            b = b if self.bias is not None else (1 - g) * b
        ready = g.to(x.dtype), None if b is None else b.to(x.dtype)
        if not any(t is not None and t.requires_grad for t in (self.gates, given)):
            self._ready[key] = ready
            whole = site.order == "rows" and site.heads * site.size == site.width
            if whole and b is None and self.gates.ndim == 2:
                self._wide[key] = ready[0].expand(-1, -1, -1, site.size).flatten(-2)
        return ready
