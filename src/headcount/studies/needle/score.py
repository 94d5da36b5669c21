"""Both scores of `needle` from one pass: a pass over a long text costs too much to be run twice.

The log-probability of an answer is negative or 0. So its sign is free to say whether greedy
decoding writes the answer: it is turned round where all tokens of the answer are the likeliest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from headcount.metrics.logits import Metric, Scored

if TYPE_CHECKING:
    from torch import Tensor


def _signed(scored: Scored) -> Float[Tensor, "rows"]:
    logits = scored.logits.float()
    tokens = logits.gather(-1, scored.targets[..., None])[..., 0] - logits.logsumexp(-1)
    logprob = tokens.sum(-1).clamp(max=0)  # rounding may leave a little more than 0
    right = (logits.argmax(-1) == scored.targets).all(-1)
    return logprob.where(~right, -logprob)


SIGNED = Metric(
    "signed_logprob", "Log-probability, positive where right", _signed, differentiable=False
)


def both(signed: Float[np.ndarray, "*shape"]) -> dict[str, Float[np.ndarray, "*shape"]]:
    """Accuracy and log-probability.

    >>> {name: values.tolist() for name, values in both(np.array([0.5, -2.0])).items()}
    {'accuracy': [1.0, 0.0], 'logprob': [-0.5, -2.0]}
    """
    right = signed >= 0  # and not the sign bit: an answer of probability 1 gives -0.0
    return {"accuracy": right.astype(np.float64), "logprob": -np.abs(signed)}
