"""Streaming attention: what a head says when it sees only the first and the most recent tokens.

A query at position i sees the keys j < sink and the keys i − window < j ≤ i, as far as the model's
own mask lets it. It is a second attention inside the attention function, on the same queries, keys
and values, so it depends on all gates before it, and is never computed beforehand:

    out = g · full + (1 − g) · streaming

This is z' = g·z + (1 − g)·z₀ with an ablation z₀ that every pass computes anew. A key/value head
whose query heads all stream keeps sink + window tokens in its cache, however long the text is
(DuoAttention, Xiao et al. 2024; RLKV, Du et al. 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.sites import HeadSite, plain
from headcount.system.transformers_compat import (
    CHANGED_SCORES,
    attention_function,
    kernel_of,
    other_attention,
    replaced,
)

NAME = "streaming"
SINK, WINDOW = 16, 64  # those of RLKV; DuoAttention has 64 or 128, and 256
KERNEL = "headcount-streaming"  # the kernel's name in transformers
KNOWN_KERNELS = ("sdpa", "eager", "flash_attention_2", "flash_attention_3", "sparse")
AT_ONCE = 256  # queries: a longer piece has more pairs that are hidden, a shorter one more calls


@dataclass(frozen=True)
class AttentionCall:
    """What one call of the attention function was given."""

    module: nn.Module
    query: Tensor  # (rows, heads, queries, size)
    key: Tensor  # (rows, groups, keys, size)
    value: Tensor  # (rows, groups, keys, width)
    mask: Tensor | None  # (rows or 1, heads or 1, queries, keys or more)
    how: Mapping[str, Any]  # further arguments

    def run(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """The model's attention, without changes of its scores: (rows, queries, heads, width)."""
        sparse = getattr(getattr(self.module, "config", None), "gate_bias", None) is not None
        function = attention_function("sparse" if sparse else "sdpa")
        how = {name: value for name, value in self.how.items() if name not in CHANGED_SCORES}
        output: Tensor = function(self.module, query, key, value, mask, **how)[0]
        return output

    def require_plain(self) -> None:
        """Refuse attention whose scores the model changes."""
        changed = [name for name in CHANGED_SCORES if self.how.get(name) is not None]
        changed += ["dropout"] * bool(self.how.get("dropout"))
        if changed:
            raise HeadcountError(
                f"{type(self.module).__name__} changes its attention scores "
                f"({', '.join(changed)}), which streaming attention does not support: choose "
                "another model, or another ablation."
            )

    def full(self) -> Tensor:
        """The output of all heads: (rows, queries, heads, width)."""
        return self.run(self.query, self.key, self.value, self.mask)

    @property
    def each(self) -> int:
        """How many query heads share a key/value head."""
        return self.query.shape[1] // self.key.shape[1]

    def only(self, groups: Tensor, heads: Tensor) -> AttentionCall:
        """The call with these key/value heads and their query heads alone."""
        mask = self.mask
        if mask is not None and mask.shape[1] > 1:
            mask = mask[:, heads]
        key, value = self.key[:, groups], self.value[:, groups]
        return replace(self, query=self.query[:, heads], key=key, value=value, mask=mask)


Attending = Callable[[AttentionCall], Tensor]
_attending: Attending | None = None  # set by `attending_by`


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **how: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls."""
    if _attending is None:
        raise HeadcountError(f"The kernel {KERNEL} runs inside headcount's own passes only.")
    return _attending(AttentionCall(module, query, key, value, attention_mask, how)), None


@contextmanager
def attending_by(module: nn.Module, attend: Attending) -> Iterator[None]:
    """Let `attend` compute every call of the model's attention functions inside this context."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(KERNEL, _attention)
    AttentionMaskInterface.register(KERNEL, sdpa_mask)
    with ExitStack() as stack:
        stack.enter_context(other_attention(module, lambda config, kernel: KERNEL))
        stack.enter_context(replaced(__name__, "_attending", attend))
        # A compiled graph would run the attention that it was compiled with.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def by_module(module: nn.Module, sites: Sequence[HeadSite]) -> dict[int, list[HeadSite]]:
    """The sites by the identity of the module that calls the attention function.

    Refuses models whose attention does not run through transformers' attention functions.
    """
    named = dict(plain(module).named_modules())
    found: dict[int, list[HeadSite]] = {}
    for site in sites:
        owner = named[site.attention]
        if kernel_of(getattr(owner, "config", None)) not in KNOWN_KERNELS:
            raise not_streaming(f"{site.attention} ({type(owner).__name__})")
        found.setdefault(id(owner), []).append(site)
    return found


def not_streaming(what: str) -> HeadcountError:
    """The refusal of attention that this file cannot compute."""
    return HeadcountError(
        f"The attention of {what} does not run through transformers' attention functions, so it "
        "has no key/value heads that headcount can read or let stream: gate its query heads, with "
        "another ablation than streaming."
    )


@dataclass(frozen=True)
class Streaming:
    """The ablation by streaming attention: `sink` first tokens, and `window` recent ones.

    >>> str(Streaming.read("streaming")), str(Streaming.read("streaming:4:32"))
    ('streaming:16:64', 'streaming:4:32')
    """

    sink: int = SINK
    window: int = WINDOW

    def __post_init__(self) -> None:
        if self.sink < 1 or self.window < 1:
            raise HeadcountError(
                "Streaming attention sees at least 1 first and 1 recent token (streaming:SINK:"
                f"WINDOW, such as {NAME}:{SINK}:{WINDOW}), not {self.sink} and {self.window}."
            )

    @classmethod
    def read(cls, name: str) -> Streaming | None:
        """Read streaming or streaming:SINK:WINDOW; None for the name of another ablation."""
        first, *numbers = name.split(":")
        if first != NAME:
            return None
        try:
            return cls(*map(int, numbers)) if len(numbers) in (0, 2) else _refuse(name)
        except ValueError:
            return _refuse(name)

    def __str__(self) -> str:
        return f"{NAME}:{self.sink}:{self.window}"

    def kept(self, tokens: int) -> int:
        """How many of a text's tokens stay in the cache of a head that streams."""
        return min(tokens, self.sink + self.window)

    def attend(self, call: AttentionCall) -> Tensor:
        """Streaming attention: (rows, queries, heads, width).

        For each piece of queries only the keys that some of them see are read. In a pass over a
        cache, queries are the last tokens.
        """
        queries, keys = call.query.shape[2], call.key.shape[2]
        if queries > keys:
            raise HeadcountError(
                f"{type(call.module).__name__} does not attend to the tokens of its own text, so "
                "its heads cannot be let stream: choose another ablation."
            )
        every = torch.arange(keys, device=call.query.device)
        outputs = []
        for start in range(0, queries, step := max(AT_ONCE, self.window)):
            stop = min(start + step, queries)
            first, end = keys - queries + start, keys - queries + stop
            since = max(self.sink, first - self.window + 1)
            i = every[first:end, None]  # (piece, 1)
            j = torch.cat((every[: min(self.sink, end)], every[since:end]))  # (some,)
            seen = (j <= i) & ((j < self.sink) | (j > i - self.window))
            seen = seen[None, None]  # (1, 1, piece, some)
            if call.mask is not None:
                own = call.mask[:, :, start:stop][..., j]
                if own.dtype == torch.bool:
                    seen = own & seen
                else:
                    seen = own.masked_fill(~seen, torch.finfo(own.dtype).min)
            some = call.query[:, :, start:stop], call.key[:, :, j], call.value[:, :, j]
            outputs.append(call.run(*some, seen))
        return torch.cat(outputs, 1)

    @contextmanager
    def mixing(
        self, module: nn.Module, sites: Sequence[HeadSite], gates: Tensor, *, always: bool = False
    ) -> Iterator[Mixing]:
        """Mix full and streaming attention inside this context, by `gates` as in `gating`.

        Streaming attention that would see all keys is full attention, unless `always` is set.
        """
        mixing = Mixing(self, by_module(module, sites), sites, gates, always)
        with attending_by(module, mixing):
            yield mixing


def _refuse(name: str) -> Streaming:
    raise HeadcountError(
        f'"{name}" is no streaming attention: write {NAME}, or {NAME}:SINK:WINDOW with two whole '
        f"numbers of tokens, such as {NAME}:{SINK}:{WINDOW}."
    )


def _mixed(gates: Tensor, full: Tensor, local: Tensor) -> Tensor:
    """g · full + (1 − g) · local, with gates of (rows or 1, heads, queries or 1)."""
    share = gates.to(full.device, full.dtype).transpose(1, 2)[..., None]
    return torch.lerp(local, full, share)


@dataclass(eq=False)
class Mixing:
    """One gate for each row and head, between full and streaming attention."""

    streaming: Streaming
    modules: dict[int, list[HeadSite]]
    sites: Sequence[HeadSite]
    gates: Tensor  # (rows or 1, heads) or (rows or 1, heads, tokens)
    always: bool
    seen: set[int] = field(default_factory=set)  # the sites whose attention ran
    _runs: dict[int, int] = field(default_factory=dict)

    def __call__(self, call: AttentionCall) -> Tensor:
        """The mixed output of a call: (rows, queries, heads, width)."""
        call.require_plain()
        site = self._site(call.module)
        if site is None:
            return call.full()
        gates = self._gates(site, call)  # (rows or 1, heads, queries or 1)
        hides = self.always or call.key.shape[2] > self.streaming.sink + self.streaming.window
        if gates.requires_grad:
            full = call.full()
            return _mixed(gates, full, self.streaming.attend(call) if hides else full)
        # Decided where the gates are: a GPU would have to be waited for.
        gated = (gates != 1).any(-1).any(0).view(-1, call.each).any(1)  # (groups,)
        if not hides or not gated.any():
            return call.full()
        if (gates == 0).all():
            return self.streaming.attend(call)
        full = call.full()
        if gated.all():
            return _mixed(gates, full, self.streaming.attend(call))
        groups, heads = (
            some.nonzero()[:, 0].to(full.device)
            for some in (gated, gated.repeat_interleave(call.each))
        )
        local = self.streaming.attend(call.only(groups, heads))
        mixed = _mixed(gates[:, heads.to(gates.device)], full[:, :, heads], local)
        return full.index_copy(2, heads, mixed)

    def _site(self, module: nn.Module) -> HeadSite | None:
        """The site of the call that is running; None for attention that is no head site."""
        sites = self.modules.get(id(module))
        if sites is None:
            return None
        run = self._runs.get(id(module), 0)
        self._runs[id(module)] = (run + 1) % sites[0].runs
        site = next((site for site in sites if site.call == run), None)
        if site is not None:
            self.seen.add(site.index)
        return site

    def _gates(self, site: HeadSite, call: AttentionCall) -> Tensor:
        """The gates of a site's query heads; those of one key/value head may share a gate."""
        heads, first = call.query.shape[1], sum(s.heads for s in self.sites[: site.index])
        if heads % site.heads:
            raise not_streaming(site.attention)
        own = self.gates[:, first : first + site.heads]
        own = own if own.ndim == 3 else own[..., None]
        for have, need, what in zip(
            own.shape[::2], call.query.shape[::2], ("rows", "tokens"), strict=True
        ):
            if have not in (1, need):
                raise HeadcountError(
                    f"Gates for {have} {what} do not fit {need} at {site.module}: give 1 or {need}."
                )
        return own.repeat_interleave(heads // site.heads, 1)
