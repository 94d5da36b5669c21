"""The probe's classifier: it reads all heads, through one projection that the heads share.

    [z ; mean over the layer's heads]  (items, heads, 2·size)
      → shared linear      p           (items, heads, width)
      → flatten, linear, ReLU, dropout (items, hidden)
      → linear             logits      (items, functions)

It is trained on the CPU. All random numbers come from a generator of its own, so that training a
probe changes no other random numbers of the process.
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
    """Sizes of the classifier, and settings of its training with Adam on the cross-entropy."""

    epochs: int = 100
    lr: float = 1e-4
    width: int = 64  # the size of a head's projected feature
    hidden: int = 512
    dropout: float = 0.3
    batch: int = 64
    standardise: bool = False  # whether features get mean 0 and variance 1 over the training items

    def __post_init__(self) -> None:
        if min(self.epochs, self.width, self.hidden, self.batch) < 1 or not self.lr > 0:
            raise HeadcountError(
                "A probe's epochs, width, hidden, batch and lr must all be above 0."
            )
        if not 0 <= self.dropout < 1:
            raise HeadcountError(f"dropout goes from 0 to below 1, not to {self.dropout}.")


@dataclass(frozen=True, eq=False)
class TrainedProbe:
    """The importance, confusion and accuracy of one trained probe on held-out items."""

    importance: Float[np.ndarray, "functions heads"]
    confusion: Int[np.ndarray, "functions functions"]
    accuracy: float
    trained: float  # accuracy on the training items


class _Classifier(nn.Module):
    """The classifier; all heads of one size share a projection."""

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
    """A linear layer with torch's default initial weights, drawn from `generator`."""
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
    """Train on the items that are not held out; measure importance and accuracy on the others.

    A function without a held-out item has importance 0.
    """
    generator = torch.Generator().manual_seed(seed)
    train, tested = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    functions = int(labels.max()) + 1
    z = [_scaled(torch.from_numpy(site).float(), train, training.standardise) for site in sites]
    targets = torch.from_numpy(labels).long()
    shapes = [(int(site.shape[1]), int(site.shape[2])) for site in z]
    classifier = _Classifier(shapes, functions, training, generator)
    # Gradients must be on even if the caller turned them off; a fused step reads the weights once.
    with torch.enable_grad(), progress_bar("training", training.epochs, show=show) as bar:
        optimiser = torch.optim.Adam(classifier.parameters(), lr=training.lr, fused=True)
        for _ in range(training.epochs):
            order = train[torch.randperm(len(train), generator=generator).numpy()]
            for start in range(0, len(order), training.batch):
                rows = torch.from_numpy(order[start : start + training.batch])
                logits = classifier.logits(classifier.features([site[rows] for site in z]))
                optimiser.zero_grad()
                nn.functional.cross_entropy(logits, targets[rows]).backward()
                optimiser.step()
            bar.update(1)
    classifier.eval()
    predicted = _predicted(classifier, z, tested)
    confusion = np.zeros((functions, functions), dtype=int)
    np.add.at(confusion, (labels[tested], predicted), 1)
    return TrainedProbe(
        _importance(classifier, z, labels, tested, functions),
        confusion,
        float((predicted == labels[tested]).mean()),
        float((_predicted(classifier, z, train) == labels[train]).mean()),
    )


def _importance(
    classifier: _Classifier,
    z: Sequence[Tensor],
    labels: Int[np.ndarray, "items"],
    tested: Int[np.ndarray, "tested"],
    functions: int,
) -> Float[np.ndarray, "functions heads"]:
    """The mean of gradient × feature of a function's logit, over held-out items and dimensions."""
    importance = np.zeros((functions, sum(site.shape[1] for site in z)))
    for function in np.unique(labels[tested]):
        rows = torch.from_numpy(tested[labels[tested] == function])
        with torch.no_grad():
            features = classifier.features([site[rows] for site in z])
        with torch.enable_grad():
            features.requires_grad_()
            total = classifier.logits(features)[:, int(function)].sum()
            (slope,) = torch.autograd.grad(total, features)
        effect = (slope * features.detach()).double().mean(-1)  # (items, heads)
        importance[int(function)] = effect.mean(0).numpy()
    return importance


@torch.no_grad()
def _predicted(
    classifier: _Classifier, z: Sequence[Tensor], items: Int[np.ndarray, "some"]
) -> Int[np.ndarray, "some"]:
    """The function that the classifier predicts for each of these items."""
    rows = torch.from_numpy(items)
    predicted = [
        classifier.logits(classifier.features([site[part] for site in z])).argmax(-1)
        for part in rows.split(256)
    ]
    return torch.cat(predicted).numpy()


def _scaled(z: Tensor, train: Int[np.ndarray, "train"], standardise: bool) -> Tensor:
    if not standardise:
        return z
    seen = z[torch.from_numpy(train)]
    return (z - seen.mean(0)) / seen.std(0, correction=0).clamp(min=1e-6)
