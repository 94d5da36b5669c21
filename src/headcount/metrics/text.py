"""Metrics of what a model wrote: one number per text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from headcount.errors import HeadcountError
from headcount.metrics.normalise import normalise


@dataclass(frozen=True)
class Written:
    """Texts that a model wrote under one or more head sets, beside what they are held against.

    All four are equally long: one entry for each text.
    """

    texts: Sequence[str]
    golds: Sequence[str]  # the right answers
    whole: Sequence[str]  # what the model wrote to the same prompts with all its heads
    prompts: Sequence[str]


@dataclass(frozen=True)
class TextMetric:
    """One number per written text.

    key       its name on the command line and in the store
    name      its name on axes and in tables
    function  from `Written` to one value per text
    binary    whether its values are 0 or 1, so that its mean is an accuracy
    identity  what else determines a value, such as the encoder's weights; part of the store's key
    require   refuses a package that is not installed, before a model writes for hours
    """

    key: str
    name: str
    function: Callable[[Written], Float[np.ndarray, "texts"]]
    binary: bool = False
    identity: Callable[[], str] = lambda: ""
    require: Callable[[], object] = lambda: None


def by_rule(rule: Callable[[str, str], bool]) -> Callable[[Written], Float[np.ndarray, "texts"]]:
    """A metric's function that is 1 where the rule takes a text for the right answer."""

    def function(written: Written) -> Float[np.ndarray, "texts"]:
        pairs = zip(written.texts, written.golds, strict=True)
        return np.array([rule(text, gold) for text, gold in pairs], dtype=float)

    return function


def shuffled(written: Written, seed: int = 0) -> Written:
    """The same texts beside the references of other items.

    Every reference is used as often as before. As far as the references allow, no text keeps a
    right answer or an unmasked answer that says the same as its own.

    >>> shuffled(Written(["a", "b"], ["a", "b"], ["a", "b"], ["?", "?"])).golds
    ['b', 'a']
    """
    own = np.stack([_codes(written.golds), _codes(written.whole)])  # (2, texts)
    if len(np.unique(own, axis=1).T) < 2:
        raise HeadcountError(
            "Answers are paired with those of other items to find a metric's floor, and that needs "
            "at least two different answers: give a larger task."
        )
    draw = np.random.default_rng(seed)
    partner = draw.permutation(own.shape[1])
    given = own[:, partner]
    kept = _alike(own, given)
    improved = True
    while improved:  # each swap leaves fewer references beside their like, so this ends
        improved = False
        for place in np.flatnonzero(kept):
            # How many would be left if this text and each other text swapped their partners.
            here, there = _alike(own[:, [place]], given), _alike(own, given[:, [place]])
            gain = kept + kept[place] - here - there
            if gain.max() <= 0:
                continue
            other = draw.choice(np.flatnonzero(gain == gain.max()))
            for pairing in (partner, given):
                pairing[..., [place, other]] = pairing[..., [other, place]]
            kept[[place, other]] = here[other], there[other]
            improved = True
    return Written(
        texts=written.texts,
        golds=[written.golds[place] for place in partner],
        whole=[written.whole[place] for place in partner],
        prompts=written.prompts,
    )


def floor(metric: TextMetric, written: Written, seed: int = 0) -> float:
    """The mean of `metric` where texts are paired with other items' references.

    It is what the metric gives for texts of the right kind that say the wrong thing. Two metrics
    can be compared once each is scaled from its floor to its value without masking.

    >>> from headcount.metrics import get_metric
    >>> said = ["Paris", "Rome", "Oslo"]
    >>> floor(get_metric("exact_match"), Written(said, said, said, ["?"] * 3))
    0.0
    """
    return float(metric.function(shuffled(written, seed)).mean())


def _alike(own: Int[np.ndarray, "2 _"], given: Int[np.ndarray, "2 _"]) -> Int[np.ndarray, "_"]:
    """How many of a text's two references say the same as its own."""
    gold, whole = own == given
    return np.asarray(gold.astype(np.int8) + whole)


def _codes(texts: Sequence[str]) -> Int[np.ndarray, "texts"]:
    """One number per text, equal for texts that say the same."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(normalise(text), len(known)) for text in texts], dtype=int)


def is_match(text: str, gold: str) -> bool:
    """Whether `text` is the answer `gold`, all of it and nothing besides.

    >>> is_match("The Nile.", "nile"), is_match("56.0", "56"), is_match("560", "56")
    (True, True, False)
    """
    return normalise(text) == normalise(gold)


EXACT_MATCH = TextMetric("exact_match", "Accuracy (exact match)", by_rule(is_match), binary=True)
