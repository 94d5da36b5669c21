"""The accuracy of the published figure: a text is right if one of three rules says so.

It is lenient: a text that repeats the model's own wrong answer is right by the first rule, "-5" for
"5" by the second, and "57" for "56" by the third (their cosine is 0.89). Our own accuracy is exact
match; this rule is only for comparison with the paper.

BLEU and ROUGE-1 are written out here, so that it is clear which of their many variants are used. We
do not know the variants of the published code; † marks our assumptions, the most common choices for
single sentences.
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
LONGEST = 4  # words in the longest n-grams that BLEU compares


def bleu(text: str, reference: str) -> float:
    """Sentence BLEU of `text` against one reference, from 0 to 1, case ignored.

    The geometric mean of the precisions of n-grams of one to four words, times the brevity penalty.
    Tokens † are words and single punctuation marks. For a text of fewer than four tokens, n † goes
    up to its length, so that a right answer of one word has BLEU 1 and not 0. Each n without any
    match † counts as 1/2, 1/4, … of a match (exponential smoothing), so that the mean is not 0.
    sacreBLEU computes the same for single sentences. An empty text, or one without any match, is 0.

    >>> bleu("The Nile.", "the nile ."), round(bleu("the cat sat", "the cat sat down"), 4)
    (1.0, 0.7165)
    """
    words, wanted = _tokens(text), _tokens(reference)
    logarithms = []
    penalty = 1.0
    for n in range(1, min(LONGEST, len(words)) + 1):
        ngrams = _ngrams(words, n)
        matches = (ngrams & _ngrams(wanted, n)).total()  # at most as often as in the reference
        if n == 1 and not matches:
            return 0.0
        if not matches:
            penalty /= 2
        logarithms.append(math.log((matches or penalty) / ngrams.total()))
    if not logarithms:
        return 0.0
    brevity = min(0.0, 1 - len(wanted) / len(words))
    return math.exp(brevity + sum(logarithms) / len(logarithms))


def rouge_1(text: str, reference: str) -> float:
    """ROUGE-1: the F score of the words that `text` and `reference` share, from 0 to 1.

    Words † are runs of letters and digits, case ignored, not stemmed.

    >>> rouge_1("It is Paris", "Paris."), rouge_1("", "Paris")
    (0.5, 0.0)
    """
    words, wanted = Counter(_words(text)), Counter(_words(reference))
    shared = (words & wanted).total()
    # 2pr / (p + r), with precision p = shared / words and recall r = shared / wanted
    return 2 * shared / (words.total() + wanted.total()) if shared else 0.0


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.casefold())


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def _ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(n)), strict=False))


def _published_accuracy(written: Written) -> Float[np.ndarray, "texts"]:
    """Right if close to the unmasked answer by BLEU, or to the gold answer by ROUGE-1 or cosine.

    We do not know the published embedding model, and use the bundled MiniLM †.
    """
    rows = zip(written.texts, written.whole, written.golds, strict=True)
    right = np.array(
        [bleu(t, w) > BLEU_ABOVE or rouge_1(t, g) > ROUGE_ABOVE for t, w, g in rows], dtype=bool
    )
    # The encoder is slow, so it runs only on texts that the first two rules do not accept.
    rest = np.flatnonzero(~right).tolist()
    if rest:
        golds = [written.golds[index] for index in rest]
        right[rest] = cosine([written.texts[index] for index in rest], golds) > COSINE_ABOVE
    return right.astype(float)


PUBLISHED_ACCURACY = TextMetric(
    "published_accuracy",
    "Accuracy (published rule: BLEU, ROUGE-1 or cosine)",
    _published_accuracy,
    binary=True,
    identity=encoder_identity,
)
