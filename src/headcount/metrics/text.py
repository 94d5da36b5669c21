"""Metrics of written texts: one number per text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from headcount.errors import HeadcountError
from headcount.metrics.normalise import normalise
from headcount.tasks.answer_endings import read_answers
from headcount.tasks.task import Example


@dataclass(frozen=True)
class Written:
    """Texts that a model wrote under one or more head sets, and what to compare them with.

    Each has one entry for each text; `also` may be left out.
    """

    texts: Sequence[str]
    golds: Sequence[str]  # the right answers
    whole: Sequence[str]  # the answers of the unmasked model to the same prompts
    prompts: Sequence[str]
    also: Sequence[Sequence[str]] = ()  # further right answers; `TextMetric.score` reads them

    @classmethod
    def of(
        cls,
        examples: Iterable[Example],
        texts: Sequence[str],
        whole: Sequence[str],
        until: str = "",
    ) -> Written:
        """The texts written to these examples, with the right answers of each.

        By the ending `until` of their task, answers are read out of texts.
        """
        examples = list(examples)
        return cls(
            read_answers(until, texts),
            read_answers(until, [example.target.strip() for example in examples]),
            read_answers(until, whole),
            [example.prompt for example in examples],
            [read_answers(until, [a.strip() for a in example.also]) for example in examples],
        )

    def part(self, places: Sequence[int], golds: Sequence[str]) -> Written:
        """Some of the texts, with these right answers."""
        texts, whole, prompts = (
            [column[place] for place in places] for column in (self.texts, self.whole, self.prompts)
        )
        return Written(texts, golds, whole, prompts)


@dataclass(frozen=True)
class TextMetric:
    """One number per written text.

    key       its name on the command line and in the store
    name      its name on axes and in tables
    function  from `Written` to one value per text
    binary    whether its values are 0 or 1, so that its mean is an accuracy
    identity  whatever else determines a value, such as the encoder; part of the store's key
    require   refuses a missing package, before a model writes for hours
    golds     whether it compares texts with right answers; if so, a text with several right
              answers gets the highest of their values
    most      the largest value that it can take, if there is one: no interval reaches beyond it
    """

    key: str
    name: str
    function: Callable[[Written], Float[np.ndarray, "texts"]]
    binary: bool = False
    identity: Callable[[], str] = lambda: ""
    require: Callable[[], object] = lambda: None
    golds: bool = True
    most: float | None = None

    def score(self, written: Written) -> Float[np.ndarray, "texts"]:
        """One value per text: the highest over its right answers.

        >>> one = Written(["7"], ["6"], ["7"], ["More than five:"], [["7", "8"]])
        >>> EXACT_MATCH.score(one)
        array([1.])
        """
        values = np.array(self.function(written), dtype=np.float64)
        several = written.also if self.golds else ()
        for number in range(max(map(len, several), default=0)):
            places = [place for place, answers in enumerate(several) if len(answers) > number]
            golds = [several[place][number] for place in places]
            values[places] = np.maximum(values[places], self.function(written.part(places, golds)))
        return values


def by_rule(rule: Callable[[str, str], bool]) -> Callable[[Written], Float[np.ndarray, "texts"]]:
    """A metric's function from a rule that says whether a text is the right answer."""

    def function(written: Written) -> Float[np.ndarray, "texts"]:
        pairs = zip(written.texts, written.golds, strict=True)
        return np.array([rule(text, gold) for text, gold in pairs], dtype=float)

    return function


def shuffled(written: Written, seed: int = 0) -> Written:
    """The same texts, each with the references of another item.

    Every reference is used as often as before. As far as possible, no text gets a right answer or
    an unmasked answer that says the same as its own.

    >>> shuffled(Written(["a", "b"], ["a", "b"], ["a", "b"], ["?", "?"])).golds
    ['b', 'a']
    """
    own = np.stack([_codes(written.golds), _codes(written.whole)])  # (2, texts)
    if len(np.unique(own, axis=1).T) < 2:
        raise HeadcountError(
            "A metric's floor pairs texts with the answers of other items, which needs at least "
            "two different answers: give a larger task."
        )
    draw = np.random.default_rng(seed)
    partner = draw.permutation(own.shape[1])
    given = own[:, partner]
    kept = _alike(own, given)
    improved = True
    while improved:  # each swap leaves fewer texts with a reference like their own, so this ends
        improved = False
        for index in np.flatnonzero(kept):
            # What this text and each other text would keep if they swapped their references.
            this, others = _alike(own[:, [index]], given), _alike(own, given[:, [index]])
            gain = kept + kept[index] - this - others
            if gain.max() <= 0:
                continue
            other = draw.choice(np.flatnonzero(gain == gain.max()))
            for pairing in (partner, given):
                pairing[..., [index, other]] = pairing[..., [other, index]]
            kept[[index, other]] = this[other], others[other]
            improved = True
    return Written(
        texts=written.texts,
        golds=[written.golds[index] for index in partner],
        whole=[written.whole[index] for index in partner],
        prompts=written.prompts,
        also=[written.also[index] for index in partner] if written.also else (),
    )


def floor(metric: TextMetric, written: Written, seed: int = 0) -> float:
    """The mean of `metric` if texts are paired with other items' references.

    This is the value of texts that have the right form and the wrong content. Two metrics can be
    compared if each is scaled from its floor to its value for the unmasked model.

    >>> from headcount.metrics import get_metric
    >>> texts = ["Paris", "Rome", "Oslo"]
    >>> floor(get_metric("exact_match"), Written(texts, texts, texts, ["?"] * 3))
    0.0
    """
    return float(metric.score(shuffled(written, seed)).mean())


def _alike(own: Int[np.ndarray, "2 _"], given: Int[np.ndarray, "2 _"]) -> Int[np.ndarray, "_"]:
    """How many of the two references given to a text say the same as its own."""
    gold, whole = own == given
    return np.asarray(gold.astype(np.int8) + whole)


def _codes(texts: Sequence[str]) -> Int[np.ndarray, "texts"]:
    """One number per text, equal for texts that say the same."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(normalise(text), len(known)) for text in texts], dtype=int)


def is_match(text: str, gold: str) -> bool:
    """Whether `text` is the answer `gold` and nothing else.

    >>> is_match("The Nile.", "nile"), is_match("56.0", "56"), is_match("560", "56")
    (True, True, False)
    """
    return normalise(text) == normalise(gold)


EXACT_MATCH = TextMetric("exact_match", "Accuracy (exact match)", by_rule(is_match), binary=True)
