"""The schedule of a fit of causal gates: updates, learning rates, and the push on the gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.errors import HeadcountError, counted

PUSH = 0.1  # λ: the loss rewards (G⁺) or punishes (G⁻) an open gate by λ times its clamped logit
CLAMP = 4.0  # a logit beyond ±4 is pushed no further
MARGIN = 0.018  # between an initial gate and 0 or 1; a gate at the margin has a logit of ±4
FEWEST_EXAMPLES = 8  # gates fitted to fewer examples would be fitted to these examples alone


@dataclass(frozen=True)
class Stage:
    """One run of Adam: the learning rate goes linearly from `lr` to `lr_end`.

    With `clip`, the norm of a row's gradient is clipped to that value.
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
    """One row of gates in a fit: its seed, and the name of its stage."""

    seed: int
    stage: str


SIGNS = {"free": 0.0, "plus": 1.0, "minus": -1.0, "contrast": 1.0}  # the sign of λ, by stage
# Numbers that seed a stage's batch orders, by task: "plus" and "minus" see the same examples.
ORDERS = {"free": (0,), "plus": (1,), "minus": (1,), "contrast": (2, 3)}
BUDGET = (4,)  # the same for the stages of all budgets


@dataclass(frozen=True)
class Schedule:
    """A free stage without a push, then a stage in which gates are pushed open or shut."""

    free: Stage
    pushed: Stage
    batch: int
    push: float = PUSH

    def stage(self, row: Row) -> Stage:
        """The stage of a row."""
        return self.pushed if row.stage in ("plus", "minus") else self.free

    def strength(self, row: Row) -> float:
        """The signed λ of a row: positive if the loss rewards open gates."""
        return SIGNS.get(row.stage, 0.0) * self.push

    def first(self, row: Row, heads: int) -> Float[np.ndarray, "heads"]:
        """The initial logits of a row in the first stage."""
        return first_logits(row.seed, heads)

    def applied(self, rows: Sequence[Row], gradient: Any) -> Any:
        """The gradient in what is learned, from a function that gives it in the gates' logits."""
        return gradient

    def facts(self, row: Row) -> dict[str, Any]:
        """The parts of the schedule that determine the result of a row."""
        facts: dict[str, Any] = {"batch": self.batch, "free": asdict(self.free)}
        if row.stage in ("plus", "minus"):
            facts["pushed"] = asdict(self.pushed)
        return {**facts, "push": self.strength(row)}

    def orders(
        self, rows: Sequence[Row], examples: Sequence[int]
    ) -> list[Int[np.ndarray, "rows updates batch"]]:
        """For each task, the indices of the examples that each row sees in each update."""
        numbers, updates = ORDERS.get(rows[0].stage, BUDGET), self.stage(rows[0]).updates
        return [
            np.stack([batch_order(row.seed, number, n, self.batch, updates) for row in rows])
            for number, n in zip(numbers, examples, strict=True)
        ]


# The learning rates (start, end) of the free and the pushed stage, and the gradient clipping.
VARIANTS: dict[str, tuple[tuple[float, float], tuple[float, float], float | None]] = {
    "published": ((0.1, 0.01), (0.5, 0.1), None),
    "released": ((1.0, 1.0), (1.0, 1.0), 1.0),
}


def make_schedule(variant: str, updates: int, batch: int) -> Schedule:
    """The schedule as the paper prints it ("published"), or as its code runs it ("released")."""
    free, pushed, clip = VARIANTS[variant]
    return Schedule(Stage(updates, *free, clip), Stage(updates, *pushed, clip), batch)


def first_logits(seed: int, heads: int) -> Float[np.ndarray, "heads"]:
    """The initial logits M of gates G = σ(M), drawn uniformly between 0 and 1 but for a margin.

    The margin is our change; the paper draws from the whole range. The clamp takes all push from a
    gate inside the margin: an irrelevant head drawn there (one in 28) would stay there, and look
    like a head that the task needs or that interferes.
    """
    gates = np.random.default_rng([seed, 0]).uniform(MARGIN, 1 - MARGIN, heads)
    return np.asarray(np.log(gates / (1 - gates)), dtype=np.float32)


def batch_order(
    seed: int, stage: int, examples: int, batch: int, updates: int
) -> Int[np.ndarray, "updates batch"]:
    """The examples that each update sees: all examples in a new random order, again and again.

    The order depends only on the seed and the stage, not on which other seeds are fitted.

    >>> sorted(batch_order(0, 0, examples=4, batch=2, updates=2).ravel().tolist())
    [0, 1, 2, 3]
    """
    rng = np.random.default_rng([seed, 1, stage])
    rounds = -(-updates * batch // examples)
    order = np.concatenate([rng.permutation(examples) for _ in range(rounds)])
    return order[: updates * batch].reshape(updates, batch)


def check_examples(count: int, name: str, batch: int) -> tuple[int, str]:
    """The batch size that `count` examples allow, and a note if it is smaller than `batch`."""
    if count < FEWEST_EXAMPLES:
        raise HeadcountError(
            f'The ranking split of "{name}" has {counted(count, "example")}, and '
            f"causal gates need at least {FEWEST_EXAMPLES}: give the task more examples."
        )
    if count < batch:
        return count, (
            f"the ranking split has {count} examples, fewer than a batch of {batch}, so every "
            "update saw all of them"
        )
    return batch, ""
