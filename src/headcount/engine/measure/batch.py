"""Batches of examples of equal length, so that no batch needs padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import takewhile

import torch
from jaxtyping import Int
from torch import Tensor

from headcount.tasks.encoding import Encoded

LONG = 2048  # tokens: few texts of this length, or a single one, keep a GPU busy


@dataclass(frozen=True)
class Batch:
    """Token ids of examples of equal prompt and target length: each prompt followed by its target.

    The target's last token is left out, because no scored token is predicted from it.
    """

    examples: tuple[int, ...]  # indices of the examples in the list that the batch was made from
    ids: Int[Tensor, "rows tokens"]
    scored: Int[Tensor, "rows targets"]  # the positions that predict the target's tokens
    targets: Int[Tensor, "rows targets"]
    foils: Int[Tensor, "rows foils"]  # the first token of each foil; -1 where a row has fewer foils
    also: Int[Tensor, "rows also"]  # the first token of each further correct answer, or -1

    @property
    def rows(self) -> int:
        """How many examples the batch has."""
        return self.ids.shape[0]

    @property
    def lengths(self) -> tuple[int, int]:
        """The number of tokens of each prompt and of each target."""
        target = self.targets.shape[1]
        return self.ids.shape[1] - target + 1, target

    def shared_prefix(self) -> int:
        """How many tokens at the start of all rows are equal; scored positions do not count.

        >>> from headcount.tasks import Encoded, Example
        >>> text = Example("0", "made", " up")
        >>> prompts = ((5, 6, 7, 8), (5, 6, 9, 8))
        >>> (batch,) = make_batches([Encoded(text, p, (1,), (), None) for p in prompts], tokens=99)
        >>> batch.shared_prefix()
        2
        """
        same = (self.ids == self.ids[:1]).all(0)[: self.ids.shape[1] - self.targets.shape[1]]
        return int(same.long().cumprod(0).sum())

    def part(self, start: int, stop: int) -> Batch:
        """The rows from `start` to before `stop`."""
        return Batch(*(getattr(self, field.name)[start:stop] for field in fields(self)))


def make_batches(
    encoded: Sequence[Encoded],
    *,
    tokens: int,
    device: torch.device | str = "cpu",
    corrupted: bool = False,
    places: Sequence[int] | None = None,
    min_prefix: int | None = None,
    long_tokens: int | None = None,
) -> list[Batch]:
    """Group examples into batches of about `tokens` tokens and of one length each.

    `corrupted` takes each example's corrupted prompt in place of its prompt, with the same target.
    `places` are the indices of the examples to use (default: all). With `min_prefix`, a prefix of
    at least that many tokens that all prompts of a length share does not count towards `tokens`,
    because it runs only once. A batch of long texts (`LONG`) has at most about `long_tokens`.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for place in range(len(encoded)) if places is None else places:
        prompt, target = _prompt(encoded[place], corrupted), encoded[place].target
        groups.setdefault((len(prompt), len(target)), []).append(place)
    batches = []
    for group in groups.values():
        length = len(_prompt(encoded[group[0]], corrupted)) + len(encoded[group[0]].target) - 1
        if min_prefix is not None and len(group) > 1:
            shared = shared_start([_prompt(encoded[place], corrupted) for place in group])
            length -= shared if shared >= min_prefix else 0
        most = tokens if long_tokens is None or length < LONG else min(tokens, long_tokens)
        rows = _even_rows(len(group), max(1, most // length))
        for start in range(0, len(group), rows):
            chosen = group[start : start + rows]
            batches.append(_batch(encoded, chosen, corrupted, device))
    return batches


def shared_start(prompts: Sequence[tuple[int, ...]]) -> int:
    """The length of the prefix that all prompts share, which leaves each prompt at least one token.

    >>> shared_start([(1, 2, 3), (1, 2, 4, 5)]), shared_start([(1, 2), (1, 2)])
    (2, 1)
    """
    # In sorted order, a prefix that the first and the last prompt share is shared by all prompts.
    pairs = zip(min(prompts), max(prompts), strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return min(shared, min(map(len, prompts)) - 1)


def _even_rows(examples: int, rows: int) -> int:
    """The rows of each batch: at most `rows`, or up to a quarter more to avoid a small last batch.

    >>> _even_rows(32, 28), _even_rows(60, 28), _even_rows(5, 28)
    (32, 30, 5)
    """
    batches = max(1, round(examples / rows))
    if -(-examples // batches) > 1.25 * rows:
        batches += 1
    return max(1, -(-examples // batches))


def _prompt(example: Encoded, corrupted: bool) -> tuple[int, ...]:
    return example.corrupted if corrupted and example.corrupted is not None else example.prompt


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
    """The first token of each row's answers, padded with -1."""
    ids = torch.full((len(answers), max(map(len, answers))), -1)
    for row, of_row in enumerate(answers):
        ids[row, : len(of_row)] = torch.tensor([answer[0] for answer in of_row], dtype=torch.long)
    return ids
