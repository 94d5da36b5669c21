from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.metrics import Written
from headcount.metrics import published_accuracy as published
from headcount.metrics.published_accuracy import PUBLISHED_ACCURACY, bleu, rouge_1
from headcount.metrics.similarity import encoder_identity


@pytest.mark.parametrize(
    ("text", "reference", "value"),
    [
        ("Paris", "paris", 1.0),
        ("", "paris", 0.0),
        ("paris", "", 0.0),
        ("", "", 0.0),
        ("rome", "paris", 0.0),
        # All runs match, one word of four is missing: only the brevity penalty is left.
        ("the cat sat", "the cat sat down", math.exp(1 - 4 / 3)),
        # Precisions 4/5, 2/4, 1/3, 0/2 → 1/2 of a match.
        ("a b c x d", "a b c d e", (4 / 5 * 2 / 4 * 1 / 3 * 1 / 4) ** 0.25),
        # "the" counts as often as the reference has it: 2/7, then 0/6, 0/5, 0/4 smoothed.
        (
            "the the the the the the the",
            "the cat is on the mat",
            (2 / 7 * (1 / 2) / 6 * (1 / 4) / 5 * (1 / 8) / 4) ** 0.25,
        ),
        # Two tokens: runs of one and two words.
        ("cat the", "the cat", (2 / 2 * (1 / 2) / 1) ** 0.5),
        # Punctuation marks are tokens.
        ("-5", "5", (1 / 2 * (1 / 2) / 1) ** 0.5),
    ],
)
def test_bleu_by_hand(text: str, reference: str, value: float) -> None:
    assert bleu(text, reference) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "reference", "value"),
    [
        ("Paris.", "paris", 1.0),
        ("", "paris", 0.0),
        ("", "", 0.0),
        ("It is Paris", "Paris", 2 * (1 / 3 * 1) / (1 / 3 + 1)),
        ("the the cat", "the cat sat", 2 / 3),  # the second "the" has no partner
        ("one-two", "two one", 1.0),
        ("-5", "5", 1.0),
    ],
)
def test_rouge_by_hand(text: str, reference: str, value: float) -> None:
    assert rouge_1(text, reference) == pytest.approx(value, abs=1e-12)


LIKE_OTHERS = [
    (
        "The fire could be stopped.",
        "They were able to control the fire.",
        0.12872632311973015,
        0.3333333333333333,
    ),
    (
        "Mary is a teacher and lives in Paris.",
        "Mary is a teacher who lives in Paris.",
        0.5969491792019644,
        0.875,
    ),
    ("She works as a doctor", "doctor", 0.10682175159905848, 0.33333333333333337),
    ("7 * 8 = 56", "56", 0.10682175159905848, 0.5),
    (
        "Paris is the capital of France, and Paris is large.",
        "The capital of France is Paris.",
        0.24384183193426087,
        0.7499999999999999,
    ),
    ("no no no no no yes", "no yes no yes", 0.17965205598154213, 0.6),
    (
        "Cairo",
        "He is in Egypt, because Cairo is there.",
        0.00012340980408667962,
        0.2222222222222222,
    ),
]


@pytest.mark.parametrize(("text", "reference", "their_bleu", "their_rouge"), LIKE_OTHERS)
def test_like_the_packages_in_use(
    text: str, reference: str, their_bleu: float, their_rouge: float
) -> None:
    """sacrebleu 2.6.0 (sentences, the same tokens, else its defaults) and rouge-score 0.1.2."""
    assert bleu(text, reference) == pytest.approx(their_bleu, abs=1e-9)
    assert rouge_1(text, reference) == pytest.approx(their_rouge, abs=1e-9)


@given(st.text("ab c.", max_size=20), st.text("ab c.", max_size=20))
def test_bounds(text: str, reference: str) -> None:
    for score in (bleu, rouge_1):
        assert 0 <= score(text, reference) <= 1 + 1e-12
        assert score(text, text) == pytest.approx(1) or score(text, text) == 0
    assert rouge_1(text, reference) == rouge_1(reference, text)


def test_each_clause_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], list[str]]] = []

    def cosine(texts: list[str], golds: list[str]) -> np.ndarray:
        asked.append((texts, golds))
        return np.array([0.61 if text == "near" else 0.6 for text in texts])

    monkeypatch.setattr(published, "cosine", cosine)
    rows = [  # text, gold, unmasked answer, right or not
        ("Rome", "Paris", "Rome", 1),  # repeats the model's own answer
        ("It is Paris", "Paris", "Rome", 0),  # ROUGE-1 0.5
        ("Is Paris", "Paris", "Rome", 1),  # ROUGE-1 0.67
        ("near", "Paris", "Rome", 1),
        ("far", "Paris", "Rome", 0),  # the bounds themselves are not above them
        ("", "Paris", "Rome", 0),
        ("a b c", "x", "a b c d", 0),  # BLEU 0.72
        ("a b c d e f", "x", "a b c d e f g", 1),  # BLEU 0.85
    ]
    texts, golds, whole, right = zip(*rows, strict=True)
    values = PUBLISHED_ACCURACY.function(Written(texts, golds, whole, texts))
    assert values.tolist() == list(right)
    undecided = ["It is Paris", "near", "far", "", "a b c"]
    assert asked == [(undecided, ["Paris"] * 4 + ["x"])]  # the encoder reads no others
    assert PUBLISHED_ACCURACY.binary
    assert PUBLISHED_ACCURACY.identity() == encoder_identity()


def test_words_alone_need_no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(published, "cosine")
    written = Written(["Paris"] * 2, ["Paris", "x"], ["y", "Paris"], ["?"] * 2)
    assert PUBLISHED_ACCURACY.function(written).tolist() == [1, 1]
    assert PUBLISHED_ACCURACY.function(Written([], [], [], [])).shape == (0,)
