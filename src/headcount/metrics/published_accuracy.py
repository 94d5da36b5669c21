"""The accuracy by which the published figure was drawn: three chances to be right.

It is lenient: a text that repeats the model's own wrong answer is right by the first clause, "-5"
for "5" by the second, and "57" for "56" by the third (their cosine is 0.89). Exact match is our
accuracy; this rule is here to compare with.

BLEU and ROUGE-1 are small enough to write down, and written down they say which of their many
variants they are. The published code's variants are not known to us, so these are our inference
(†): the ones in widest use for single sentences.
"""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
from jaxtyping import Float

from headcount.metrics.similarity import cosine, encoder_identity
from headcount.metrics.text import TextMetric, Written

BLEU_ABOVE = 0.8
ROUGE_ABOVE = 0.6
COSINE_ABOVE = 0.6
LONGEST = 4  # words of the longest runs that BLEU compares


def bleu(text: str, reference: str) -> float:
    """Sentence BLEU of `text` against one reference, from 0 to 1, case ignored.

    The geometric mean of the precisions of runs of one to four words, times the brevity penalty.
    Tokens † are words and single punctuation marks. A text of fewer than four tokens † is compared
    up to its own length, so that a right answer of one word has BLEU 1 and not 0. Orders without
    any match † count as 1/2, 1/4, … of one match (exponential smoothing), so that one of them does
    not erase the others. This is what sacreBLEU computes for single sentences. No text or no match
    at all: 0.

    >>> bleu("The Nile.", "the nile ."), round(bleu("the cat sat", "the cat sat down"), 4)
    (1.0, 0.7165)
    """
    said, meant = _tokens(text), _tokens(reference)
    logarithms = []
    penalty = 1.0
    for order in range(1, min(LONGEST, len(said)) + 1):
        runs = _runs(said, order)
        matches = (runs & _runs(meant, order)).total()  # each run as often as the reference has it
        if order == 1 and not matches:
            return 0.0
        if not matches:
            penalty /= 2
        logarithms.append(math.log((matches or penalty) / runs.total()))
    if not logarithms:
        return 0.0
    brevity = min(0.0, 1 - len(meant) / len(said))
    return math.exp(brevity + sum(logarithms) / len(logarithms))


def rouge_1(text: str, reference: str) -> float:
    """ROUGE-1: the F score of the words that `text` and `reference` share, from 0 to 1.

    Words † are runs of letters and digits, case ignored, not stemmed.

    >>> rouge_1("It is Paris", "Paris."), rouge_1("", "Paris")
    (0.5, 0.0)
    """
    said, meant = Counter(_words(text)), Counter(_words(reference))
    shared = (said & meant).total()
    # 2pr / (p + r), with p = shared / said and r = shared / meant
    return 2 * shared / (said.total() + meant.total()) if shared else 0.0


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.casefold())


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def _runs(tokens: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


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
