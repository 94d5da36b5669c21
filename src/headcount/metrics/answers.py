"""Right and wrong answers as passes: what is run for a metric, and one number per example of it.

A metric of whole answers needs the log-probability of every token of every answer. Answers that
differ in their last token only (such as all answers of one token) come from the same logits, so
they are one row; other answers need a row of their own. The rows of right and of wrong answers are
kept apart. The store holds one value for each row: its key has the ids of the prompt and of the
row's answers, and so a further answer costs only its own pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from headcount.errors import HeadcountError
from headcount.metrics.logits import Metric
from headcount.tasks.encoding import Encoded, require_foils
from headcount.tasks.task import quoted

if TYPE_CHECKING:
    from torch import Tensor

Ids = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class AnswerRows:
    """The rows to run for some examples, and how their values become one number per example.

    rows      the passes, as examples of their own; for metrics that run one pass per example, the
              examples themselves
    right     the rows of each example's right answers, padded with -1
    wrong     the same for its wrong answers
    """

    metric: Metric
    rows: list[Encoded]
    right: Int[np.ndarray, "examples right"]
    wrong: Int[np.ndarray, "examples wrong"]

    @cached_property
    def owners(self) -> Int[np.ndarray, "rows"]:
        """The example of each row."""
        owners = np.zeros(len(self.rows), dtype=int)
        for rows in (self.right, self.wrong):
            examples, places = (rows >= 0).nonzero()
            owners[rows[examples, places]] = examples
        return owners

    def combined(self, values: Float[Tensor, "*_ rows"]) -> Float[Tensor, "*_ examples"]:
        """One value per example from one value per row."""
        if self.metric.combine is None:
            return values
        if self.metric.per_token:
            lengths = [len(row.target) for row in self.rows]
            values = values / values.new_tensor(lengths)
        return self.metric.combine(_padded(values, self.right), _padded(values, self.wrong))

    def table(self, values: Float[np.ndarray, "sets rows"]) -> Float[np.ndarray, "sets examples"]:
        """The same for a table of numbers."""
        import torch

        return np.asarray(self.combined(torch.from_numpy(values)).numpy())


def answer_rows(metric: Metric, examples: Sequence[Encoded]) -> AnswerRows:
    """The rows that a metric needs; refuses examples whose answers the metric cannot compare.

    >>> from headcount.metrics import METRICS
    >>> from headcount.tasks import Example
    >>> text = Example("0", "It is", " two", (" four or five",), also=(" three",))
    >>> encoded = Encoded(text, (8, 9), (2,), ((4, 6, 5),), None, ((3,),))
    >>> answers = answer_rows(METRICS["choice"], [encoded])
    >>> [(row.prompt, row.target, row.also) for row in answers.rows]
    [((8, 9), (2,), ((3,),)), ((8, 9), (4, 6, 5), ())]
    """
    require_answers(metric, examples)
    if metric.combine is None:
        own = np.arange(len(examples))[:, None]
        return AnswerRows(metric, list(examples), own, own[:, :0])
    rows: list[Encoded] = []
    sides: tuple[list[range], list[range]] = ([], [])
    for example in examples:
        made = [_right_rows(example, metric), _wrong_rows(example) if metric.needs_foils else []]
        for side, some in zip(sides, made, strict=True):
            side.append(range(len(rows), len(rows) + len(some)))
            rows += some
    return AnswerRows(metric, rows, *map(_table, sides))


def usual_metric(examples: Iterable[Encoded]) -> str:
    """The metric that suits a task whose prompts have wrong answers, too.

    It is the published one for answers of one token, and that of whole answers for longer ones.
    """
    examples = list(examples)
    answers = [ids for e in examples for ids in (e.target, *e.also, *e.foils)]
    if max(map(len, answers)) > 1:
        return "logprob_difference"
    return "mass_difference" if any(e.also for e in examples) else "logit_difference"


def require_answers(metric: Metric, examples: Iterable[Encoded]) -> None:
    """Refuse examples whose right and wrong answers the metric cannot count."""
    examples = list(examples)
    what = f"the metric {metric.key}"
    for encoded in examples:
        name = quoted(encoded.example.id)
        if metric.answers == "target" and encoded.also:
            raise HeadcountError(
                f"Example {name} has several right answers, and {what} counts only the target: "
                "choose another metric, such as logprob or accuracy."
            )
        if metric.answers in ("one-token", "first-token") and encoded.opens:
            raise HeadcountError(
                f"Example {name} begins with its answer, and nothing stands before the first token "
                f"that {what} compares: choose a metric of whole answers, such as "
                "logprob_difference."
            )
        if metric.answers == "one-token":
            for text, ids in _answers(encoded):
                if len(ids) > 1:
                    raise HeadcountError(
                        f"The answer {quoted(text)} of example {name} has {len(ids)} tokens, and "
                        f"{what} compares answers of one token: choose logprob_difference, which "
                        f"compares whole answers, or first_token_{metric.key}."
                    )
    if metric.needs_foils:
        require_foils(examples, what, whole=metric.answers == "whole")


def _answers(encoded: Encoded) -> list[tuple[str, Ids]]:
    """The text and ids of all right and wrong answers."""
    example = encoded.example
    texts = (example.target, *example.also, *example.foils)
    return list(zip(texts, (encoded.target, *encoded.also, *encoded.foils), strict=True))


def _right_rows(encoded: Encoded, metric: Metric) -> list[Encoded]:
    example = encoded.example
    if not (encoded.also or metric.needs_foils):
        return [encoded]
    target = (*encoded.prompt, *encoded.target) if encoded.opens else encoded.target
    answers = dict(zip((target, *encoded.also), (example.target, *example.also), strict=True))
    if not metric.needs_foils:
        # An answer that begins with another right one is a part of that one: it counts once.
        answers = {
            ids: text
            for ids, text in answers.items()
            if not any(ids[:end] in answers for end in range(1, len(ids)))
        }
    return _rows(encoded, answers)


def _wrong_rows(encoded: Encoded) -> list[Encoded]:
    return _rows(encoded, dict(zip(encoded.foils, encoded.example.foils, strict=True)))


def _rows(encoded: Encoded, answers: dict[Ids, str]) -> list[Encoded]:
    """One row for all answers that differ in their last token only."""
    groups: dict[Ids, list[Ids]] = {}
    for ids in answers:
        groups.setdefault(ids[:-1], []).append(ids)
    rows = []
    for first, *others in groups.values():
        text = answers[first]
        named = replace(
            encoded.example, id=f"{encoded.example.id}:{text}", target=text, foils=(), also=()
        )
        rows.append(
            replace(
                encoded,
                example=named,
                # The first token of a text that nothing precedes is not scored.
                prompt=first[:1] if encoded.opens else encoded.prompt,
                target=first[1:] if encoded.opens else first,
                foils=(),
                also=tuple(ids[-1:] for ids in others),
            )
        )
    return rows


def _table(rows: Sequence[range]) -> Int[np.ndarray, "examples rows"]:
    table = np.full((len(rows), max(map(len, rows), default=0)), -1)
    for example, own in enumerate(rows):
        table[example, : len(own)] = own
    return table


def _padded(values: Tensor, rows: Int[np.ndarray, "examples answers"]) -> Any:
    """The values of these rows, (…, examples, answers), with -inf for padding."""
    import torch

    places = torch.from_numpy(rows).to(values.device)
    return values[..., places.clamp(min=0)].masked_fill(places < 0, -torch.inf)
