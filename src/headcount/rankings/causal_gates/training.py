"""One stage of a fit of causal gates: Adam on every row at once, as if each were alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.rankings.causal_gates.passes import GatedPasses
from headcount.rankings.causal_gates.prompts import Prompts, lay_out
from headcount.rankings.causal_gates.schedule import CLAMP, Stage

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's usual ones
CHECK = 50  # updates between two looks for NaN: each look waits for the device
KEEP = 100  # updates between two checkpoints

# From logits M and the number of the update to the gradient, in M, of each row's mean log-
# probability term, negated.
Gradient = Callable[[Tensor, int], Tensor]
# What makes it from the prompts of each task, and from which of them each row sees in each update.
MakeGradient = Callable[[GatedPasses, Sequence[Prompts], Sequence[np.ndarray]], Gradient]


@dataclass(eq=False)
class State:
    """Logits and Adam's averages after so many updates, in float32 whatever the model's dtype."""

    logits: Float[Tensor, "rows heads"]
    mean: Float[Tensor, "rows heads"]
    square: Float[Tensor, "rows heads"]
    update: int = 0

    @classmethod
    def at(cls, logits: Sequence[np.ndarray], device: torch.device) -> State:
        """The state before the first update, from one row of logits each."""
        start = torch.from_numpy(np.stack(logits).astype(np.float32)).to(device)
        return cls(start, torch.zeros_like(start), torch.zeros_like(start))

    def to_json(self) -> list[dict[str, Any]]:
        """One JSON object per row, which `from_json` reads back bit for bit."""
        found = [t.double().cpu().tolist() for t in (self.logits, self.mean, self.square)]
        return [
            {"update": self.update, "logits": logits, "mean": mean, "square": square}
            for logits, mean, square in zip(*found, strict=True)
        ]

    @classmethod
    def from_json(cls, rows: Sequence[dict[str, Any]], device: torch.device) -> State:
        """Read rows that were written after the same update."""
        logits, mean, square = (
            torch.tensor([row[name] for row in rows], dtype=torch.float32, device=device)
            for name in ("logits", "mean", "square")
        )
        return cls(logits, mean, square, int(rows[0]["update"]))

    def step(self, gradient: Float[Tensor, "rows heads"], stage: Stage) -> None:
        """One update of Adam, which treats every number alone; clipping treats every row alone."""
        if stage.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient = gradient * (stage.clip / (norm + 1e-6)).clamp(max=1)
        update = self.update + 1
        mean = self.mean.lerp(gradient, 1 - BETA_1)
        square = (BETA_2 * self.square).addcmul_(gradient, gradient, value=1 - BETA_2)
        root = (square.sqrt() / (1 - BETA_2**update) ** 0.5).add_(EPSILON)
        rate = stage.rate(self.update) / (1 - BETA_1**update)
        logits = self.logits.addcdiv(mean, root, value=-rate)
        # All at once: whoever interrupts finds the state before or after an update.
        self.logits, self.mean, self.square, self.update = logits, mean, square, update


def push(
    logits: Float[Tensor, "rows heads"], strength: Float[Tensor, "rows"]
) -> Float[Tensor, "rows heads"]:
    """The gradient of −λ · mean over heads(clamp(M, −4, 4)), λ being a row's strength."""
    inside = (logits.abs() <= CLAMP).float()
    return -strength[:, None] * inside / logits.shape[1]


def improbability(logprobs: Tensor, _: slice) -> Tensor:
    """What a plain fit makes small, prompt by prompt."""
    return -logprobs


def fidelity(
    run: GatedPasses,
    prompts: Sequence[Prompts],
    orders: Sequence[Int[np.ndarray, "rows updates batch"]],
) -> Gradient:
    """The gradient of −mean over a row's batch(mean over target tokens of log p), of one task."""
    ((its, order),) = zip(prompts, orders, strict=True)

    def gradient(logits: Tensor, update: int) -> Tensor:
        # Divided after the sum: small numbers would be lost on their way back in half precision.
        total = run.gradient(logits, lay_out(its, order[:, update]), improbability)
        return total.div_(order.shape[2])

    return gradient


def train(
    state: State,
    stage: Stage,
    gradient: Gradient,
    strength: Float[np.ndarray, "rows"],
    *,
    where: str = "",
    tick: Callable[[int], object] = lambda _: None,
    keep: Callable[[State], object] | None = None,
) -> None:
    """Bring `state` to the end of the stage, in place.

    `tick` is told of each update, `keep` is given the state every now and then, and when somebody
    interrupts.
    """
    pushed = torch.tensor(strength, dtype=torch.float32, device=state.logits.device)
    try:
        while state.update < stage.updates:
            slope = gradient(state.logits, state.update)
            state.step(slope + push(state.logits, pushed), stage)
            tick(1)
            if state.update % CHECK == 0 or state.update == stage.updates:
                _require_finite(state, where)
            if keep is not None and state.update % KEEP == 0 and state.update < stage.updates:
                keep(state)
    except KeyboardInterrupt:
        if keep is not None and bool(state.logits.isfinite().all()):
            keep(state)
        raise


def _require_finite(state: State, where: str) -> None:
    if not bool(state.logits.isfinite().all()):
        raise HeadcountError(
            f"The gates{where} diverged: after {state.update} updates some are not numbers (NaN), "
            "because the model's logits are not finite under some gates; load the model in another "
            "dtype (float32 is safest), or check its weights."
        )
