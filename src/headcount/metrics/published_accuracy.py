"""The accuracy by which the published figure was drawn: three chances to be right.

It is lenient: a text that repeats the model's own wrong answer is right by the first clause, "-5"
for "5" by the second, and "57" for "56" by the third (their cosine is 0.89). Exact match is our
accuracy; this rule is here to compare with.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from headcount.metrics.bleu import bleu, rouge_1
from headcount.metrics.encoder import encoder_identity
from headcount.metrics.similarity import cosine
from headcount.metrics.text import TextMetric, Written

BLEU_ABOVE = 0.8
ROUGE_ABOVE = 0.6
COSINE_ABOVE = 0.6


def _published_accuracy(written: Written) -> Float[np.ndarray, "texts"]:
    """Right if like the unmasked answer by BLEU, or like the gold one by ROUGE-1 or by embedding.

    The published embedding model is not known to us; ours is the bundled MiniLM †.
    """
    rows = zip(written.texts, written.whole, written.golds, strict=True)
    right = np.array(
        [bleu(t, w) > BLEU_ABOVE or rouge_1(t, g) > ROUGE_ABOVE for t, w, g in rows], dtype=bool
    )
    # The encoder is asked only where words do not decide: it is the slow part by far.
    open_ = np.flatnonzero(~right).tolist()
    if open_:
        golds = [written.golds[place] for place in open_]
        right[open_] = cosine([written.texts[place] for place in open_], golds) > COSINE_ABOVE
    return right.astype(float)


PUBLISHED_ACCURACY = TextMetric(
    "published_accuracy",
    "Accuracy (published rule: BLEU, ROUGE-1 or cosine)",
    _published_accuracy,
    binary=True,
    identity=encoder_identity,
)
