from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headcount.errors import HeadcountError
from headcount.metrics import METRICS, TextMetric, Written, get_logit_metric
from headcount.metrics import get_metric as get
from headcount.metrics.normalise import normalise
from headcount.metrics.text import EXACT_MATCH, is_match

WORDS = st.text(st.characters(categories=["Ll", "Lu", "Nd"]), min_size=1, max_size=12)
NUMBERS = st.integers(-(10**30), 10**30)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        (" Paris\n", "paris"),
        ("the Eiffel  Tower", "Eiffel Tower"),
        ("An apple.", "apple"),
        ("“Hamlet”", "Hamlet"),
        ("The 'Hamlet'", "hamlet"),
        ("**Paris**", "Paris"),
        ("(b)", "B"),
        ("A", "a."),  # an article alone is an answer
        ("STRASSE", "straße"),
        ("ﬁsh", "fish"),
        ("don’t", "don't"),
        ("1,000", "1000.0"),
        (" 1000.", "1,000"),
        ("1,234,567.50", "1234567.5"),
        ("０５６", "56"),
        ("+7", "7"),
        ("-0.0", "0"),
        ("−5", "-5"),
        ("–5", "-5"),
        ("-.5", "-0.50"),
        ("- 5", "5"),  # an item of a list
        ("-- 5", "5"),
        ("...5", "5"),
        ('"-5."', "-5"),
        ("the 5", "5"),
        ("5 %", "5 %."),
        ("", " "),
    ],
)
def test_the_same_answer(text: str, gold: str) -> None:
    assert is_match(text, gold)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("56", "560"),
        ("56", "5.6"),
        ("-5", "5"),
        ("-5%", "5%"),
        ("-$5", "$5"),
        ("56%", "56"),
        (".5", "5"),
        ("1,00", "100"),  # not how thousands are written
        ("1000,5", "10005"),
        ("1e3", "1000"),
        ("0.1", "0.10000000000000000001"),  # equal in floating point
        ("12345678901234567890", "12345678901234567891"),
        ("9" * 5000, "9" * 4999 + "8"),
        ("Paris, France", "Paris"),
        ("theatre", "atre"),
        ("ant", "t"),
        ("C#", "C"),
        ("!", "?"),
        ("", "..."),
        ("", "a"),
        ("résumé", "resume"),
        ("1/2", "0.5"),
    ],
)
def test_another_answer(text: str, gold: str) -> None:
    assert not is_match(text, gold)


@given(st.text())
@example("The 'a the' \u0345")
@example("\u1e9e\u0345")
def test_normal_texts_are_normal(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(
    WORDS, st.sampled_from(["{}", " {}\n", "{}.", '"{}"', "({})!", "the {}", "'The {}'", "“{}”"])
)
def test_dress_does_not_count(word: str, dress: str) -> None:
    assert is_match(dress.format(word), word)


@given(NUMBERS, st.integers(0, 5))
def test_one_number_in_many_ways(number: int, zeros: int) -> None:
    ways = [f"{number}", f"{number:,}", f" {number}.", f"{number}.{'0' * zeros}", f"{number:,}.0"]
    assert {normalise(way) for way in ways} == {str(number)}


DECIMALS = st.decimals(-(10**20), 10**20, places=6)


@given(DECIMALS, st.one_of(DECIMALS, st.integers(-3, 3).map(Decimal)), st.integers(0, 30))
def test_numbers_are_equal_as_rationals(one: Decimal, step: Decimal, zeros: int) -> None:
    text, other = f"{one:f}", f"{one + step:.6f}{'0' * zeros}"
    assert is_match(text, other) == (Fraction(text) == Fraction(other))


def test_as_a_metric() -> None:
    texts = ["Paris", "paris.", "Rome", ""]
    written = Written(texts, ["Paris"] * 4, ["Rome"] * 4, ["?"] * 4)
    np.testing.assert_array_equal(EXACT_MATCH.function(written), [1, 1, 0, 0])
    assert EXACT_MATCH.binary
    assert EXACT_MATCH.identity() == ""
    assert EXACT_MATCH.function(Written([], [], [], [])).shape == (0,)


def test_by_name() -> None:
    assert list(METRICS) == [metric.key for metric in METRICS.values()]
    assert get("exact_match") is EXACT_MATCH
    assert get("accuracy") is METRICS["accuracy"]
    mine = TextMetric("mine", "Mine", EXACT_MATCH.function)
    assert get(mine) is mine
    with pytest.raises(HeadcountError, match=r'known: logprob, .*comet.*mean "exact_match"\?'):
        get("exact-match")


@pytest.mark.parametrize("metric", ["exact_match", "similarity", "comet", "maths", EXACT_MATCH])
def test_text_metrics_have_no_logits(metric: str | TextMetric) -> None:
    assert get_logit_metric("logprob") is METRICS["logprob"]
    with pytest.raises(HeadcountError, match=r"scores written texts.*teacher forcing: use one of"):
        get_logit_metric(metric)
