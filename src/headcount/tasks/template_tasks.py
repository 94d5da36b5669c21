"""What the tasks of sentence templates share: one-token words, an even deal, twins of equal length.

Words that a tokenizer writes as one token each can be swapped without moving anything else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from headcount.errors import HeadcountError
from headcount.tasks.encoding import continuation_ids
from headcount.tasks.task import Bos, Example, Task, Tokenizer

MAX_DRAWS = 100  # of words for one prompt and its twin, before a tokenizer is given up

Form = TypeVar("Form")
Content = TypeVar("Content")


@dataclass(frozen=True)
class TemplateSettings:
    """How many examples, drawn by which seed; a longer task starts with those of a shorter one."""

    n: int = 200
    seed: int = 0
    bos: Bos = "auto"


def single_tokens(tokenizer: Tokenizer, texts: Sequence[str], before: str = " ") -> dict[str, int]:
    """Those of `texts` that are one token behind `before`, with their ids; no id comes twice."""
    known: dict[str, int] = {}
    for text in texts:
        try:
            ids = continuation_ids(tokenizer, before + text)
        except HeadcountError:  # the tokenizer cannot write it at all
            continue
        if len(ids) == 1 and ids[0] not in known.values():
            known[text] = ids[0]
    return known


def enough_single_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], kind: str, task: str, least: int
) -> dict[str, int]:
    """The words that are one token each; too few of them for a task are refused."""
    known = single_tokens(tokenizer, texts)
    if len(known) < least:
        raise HeadcountError(
            f"Only {len(known)} of our {len(texts)} {kind} are one token for this tokenizer, and "
            f"the task {task} needs {least}: choose another, or bring yours as a JSON Lines file."
        )
    return known


def template_task(
    key: str,
    forms: Sequence[Form],
    contents: Sequence[Content],
    attempt: Callable[[Form, Content, random.Random], Example | None],
    drawn: str,
    settings: TemplateSettings,
) -> Task:
    """The task of `n` different pairs of a form and a content; each form comes once per round.

    `attempt` fills a form with a content and with what it draws (a "name", a "year"), and gives
    None where prompt and twin do not align: then it is asked again.
    """
    n, seed, most = settings.n, settings.seed, len(forms) * len(contents)
    if not 1 <= n <= most:
        raise HeadcountError(f"The task {key} has from 1 to {most} different examples, not {n}.")
    rng = random.Random(f"{key} {drawn}s {seed}")
    examples = []
    for number, (form, content) in enumerate(islice(_rounds(key, seed, forms, contents), n)):
        attempts = (attempt(form, content, rng) for _ in range(MAX_DRAWS))
        example = next(filter(None, attempts), None)
        if example is None:
            raise HeadcountError(
                f"Found no prompt and twin of equal length for the task {key} in {MAX_DRAWS} "
                f"draws: this tokenizer writes a {drawn} differently from place to place, so "
                "choose another task."
            )
        examples.append(replace(example, id=f"{key}-{number:04d}"))
    return Task(key, 1, tuple(examples), bos=settings.bos)


def aligned(
    tokenizer: Tokenizer, ids: Mapping[str, int], texts: Mapping[str, Sequence[str]]
) -> bool:
    """Whether texts have equally many tokens, and their words come in them as one token each."""
    lengths = set()
    for text, words in texts.items():
        tokens = tokenizer.encode(text)
        lengths.add(len(tokens))
        if any(tokens.count(ids[word]) != words.count(word) for word in words):
            return False
    return len(lengths) == 1


def _rounds(
    key: str, seed: int, forms: Sequence[Form], contents: Sequence[Content]
) -> Iterator[tuple[Form, Content]]:
    """All pairs of a form and a content, shuffled: each form once per round."""
    decks = [
        random.Random(f"{key} {seed} {form}").sample(contents, len(contents)) for form in forms
    ]
    rng = random.Random(f"{key} rounds {seed}")
    for turn in range(len(contents)):
        for number in rng.sample(range(len(forms)), len(forms)):
            yield forms[number], decks[number][turn]
