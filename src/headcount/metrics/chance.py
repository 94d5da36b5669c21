"""Chance: the score of a model that knows nothing about the question.

Where the whole model does no better, a curve or a ranking of its heads says nothing about the task.

metric                                      chance
choice and others of right or wrong         guessing among the given answers: 1 in 2 with one foil
  against foils
accuracy, exact_match, maths and others     always giving the commonest answer: its share of the
  of right or wrong without foils           targets, which is near 0 if all answers differ
logit_difference and other differences      0: right and wrong answers are equally likely
all others, such as logprob                 unknown
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headcount.metrics.logits import Metric
from headcount.metrics.text import TextMetric
from headcount.stats import Interval
from headcount.tasks import Example


@dataclass(frozen=True)
class Chance:
    """What a model that knows nothing reaches, and how it would do so."""

    level: float
    how: str

    def sentence(self, whole: Interval, metric: str) -> str:
        """One sentence if the whole model is not clearly better, else an empty text.

        It is clearly better if its 95 % interval lies above the level. An unknown interval, or one
        of a single cluster of examples, says nothing.

        >>> guessing = Chance(0.5, "guessing")
        >>> guessing.sentence(Interval(0.9, 0.8, 0.95, n=40), "Accuracy")
        ''
        >>> guessing.sentence(Interval(0.6, 0.4, 0.8, n=40), "Accuracy")
        'The whole model is at chance: Accuracy 0.6 [0.4, 0.8] is not clearly above 0.5 (guessing).'
        """
        if not whole.known or whole.n < 2 or whole.low > self.level:
            return ""
        return (
            f"The whole model is at chance: {metric} {whole} is not clearly above {self.level:.3g} "
            f"({self.how})."
        )


def chance_of(metric: Metric | TextMetric, examples: Iterable[Example]) -> Chance | None:
    """Chance on these examples by this metric; None where nobody can tell.

    The commonest answer is that of the targets: further right answers do not count, since one of
    them may be right everywhere, as the last year of a century is for Greater Than.

    >>> from headcount.metrics import get_metric
    >>> heads = [Example(str(i), "Heads or tails?", " heads", (" tails",)) for i in range(3)]
    >>> coins = [*heads, Example("3", "Heads or tails?", " tails", (" heads",))]
    >>> chance_of(get_metric("accuracy"), coins).level, chance_of(get_metric("logprob"), coins)
    (0.75, None)
    """
    if metric.key.removesuffix("_per_token").endswith("_difference"):
        return Chance(0.0, "right and wrong answers are equally likely")
    asked = list(examples)
    if not metric.binary or not asked:
        return None
    ((_, most),) = Counter(example.target.strip() for example in asked).most_common(1)
    commonest = Chance(most / len(asked), "always giving the commonest answer")
    if not (isinstance(metric, Metric) and metric.needs_foils):
        return commonest
    shares = [(1 + len(e.also)) / (1 + len(e.also) + len(e.foils)) for e in asked]
    guessing = Chance(sum(shares) / len(asked), "guessing among the given answers")
    return max(commonest, guessing, key=lambda chance: chance.level)
