"""Similarity of meaning: the cosine between two texts' sentence embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from headcount.metrics.encoder import embed, encoder_identity
from headcount.metrics.text import TextMetric


def cosine(texts: Sequence[str], others: Sequence[str]) -> Float[np.ndarray, "texts"]:
    """The cosine between the embeddings of each text and the text at its place in `others`.

    From −1 to 1 and left so: unrelated texts lie around 0 and now and then a little below, and to
    cut that off would lift their mean. Two empty texts are alike.

    >>> len(cosine([], []))
    0
    """
    if len(texts) != len(others):
        raise ValueError(f"{len(texts)} texts, but {len(others)} to compare them with")
    vectors = embed([*texts, *others])
    return np.asarray(np.einsum("ij,ij->i", vectors[: len(texts)], vectors[len(texts) :]))


SIMILARITY = TextMetric(
    "similarity",
    "Similarity to unmasked answer (MiniLM cosine)",
    lambda written: cosine(written.texts, written.whole),
    identity=encoder_identity,
)
GOLD_SIMILARITY = TextMetric(
    "gold_similarity",
    "Similarity to right answer (MiniLM cosine)",
    lambda written: cosine(written.texts, written.golds),
    identity=encoder_identity,
)
