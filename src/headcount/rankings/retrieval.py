"""The retrieval score: how often a head looks at the very token that the model copies.

After "Retrieval Head Mechanistically Explains Long-Context Factuality" (Wu et al., 2024): a head
copies a token of the answer if, while that token is written, its most attended position holds this
token and lies in the passage to be found. The score is the share of the answer's tokens that the
head copies. Where we inferred†: the passage is the answer itself, wherever the prompt holds it; and
the right answer is forced, so that one pass reads all of its tokens, and answers that the model
would not write count as well. Attention weights are formed for the answer's positions alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from headcount.engine.read.late import attend_late
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.models.sites import HeadSite
from headcount.rankings.patterns import answer_positions
from headcount.tasks import Encoded, Task

UNIFORM = "uniform reader"  # the score of a head whose most attended position is any, by chance


def retrieval_score(model: Model, task: Task, *, lab: Lab) -> HeadScores:
    """The share of the answer's tokens that a head looks at most while they are predicted."""
    examples = model.encode(task.split("ranking"))
    answers = answer_positions(task, model)
    copied = [copied_positions(*both) for both in zip(examples, answers, strict=True)]

    def reduce(site: HeadSite, weights: Tensor, indices: Sequence[int]) -> Tensor:
        rows = []
        for row, index in enumerate(indices):
            right = copied[index].to(weights.device)  # (targets, keys)
            own = weights[row, :, -len(right) :]  # (heads, targets, keys)
            most, place = own.max(-1)
            found = right[:, : own.shape[-1]].expand_as(own).gather(-1, place[..., None])
            rows.append((found[..., 0] & (most > 0)).float().mean(-1))
        return torch.stack(rows)

    texts = [(*example.prompt, *example.target[:-1]) for example in examples]
    late = [len(example.target) for example in examples]
    samples = attend_late(model, texts, late, reduce, progress=lab.progress)
    scores = HeadScores.averaged(model.layout, samples, "retrieval-score")
    return replace(scores, parameters={**scores.parameters, UNIFORM: uniform_reader(copied)})


def copied_positions(example: Encoded, answer: Sequence[int]) -> Bool[Tensor, "targets keys"]:
    """Which positions hold the token that is predicted, and lie in the answer."""
    text = torch.tensor([*example.prompt, *example.target[:-1]])
    within = torch.zeros(len(text), dtype=torch.bool)
    within[list(answer)] = True
    return (text == torch.tensor(example.target)[:, None]) & within


def uniform_reader(copied: Sequence[Bool[Tensor, "_ _"]]) -> float:
    """The score of a head that knows nothing: one of the positions that it sees, by chance."""
    shares = []
    for right in copied:
        targets, keys = right.shape
        seen = torch.arange(keys - targets + 1, keys + 1)
        shares.append(float((right.sum(-1) / seen).mean()))
    return float(np.mean(shares))
