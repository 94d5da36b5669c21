"""Examples side by side: equal lengths together, so that padding costs and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import takewhile

import torch
from jaxtyping import Int
from torch import Tensor

from headcount.tasks.encoding import Encoded


@dataclass(frozen=True)
class Batch:
    """Examples of equal target length as token ids: each prompt with its target, teacher-forced.

    The target's last token is not fed: nothing is predicted from it.
    """

    examples: tuple[int, ...]  # their places in the task
    ids: Int[Tensor, "rows tokens"]
    scored: Int[Tensor, "rows targets"]  # the positions that predict the target's tokens
    targets: Int[Tensor, "rows targets"]
    foils: Int[Tensor, "rows foils"]  # first tokens; -1 where a row has fewer
    also: Int[Tensor, "rows also"]  # those of further right answers

    @property
    def rows(self) -> int:
        """How many examples there are."""
        return self.ids.shape[0]

    def shared_prefix(self) -> int:
        """How many tokens all rows begin with, up to the last that need not be scored.

        >>> from headcount.tasks import Encoded, Example
        >>> some = Example("0", "made", " up")
        >>> prompts = ((5, 6, 7, 8), (5, 6, 9, 8))
        >>> (batch,) = make_batches([Encoded(some, p, (1,), (), None) for p in prompts], tokens=99)
        >>> batch.shared_prefix()
        2
        """
        same = (self.ids == self.ids[:1]).all(0)[: self.ids.shape[1] - self.targets.shape[1]]
        return int(same.long().cumprod(0).sum())

    def part(self, start: int, stop: int) -> Batch:
        """Some of the rows."""
        return Batch(*(getattr(self, field.name)[start:stop] for field in fields(self)))


def make_batches(
    encoded: Sequence[Encoded],
    *,
    tokens: int,
    device: torch.device | str = "cpu",
    corrupted: bool = False,
    places: Sequence[int] | None = None,
    shared_once: int | None = None,
) -> list[Batch]:
    """Group examples into batches of about `tokens` tokens.

    All sequences of a batch have one length. `corrupted` takes each example's corrupted prompt
    in place of its prompt, with the same target. `places` are the numbers of the examples
    that are wanted (all unless given). With `shared_once`, first tokens that
    all sequences of a length share are not counted, where there are at least so many.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for place in range(len(encoded)) if places is None else places:
        one = encoded[place]
        prompt = _prompt(one, corrupted)
        groups.setdefault((len(prompt), len(one.target)), []).append(place)
    batches = []
    for group in groups.values():
        longest = len(_prompt(encoded[group[0]], corrupted)) + len(encoded[group[0]].target) - 1
        if shared_once is not None and len(group) > 1:
            shared = shared_start([_prompt(encoded[place], corrupted) for place in group])
            longest -= shared if shared >= shared_once else 0
        rows = _even_rows(len(group), max(1, tokens // longest))
        for start in range(0, len(group), rows):
            chosen = group[start : start + rows]
            batches.append(_batch(encoded, chosen, corrupted, device))
    return batches


def shared_start(prompts: Sequence[tuple[int, ...]]) -> int:
    """How many tokens all prompts share at their start; at least one is left of each.

    >>> shared_start([(1, 2, 3), (1, 2, 4, 5)]), shared_start([(1, 2), (1, 2)])
    (2, 1)
    """
    # All that the first and the last in order share, those between them share too.
    pairs = zip(min(prompts), max(prompts), strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return min(shared, min(map(len, prompts)) - 1)


def _even_rows(examples: int, rows: int) -> int:
    """Up to `rows` for each batch, or a few more where that saves a small last one.

    >>> _even_rows(32, 28), _even_rows(60, 28), _even_rows(5, 28)
    (32, 30, 5)
    """
    batches = max(1, round(examples / rows))
    if -(-examples // batches) > 1.25 * rows:
        batches += 1
    return max(1, -(-examples // batches))


def _prompt(one: Encoded, corrupted: bool) -> tuple[int, ...]:
    return one.corrupted if corrupted and one.corrupted is not None else one.prompt


def _batch(
    encoded: Sequence[Encoded], places: Sequence[int], corrupted: bool, device: torch.device | str
) -> Batch:
    sequences = [(*_prompt(encoded[p], corrupted), *encoded[p].target[:-1]) for p in places]
    targets = torch.tensor([encoded[p].target for p in places])
    count = targets.shape[1]
    scored = len(sequences[0]) - count + torch.arange(count)
    return Batch(
        tuple(places),
        torch.tensor(sequences).to(device),
        scored.expand(len(places), -1).to(device),
        targets.to(device),
        _first_tokens([encoded[p].foils for p in places]).to(device),
        _first_tokens([encoded[p].also for p in places]).to(device),
    )


def _first_tokens(answers: Sequence[tuple[tuple[int, ...], ...]]) -> Int[Tensor, "rows answers"]:
    """The first token of each row's answers, filled up with -1."""
    ids = torch.full((len(answers), max(map(len, answers))), -1)
    for row, some in enumerate(answers):
        ids[row, : len(some)] = torch.tensor([one[0] for one in some], dtype=torch.long)
    return ids
