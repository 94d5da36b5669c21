"""The schedule of a fit of causal gates: how long, how fast, and which way the gates are pushed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.errors import HeadcountError, unknown

PUSH = 0.1  # λ: what an open gate earns (G⁺) or costs (G⁻)
CLAMP = 4.0  # a logit beyond ±4 is pushed no further
NEARLY = 0.018  # a first gate is at least so far from 0 and 1, which is where logits reach ±4
LEAST = 8  # examples: gates fitted to fewer would fit these alone


@dataclass(frozen=True)
class Stage:
    """One run of Adam: the learning rate goes linearly from `lr` to `lr_end`.

    With `clip`, the gradient of a row is never longer than that.
    """

    updates: int
    lr: float
    lr_end: float
    clip: float | None = None

    def rate(self, update: int) -> float:
        """The learning rate of an update, counted from 0.

        >>> Stage(10, 0.1, 0.01).rate(5)
        0.055
        """
        return self.lr + (self.lr_end - self.lr) * update / self.updates


@dataclass(frozen=True)
class Schedule:
    """A free stage without any push, then one in which gates are pushed open or shut."""

    free: Stage
    pushed: Stage
    batch: int
    push: float = PUSH

    def facts(self, stage: str) -> dict[str, Any]:
        """What of the schedule determines the result of the "free" or the "pushed" stage."""
        before = {"batch": self.batch, "free": asdict(self.free)}
        return before if stage == "free" else {**before, "pushed": asdict(self.pushed)}


# Learning rates of both stages, and the longest gradient.
VARIANTS: dict[str, tuple[tuple[float, float], tuple[float, float], float | None]] = {
    "published": ((0.1, 0.01), (0.5, 0.1), None),
    "released": ((1.0, 1.0), (1.0, 1.0), 1.0),
}


def make_schedule(variant: str, updates: int, batch: int) -> Schedule:
    """The schedule as the paper prints it ("published"), or as its code runs it ("released")."""
    if variant not in VARIANTS:
        raise unknown("variant of the fit", variant, VARIANTS)
    if updates < 1 or batch < 1:
        raise HeadcountError(
            f"A fit needs at least 1 update and a batch of 1, not {updates} and {batch}."
        )
    free, pushed, clip = VARIANTS[variant]
    return Schedule(Stage(updates, *free, clip), Stage(updates, *pushed, clip), batch)


def first_logits(seed: int, heads: int) -> Float[np.ndarray, "heads"]:
    """The logits M of gates G = σ(M) drawn evenly between 0 and 1, less a margin at both ends.

    The margin is ours; published is the whole range. At its ends the clamp takes away all push: a
    head that does not matter would stay where it was drawn (one in 28), and pass for one that the
    task needs or that is in its way.
    """
    gates = np.random.default_rng([seed, 0]).uniform(NEARLY, 1 - NEARLY, heads)
    return np.asarray(np.log(gates / (1 - gates)), dtype=np.float32)


def batch_order(
    seed: int, stage: int, examples: int, batch: int, updates: int
) -> Int[np.ndarray, "updates batch"]:
    """Which examples each update sees: all of them in a new order, again and again.

    It depends on the seed and the stage alone, so that a seed fitted among others is the same fit.

    >>> sorted(batch_order(0, 0, examples=4, batch=2, updates=2).ravel().tolist())
    [0, 1, 2, 3]
    """
    rng = np.random.default_rng([seed, 1, stage])
    rounds = -(-updates * batch // examples)
    order = np.concatenate([rng.permutation(examples) for _ in range(rounds)])
    return order[: updates * batch].reshape(updates, batch)


def orders(
    seeds: Sequence[int], stage: int, examples: int, batch: int, updates: int
) -> Int[np.ndarray, "rows updates batch"]:
    """The batch order of each row, by its seed: both signs of a seed see the same examples."""
    return np.stack([batch_order(seed, stage, examples, batch, updates) for seed in seeds])


def check_examples(count: int, name: str, batch: int) -> tuple[int, str]:
    """The batch that so many examples allow, and what to say about it."""
    if count < LEAST:
        raise HeadcountError(
            f'The ranking part of "{name}" has {count} example{"" if count == 1 else "s"}, and '
            f"causal gates need at least {LEAST} to be fitted: give the task more."
        )
    if count < batch:
        return count, (
            f"the ranking part has {count} examples, fewer than a batch of {batch}, so every "
            "update saw all of them"
        )
    return batch, ""
