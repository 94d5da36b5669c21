"""Words that a tokenizer writes as one token each, so that swapping them moves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headcount.errors import HeadcountError
from headcount.tasks.encoding import continuation_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_DRAWS = 100  # of words for one prompt and its twin, before a tokenizer is given up


def words(text: str) -> tuple[str, ...]:
    """The words of a text.

    >>> words("one two")
    ('one', 'two')
    """
    return tuple(text.split())


def single_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], before: str = " "
) -> dict[str, int]:
    """Those of `texts` that are one token behind `before`, with their ids; no id comes twice."""
    found: dict[str, int] = {}
    for text in texts:
        try:
            ids = continuation_ids(tokenizer, before + text)
        except HeadcountError:  # the tokenizer cannot write it at all
            continue
        if len(ids) == 1 and ids[0] not in found.values():
            found[text] = ids[0]
    return found


def enough_single_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], kind: str, task: str, least: int
) -> dict[str, int]:
    """The words that are one token each, or a sentence where a task has too few of them."""
    found = single_tokens(tokenizer, texts)
    if len(found) < least:
        raise HeadcountError(
            f"Only {len(found)} of our {len(texts)} {kind} are one token for this tokenizer, and "
            f"{task} needs {least}: choose another task, or bring yours as a JSON Lines file."
        )
    return found


def no_twin(pattern: str, kind: str) -> HeadcountError:
    """What to say where no prompt and twin of equal length was found."""
    return HeadcountError(
        f'Found no prompt and twin of equal length for the template "{pattern}" in {MAX_DRAWS} '
        f"draws: this tokenizer writes a {kind} differently from place to place, so choose another "
        "task."
    )
