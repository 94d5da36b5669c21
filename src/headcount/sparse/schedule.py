"""What changes from step to step: learning rate, gate bias and noise, constraint's multiplier."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headcount.sparse.settings import Settings

MOST = 0.1  # nats of violation that count in one step: at first the constraint is far away
SMALLEST, LARGEST = 1e-3, 1e2  # multipliers: what winds up must wind down again
SMOOTH = 0.5  # of the violation, from look to look


def learning_rate(settings: Settings, step: int) -> float:
    """A linear rise, then half a cosine down to a tenth.

    >>> s = Settings(steps=100, warm_up=0.1, lr=1.0)
    >>> [round(learning_rate(s, step), 2) for step in (0, 9, 55, 99)]
    [0.1, 1.0, 0.53, 0.1]
    """
    rise = max(1, round(settings.warm_up * settings.steps))
    if step < rise:
        return settings.learning_rate * (step + 1) / rise
    done = (step - rise + 1) / max(1, settings.steps - rise)
    return settings.learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


def gate_bias(settings: Settings, step: int) -> float | None:
    """None while every edge is open, then from `bias` down to 0 in a straight line.

    >>> s = Settings(steps=100, dense_share=0.1, anneal=0.5, bias=4.0)
    >>> [gate_bias(s, step) for step in (0, 10, 30, 50, 99)]
    [None, 4.0, 2.0, 0.0, 0.0]
    """
    first = round(settings.dense_share * settings.steps)
    last = round(settings.anneal * settings.steps)
    if step < first:
        return None
    if step >= last:
        return 0.0
    return settings.bias * (last - step) / (last - first)


def gate_noise(settings: Settings, step: int) -> float:
    """1 until the bias is 0, then down to `noise` in a straight line, halfway to the end.

    >>> s = Settings(steps=100, anneal=0.2, noise=0.0)
    >>> [gate_noise(s, step) for step in (0, 20, 40, 60, 99)]
    [1.0, 1.0, 0.5, 0.0, 0.0]
    """
    first = round(max(settings.dense_share, settings.anneal) * settings.steps)
    last = (first + settings.steps) // 2
    done = min(max((step - first) / max(1, last - first), 0.0), 1.0)
    return 1.0 - done * (1.0 - settings.noise)


@dataclass
class Multiplier:
    """λ of the constraint: grows while the loss is above its limit, and shrinks below it.

        min over weights of  edges + λ·(loss − limit),    λ ← λ·exp(rate · mean violation)

    Only the ratio of the two terms counts for Adam, so training weights them 1/(1+λ) and λ/(1+λ).
    """

    limit: float
    rate: float
    value: float
    violation: float = 0.0
    looks: int = 0

    def look(self, loss: float, limit: float | None = None) -> None:
        """Take note of the loss on the constraint's text, and of its limit at this step."""
        over = loss - (self.limit if limit is None else limit)
        kept = SMOOTH if self.looks else 0.0
        self.violation = kept * self.violation + (1 - kept) * over
        self.looks += 1

    def step(self) -> None:
        """Move by one training step.

        >>> m = Multiplier(limit=3.0, rate=0.5, value=1.0)
        >>> m.look(3.05); m.step(); round(m.value, 3)
        1.025
        """
        bounded = min(max(self.violation, -MOST), MOST)
        self.value = min(max(self.value * math.exp(self.rate * bounded), SMALLEST), LARGEST)

    @property
    def weight(self) -> float:
        """λ/(1+λ)."""
        return self.value / (1 + self.value)
