"""The probe's classifier: one over all heads, with a projection that heads share.

    [z ; mean over the layer's heads]  (items, heads, 2·size)
      → shared linear      p           (items, heads, width)
      → flatten, linear, ReLU, dropout (items, hidden)
      → linear             logits      (items, functions)

It is trained on the CPU. Every random number comes from one generator of its own: nothing else in
the process draws differently because a probe was trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.system.progress import progress as progress_bar


@dataclass(frozen=True)
class Training:
    """Sizes of the classifier, and how it is trained: Adam on cross-entropy."""

    epochs: int = 100
    lr: float = 1e-4
    width: int = 64  # of a head's projected feature
    hidden: int = 512
    dropout: float = 0.3
    batch: int = 64
    standardise: bool = False  # features to mean 0 and variance 1 over the items trained on

    def __post_init__(self) -> None:
        if min(self.epochs, self.width, self.hidden, self.batch) < 1 or not self.lr > 0:
            raise HeadcountError(
                "A probe's epochs, width, hidden, batch and lr must all be above 0."
            )
        if not 0 <= self.dropout < 1:
            raise HeadcountError(f"dropout goes from 0 to below 1, not to {self.dropout}.")


@dataclass(frozen=True, eq=False)
class TrainedProbe:
    """One trained probe, by what it says about items held out."""

    importance: Float[np.ndarray, "functions heads"]
    confusion: Int[np.ndarray, "functions functions"]
    accuracy: float
    trained: float


class _Classifier(nn.Module):
    """Sites with heads of different sizes have a projection for each size."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        functions: int,
        training: Training,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        heads = sum(count for count, _ in shapes)
        self.dropout, self.generator = training.dropout, generator
        self.project = nn.ModuleDict(
            {
                str(size): _linear(2 * size, training.width, generator)
                for size in dict.fromkeys(size for _, size in shapes)
            }
        )
        self.inner = _linear(heads * training.width, training.hidden, generator)
        self.outer = _linear(training.hidden, functions, generator)

    def features(self, sites: Sequence[Tensor]) -> Float[Tensor, "items heads width"]:
        projected = []
        for z in sites:  # (items, heads, size)
            both = torch.cat([z, z.mean(1, keepdim=True).expand_as(z)], dim=-1)
            projected.append(self.project[str(z.shape[-1])](both))
        return torch.cat(projected, dim=1)

    def logits(self, features: Float[Tensor, "items heads width"]) -> Tensor:
        hidden = self.inner(features.flatten(1)).relu()  # (items, hidden)
        if self.training and self.dropout:
            kept = torch.rand(hidden.shape, generator=self.generator) >= self.dropout
            hidden = hidden * kept / (1 - self.dropout)
        logits: Tensor = self.outer(hidden)
        return logits


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer with torch's usual start, drawn from `generator`."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer


def train_probe(
    sites: Sequence[Float[np.ndarray, "items _ _"]],
    labels: Int[np.ndarray, "items"],
    held_out: Bool[np.ndarray, "items"],
    training: Training,
    seed: int,
    *,
    show: bool = True,
) -> TrainedProbe:
    """Train on the items that are not held out; importance and accuracy come from those that are.

    Functions without a held-out item have importance 0.
    """
    generator = torch.Generator().manual_seed(seed)
    known, tested = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    functions = int(labels.max()) + 1
    z = [_scaled(torch.from_numpy(site).float(), known, training.standardise) for site in sites]
    targets = torch.from_numpy(labels).long()
    shapes = [(int(site.shape[1]), int(site.shape[2])) for site in z]
    classifier = _Classifier(shapes, functions, training, generator)
    # Inside a caller's no_grad, too; and a fused step reads the many weights once, not five times.
    with torch.enable_grad(), progress_bar("training", training.epochs, show=show) as bar:
        optimiser = torch.optim.Adam(classifier.parameters(), lr=training.lr, fused=True)
        for _ in range(training.epochs):
            order = known[torch.randperm(len(known), generator=generator).numpy()]
            for start in range(0, len(order), training.batch):
                rows = torch.from_numpy(order[start : start + training.batch])
                logits = classifier.logits(classifier.features([site[rows] for site in z]))
                optimiser.zero_grad()
                nn.functional.cross_entropy(logits, targets[rows]).backward()
                optimiser.step()
            bar.update(1)
    classifier.eval()
    named = _named(classifier, z, tested)
    confusion = np.zeros((functions, functions), dtype=int)
    np.add.at(confusion, (labels[tested], named), 1)
    return TrainedProbe(
        _importance(classifier, z, labels, tested, functions),
        confusion,
        float((named == labels[tested]).mean()),
        float((_named(classifier, z, known) == labels[known]).mean()),
    )


def _importance(
    classifier: _Classifier,
    z: Sequence[Tensor],
    labels: Int[np.ndarray, "items"],
    tested: Int[np.ndarray, "tested"],
    functions: int,
) -> Float[np.ndarray, "functions heads"]:
    """Gradient × feature of each function's logit, over its held-out items and the dimensions."""
    found = np.zeros((functions, sum(site.shape[1] for site in z)))
    for function in np.unique(labels[tested]):
        rows = torch.from_numpy(tested[labels[tested] == function])
        with torch.no_grad():
            features = classifier.features([site[rows] for site in z])
        with torch.enable_grad():
            features.requires_grad_()
            total = classifier.logits(features)[:, int(function)].sum()
            (slope,) = torch.autograd.grad(total, features)
        effect = (slope * features.detach()).double().mean(-1)  # (items, heads)
        found[int(function)] = effect.mean(0).numpy()
    return found


@torch.no_grad()
def _named(
    classifier: _Classifier, z: Sequence[Tensor], places: Int[np.ndarray, "some"]
) -> Int[np.ndarray, "some"]:
    """The function that the classifier names for each of these items."""
    rows = torch.from_numpy(places)
    found = [
        classifier.logits(classifier.features([site[part] for site in z])).argmax(-1)
        for part in rows.split(256)
    ]
    return torch.cat(found).numpy()


def _scaled(z: Tensor, known: Int[np.ndarray, "known"], standardise: bool) -> Tensor:
    if not standardise:
        return z
    seen = z[torch.from_numpy(known)]
    return (z - seen.mean(0)) / seen.std(0, correction=0).clamp(min=1e-6)
