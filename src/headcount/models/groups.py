"""Key/value groups: which query heads share keys and values, and how many of them to keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from headcount.errors import HeadcountError, counted
from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.models.sites import plain

Kept = Bool[np.ndarray, "heads"]
GROUPS, HEADS = "groups", "heads"  # what is removed: whole groups, or query heads of each group


@dataclass(frozen=True)
class Geometry:
    """The heads of every layer: groups of query heads that share their keys and values.

    The query heads of a group stand side by side. In multi-head attention a group is one head.

    >>> Geometry(layers=30, groups=3, per_group=3).heads
    9
    """

    layers: int
    groups: int
    per_group: int

    @property
    def heads(self) -> int:
        """The query heads of a layer."""
        return self.groups * self.per_group

    def sizes(self) -> Iterator[Geometry]:
        """Every smaller geometry that can be pruned to: fewer groups, or fewer heads in each."""
        for groups in range(self.groups - 1, 0, -1):
            yield Geometry(self.layers, groups, self.per_group)
        for per_group in range(self.per_group - 1, 0, -1):
            yield Geometry(self.layers, self.groups, per_group)

    def removed(self, smaller: Geometry) -> str:
        """What is removed to get to this size: groups, or query heads of each group."""
        return GROUPS if smaller.groups < self.groups else HEADS

    def kept(self, smaller: Geometry) -> str:
        """What is kept of each layer, in words.

        >>> Geometry(2, 3, 3).kept(Geometry(2, 2, 3)), Geometry(2, 3, 3).kept(Geometry(2, 3, 1))
        ('2 of 3 groups', '1 of 3 query heads in each group')
        """
        if smaller.groups < self.groups:
            return f"{smaller.groups} of {counted(self.groups, 'group')}"
        return f"{smaller.per_group} of {counted(self.per_group, 'query head')} in each group"

    def __str__(self) -> str:
        groups = counted(self.groups, "key/value group")
        return f"{groups} of {counted(self.per_group, 'query head')} in every layer"

    def by_group(self, heads: Shaped[np.ndarray, "heads"]) -> np.ndarray:
        """What there is of every head as (layers, groups, heads of a group)."""
        return np.asarray(heads).reshape(self.layers, self.groups, self.per_group)


def geometry_of(model: Model) -> Geometry:
    """The geometry of a model whose layers are all alike; others are refused by name.

    The number of groups is read from the config; `prune` proves it.
    """
    sites = model.sites
    if len({(site.heads, site.size) for site in sites}) > 1:
        shapes = " and ".join(dict.fromkeys(f"{site.heads} × {site.size}" for site in sites))
        why = f"its layers have different heads ({shapes}), and groups are removed alike in all"
    elif any(site.runs > 1 for site in sites):
        why = "the same projections run several times in a pass, for different heads"
    elif any(site.queries > 1 for site in sites):
        why = "several query heads make one head of it"
    else:
        config: Any = getattr(plain(model.module), "config", None)
        text = getattr(config, "get_text_config", lambda: config)()
        groups = getattr(text, "num_key_value_heads", None) or sites[0].heads
        if sites[0].heads % groups == 0:
            return Geometry(len(sites), groups, sites[0].heads // groups)
        why = f"its {sites[0].heads} query heads do not divide into {groups} equal groups"
    raise HeadcountError(f"Cannot tell the key/value groups of {model.name}: {why}.")


def check_size(
    keep_groups: int | None, keep_heads_per_group: int | None, cache: float | None
) -> None:
    """Refuse sizes that no model has: one of the three must be given."""
    given = {
        "keep-groups": keep_groups,
        "keep-heads-per-group": keep_heads_per_group,
        "cache": cache,
    }
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        both = f", not {' and '.join(named)}" if named else ""
        raise HeadcountError(
            "Say how much to keep by one of keep-groups, keep-heads-per-group (in Python with "
            f"underscores) and cache{both}."
        )
    for name in ("keep-groups", "keep-heads-per-group"):
        value = given[name]
        if value is not None and (not isinstance(value, int) or value < 1):
            raise HeadcountError(f"{name} must be a whole number from 1 on, not {value}.")
    if cache is not None and not 0 < cache <= 1:
        raise HeadcountError(f"cache must be a share above 0 and up to 1, not {cache:g}.")


def choose_size(
    name: str,
    whole: Geometry,
    possible: Sequence[Geometry],
    *,
    keep_groups: int | None = None,
    keep_heads_per_group: int | None = None,
    cache: float | None = None,
) -> Geometry:
    """The size that is asked for, of those that a stock config of the model `name` can hold.

    Another one is refused, and the nearest is offered. For a share of the cache, the nearest is
    taken.

    >>> whole = Geometry(layers=30, groups=3, per_group=3)
    >>> choose_size("this model", whole, list(whole.sizes()), cache=0.67)
    Geometry(layers=30, groups=2, per_group=3)
    """
    check_size(keep_groups, keep_heads_per_group, cache)
    by_groups = keep_heads_per_group is None
    fitting = [size for size in possible if (size.groups < whole.groups) == by_groups]
    if not fitting:
        others = ", or ".join(dict.fromkeys(map(whole.kept, possible))) or "nothing"
        what = "key/value groups" if by_groups else "query heads within groups"
        raise HeadcountError(
            f"No stock config of {name} ({whole}) holds fewer {what}. What can be kept: {others}."
        )
    asked: float = keep_heads_per_group or keep_groups or (cache or 0) * whole.groups
    sizes = {size.groups if by_groups else size.per_group: size for size in fitting}
    near = min(sizes, key=lambda number: abs(number - asked))
    most = whole.groups if by_groups else whole.per_group
    if asked in sizes or (cache is not None and abs(near - asked) <= abs(most - asked)):
        return sizes[near]
    found = f"{cache:g} of the cache" if cache is not None else str(asked)
    raise HeadcountError(
        f"No smaller stock config of {name} ({whole}) keeps {found}: it can keep "
        f"{', '.join(map(str, sorted(sizes)))}. The nearest is {whole.kept(sizes[near])}."
    )


def best_kept(scores: HeadScores, whole: Geometry, size: Geometry) -> Kept:
    """The heads to keep by their scores: which ones is free in each layer.

    A group counts as the mean of its query heads' scores, unless the scores are of groups; of
    equal ones, the first is kept.

    >>> from headcount.heads import HeadLayout
    >>> scores = HeadScores(HeadLayout((4,)), np.array([9.0, 0.0, 5.0, 5.0]), "by hand")
    >>> best_kept(scores, Geometry(1, 2, 2), Geometry(1, 1, 2)).tolist()
    [False, False, True, True]
    """
    each = {whole.heads: whole.per_group, whole.groups: 1}.get(scores.layout.counts[0])
    if each is None or len({scores.layout.counts[0]} | {*scores.layout.counts}) > 1:
        raise _other_model(scores, whole)
    by_group = scores.values.reshape(-1, whole.groups, each)
    if len(by_group) != whole.layers:
        raise _other_model(scores, whole)
    if size.groups < whole.groups:
        return _most(by_group.mean(2), size.groups)[..., None].repeat(whole.per_group, 2).ravel()
    if (by_group == by_group[..., :1]).all():
        raise HeadcountError(
            f'The ranking "{scores.ranking}" scores all query heads of a group alike, so it cannot '
            "choose among them: take one of single heads, such as attribution."
        )
    return _most(by_group, size.per_group).ravel()


def _other_model(scores: HeadScores, whole: Geometry) -> HeadcountError:
    return HeadcountError(
        f'The scores "{scores.ranking}" belong to another model: they are for {scores.layout}, and '
        f"this one has {whole.layers} layers with {whole}."
    )


def random_kept(whole: Geometry, size: Geometry, seed: int) -> Kept:
    """Heads to keep that are drawn at random in each layer: the control."""
    drawn = np.random.default_rng([seed, size.groups, size.per_group])
    if size.groups < whole.groups:
        chosen = _most(drawn.random((whole.layers, whole.groups)), size.groups)
        return chosen[..., None].repeat(whole.per_group, 2).ravel()
    scores = drawn.random((whole.layers, whole.groups, whole.per_group))
    return _most(scores, size.per_group).ravel()


def _most(scores: np.ndarray, count: int) -> np.ndarray:
    """Whether each score is among the `count` highest of its last axis."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    chosen = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(chosen, order[..., :count], True, axis=-1)
    return chosen


def size_of(kept: Kept, whole: Geometry, name: str) -> Geometry:
    """The geometry that is left with these heads; a set that no stock config holds is refused."""
    by_group = whole.by_group(kept)
    in_group = by_group.sum(2)  # (layers, groups)
    groups = (in_group > 0).sum(1)
    left = sorted({*in_group[in_group > 0].tolist()})
    if len({*groups.tolist()}) == 1 and len(left) == 1:
        size = Geometry(whole.layers, int(groups[0]), int(left[0]))
        if size == whole:
            raise HeadcountError(f"All heads of {name} are kept, so there is nothing to prune.")
        return size
    counts = by_group.sum((1, 2))
    found = f"{counts.min()} to {counts.max()} of {whole.heads} heads in a layer"
    if len({*counts.tolist()}) == 1:
        found = f"{counts[0]} of {whole.heads} heads in a layer, in unequal groups"
    raise HeadcountError(
        f"No stock config holds these heads of {name} ({found}): every layer must keep the same "
        "number of key/value groups, and every group that is kept the same number of query heads. "
        f"{_nearest(kept, whole)}or write them at full size with export."
    )


def _nearest(kept: Kept, whole: Geometry) -> str:
    """The smaller geometry whose number of heads is nearest to that of these heads, in words."""
    share = float(np.mean(kept))
    size = min(whole.sizes(), key=lambda size: abs(size.heads / whole.heads - share), default=None)
    return "" if size is None else f"The nearest is to keep {whole.kept(size)}, "
