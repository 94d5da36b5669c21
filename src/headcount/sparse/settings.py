"""The settings of `headcount sparsify`."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from headcount.errors import HeadcountError, unknown
from headcount.registry import setting

Constraint = Literal["control", "original"]

OWN_ROUNDS = 6  # epochs over the model's own text
COUNTS = (
    *("steps", "block", "batch", "check_every", "evaluate_every"),
    *("constraint_blocks", "final_blocks", "held_out", "constraint_articles"),
)
SHARES = ("distil", "average", "dense_share", "anneal", "warm_up", "noise", "own")
MOST = {"steps": 10**7, "block": 10**6, "batch": 10**5, "rank": 10**5, "seed": 2**63 - 1}


@dataclass(frozen=True)
class Settings:
    """How a model is made sparse; docs/sparse.md says why each setting has its default."""

    steps: int = setting(2000, "training steps")
    block: int = setting(256, "tokens in a block of text")
    batch: int = setting(96, "blocks in a training step")
    own: float = setting(1 / 3, "share of the blocks that the model itself writes, to keep skills")
    rank: int = setting(32, "rank of the low-rank adapters; 0 trains all weights")
    alpha: float = 32.0  # adapters are scaled by alpha / rank
    lr: float | None = setting(None, "learning rate (1e-3 for adapters, 1e-4 for all weights)")
    warm_up: float = 0.05  # share of the steps
    constraint: Constraint = setting(
        "control", "model that sets the limit of the loss", choices=get_args(Constraint)
    )
    tolerance: float = setting(0.05, "nats by which the loss may exceed the limit")
    margin: float = 0.001  # nats that training aims below the tolerance
    dense_share: float = 0.05  # share of the steps, at the start, with every edge open
    bias: float = 4.0  # gate bias after these steps, before it falls to 0
    anneal: float = 0.2  # share of the steps after which the gate bias is 0
    pressure: float = 0.1  # extra slope that closes wide-open edges, where σ is flat
    noise: float = 0.0  # final scale of the gates' noise, which is 1 until the bias is 0
    distil: float = setting(0.8, "share of the loss that is the divergence from that model")
    average: float = 0.98  # decay of the moving average of the weights; 0: no average
    rate: float = 1.0  # growth of the multiplier, per step and nat
    multiplier: float = 3.0  # its first value
    check_every: int = 25  # steps between two measurements of the constraint
    evaluate_every: int = 100  # … with the averaged weights
    constraint_blocks: int = 192
    final_blocks: int = 1024
    held_out: int = setting(500, "articles held out for the final evaluation")
    constraint_articles: int = setting(200, "articles held out to check the constraint")
    clip: float = 1.0
    seed: int = setting(0, "seed of batches, adapters and gates")

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.block < 2:
            raise HeadcountError("block must be at least 2: the first token predicts the second.")
        if self.own_rows == self.batch:
            raise HeadcountError(
                "own must leave blocks of the given text in each step: lower own or raise batch."
            )
        if round(max(self.dense_share, self.anneal) * self.steps) >= self.steps:
            raise HeadcountError(
                "dense-share and anneal must leave steps with a gate bias of 0: lower them."
            )
        if self.evaluate_every % self.check_every:
            raise HeadcountError("evaluate-every must be a multiple of check-every.")
        if self.lr is not None and (type(self.lr) not in (int, float) or self.lr <= 0):
            raise HeadcountError(f"lr must be a number above 0, not {self.lr!r}.")
        if self.constraint not in get_args(Constraint):
            raise unknown("constraint", self.constraint, get_args(Constraint))

    def _check_numbers(self) -> None:
        """Refuse numbers that make no sense whatever the other settings are."""
        for item in fields(self):
            value, default = getattr(self, item.name), item.default
            if isinstance(default, int | float) and type(value) not in (int, type(default)):
                raise HeadcountError(f"{item.name} must be a number, not {value!r}.")
            if isinstance(value, float) and not math.isfinite(value):
                raise HeadcountError(f"{item.name} must be a finite number, not {value}.")
        for name in COUNTS:
            if getattr(self, name) < 1:
                raise HeadcountError(f"{name.replace('_', '-')} must be at least 1.")
        for name in SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise HeadcountError(f"{name.replace('_', '-')} must be a share from 0 to 1.")
        for name in ("rank", "tolerance", "pressure", "seed"):
            if getattr(self, name) < 0:
                raise HeadcountError(f"{name} cannot be negative.")
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise HeadcountError(f"{name} must be at most {most:,}.")

    @property
    def learning_rate(self) -> float:
        """The highest learning rate of the run."""
        return self.lr or (1e-3 if self.rank else 1e-4)

    @property
    def own_rows(self) -> int:
        """How many blocks of a step are the model's own text."""
        return round(self.own * self.batch)

    @property
    def own_blocks(self) -> int:
        """How many blocks the model writes; each is used OWN_ROUNDS times."""
        return max(self.own_rows, math.ceil(self.steps * self.own_rows / OWN_ROUNDS))

    def of_control(self) -> dict[str, Any]:
        """The settings on which the dense control depends: runs with the same ones can share it."""
        names = ("steps", "block", "batch", "own", "rank", "alpha", "lr", "warm_up", "average")
        others = ("clip", "seed", "held_out", "constraint_articles", "constraint_blocks")
        return {name: getattr(self, name) for name in names + others}
