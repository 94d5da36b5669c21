"""The schedule of a fit of causal gates: how long, how fast, and which way the gates are pushed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.errors import HeadcountError

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
class Row:
    """One fit of one stage: a seed, and the stage's name."""

    seed: int
    stage: str


SIGNS = {"free": 0.0, "plus": 1.0, "minus": -1.0, "contrast": 1.0}  # of λ, by stage
# The numbers of a stage's batch orders, task by task: both signs of a seed see the same examples.
ORDERS = {"free": (0,), "plus": (1,), "minus": (1,), "contrast": (2, 3)}


@dataclass(frozen=True)
class Schedule:
    """A free stage without any push, then one in which gates are pushed open or shut."""

    free: Stage
    pushed: Stage
    batch: int
    push: float = PUSH

    def stage(self, row: Row) -> Stage:
        """The stage of a row."""
        return self.pushed if row.stage in ("plus", "minus") else self.free

    def strength(self, row: Row) -> float:
        """λ of a row: what an open gate earns."""
        return SIGNS[row.stage] * self.push

    def facts(self, row: Row) -> dict[str, Any]:
        """What of the schedule determines the result of a row."""
        facts: dict[str, Any] = {"batch": self.batch, "free": asdict(self.free)}
        if row.stage in ("plus", "minus"):
            facts["pushed"] = asdict(self.pushed)
        return {**facts, "push": self.strength(row)}

    def orders(
        self, rows: Sequence[Row], examples: Sequence[int]
    ) -> list[Int[np.ndarray, "rows updates batch"]]:
        """Which of a task's so many examples rows of one stage see, task by task."""
        numbers, updates = ORDERS[rows[0].stage], self.stage(rows[0]).updates
        return [
            np.stack([batch_order(row.seed, number, n, self.batch, updates) for row in rows])
            for number, n in zip(numbers, examples, strict=True)
        ]


# Learning rates of both stages, and the longest gradient.
VARIANTS: dict[str, tuple[tuple[float, float], tuple[float, float], float | None]] = {
    "published": ((0.1, 0.01), (0.5, 0.1), None),
    "released": ((1.0, 1.0), (1.0, 1.0), 1.0),
}


def make_schedule(variant: str, updates: int, batch: int) -> Schedule:
    """The schedule as the paper prints it ("published"), or as its code runs it ("released")."""
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


def check_examples(count: int, name: str, batch: int) -> tuple[int, str]:
    """The batch that so many examples allow, and what to say about it."""
    if count < LEAST:
        raise HeadcountError(
            f'The ranking split of "{name}" has {count} example{"" if count == 1 else "s"}, and '
            f"causal gates need at least {LEAST} to be fitted: give the task more."
        )
    if count < batch:
        return count, (
            f"the ranking split has {count} examples, fewer than a batch of {batch}, so every "
            "update saw all of them"
        )
    return batch, ""
