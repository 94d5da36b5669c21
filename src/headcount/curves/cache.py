"""How much of the key/value cache head sets keep, where heads that are off stream.

A key/value head keeps every token if any of its query heads is not shut, and else only those that
streaming attention sees. These numbers are computed from the shapes of keys and values; headcount
has no runtime that saves the memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.sweep import Sweep
from headcount.models.model import Model
from headcount.models.streaming import Streaming

LONG = 32_768  # tokens of a long text, for which shares are computed as well


@dataclass(frozen=True)
class CacheKept:
    """The share of the cache that each labelled head set keeps, as a mean over its draws.

    tokens   of the texts: the mean over the test prompts
    bytes    of the whole cache of one such text
    shares   of these bytes, by label
    long     the same shares for texts of `LONG` tokens
    """

    tokens: int
    bytes: int
    shares: Mapping[Hashable, float]
    long: Mapping[Hashable, float]

    def to_json(self) -> dict[str, Any]:
        """The shares by series and count, as run.json has them."""
        facts = {**asdict(self), "long_tokens": LONG}
        for name in ("shares", "long"):
            by_series: dict[str, dict[int, float]] = {}
            for (series, count), share in getattr(self, name).items():
                by_series.setdefault(series, {})[count] = share
            facts[name] = by_series
        return facts


def cache_bytes(
    model: Model, gates: Float[np.ndarray, "sets heads"], streaming: Streaming, tokens: int
) -> Float[np.ndarray, "sets"]:
    """The bytes of the cache of one text under each head set.

    >>> from headcount import load_model
    >>> model = load_model("smollm2-135m-q4").by_key_value_heads()
    >>> whole, half = np.ones((2, 90))
    >>> half[:45] = 0
    >>> some = cache_bytes(model, np.stack([whole, half]), Streaming(16, 64), 160)
    >>> float(some[1] / some[0])
    0.75
    """
    total = np.zeros(len(gates))
    starts = (*model.layout.starts, model.layout.total)
    for site, of_site in enumerate(model.key_values):
        own = gates[:, starts[site] : starts[site + 1]].reshape(len(gates), of_site.heads, -1)
        full = (own != 0).any(-1).sum(-1)  # key/value heads of each set
        total += full * of_site.kept(tokens) + (of_site.heads - full) * of_site.kept(
            tokens, streaming
        )
    return total * model.dtype.itemsize


def cache_kept(sweep: Sweep) -> CacheKept | None:
    """The share of the cache that each head set of a sweep keeps; None unless heads stream."""
    streaming = Streaming.read(sweep.ablation)
    if streaming is None:
        return None
    model, sets = sweep.model, sweep.head_sets
    tokens = round(np.mean([len(one.prompt) for one in sweep.examples]))
    every = np.concatenate([np.ones((1, model.layout.total)), sets.gates])

    def shares(length: int) -> dict[Hashable, float]:
        whole, *each = cache_bytes(model, every, streaming, length)
        share = np.array(each) / whole
        return {label: float(share[list(rows)].mean()) for label, rows in sets.rows.items()}

    whole = int(cache_bytes(model, every[:1], streaming, tokens)[0])
    return CacheKept(tokens, whole, shares(tokens), shares(LONG))
