"""Greater Than: a year that comes after another one.

    The siege lasted from the year 1742 to the year 17 →  43, 44, …, 99; not 00, …, 42

The twin starts in the year 01, after which all years are likely. (The form is that of Hanna et al.,
2023; templates and nouns are ours.) Two forms, by what the tokenizer does to digits:

two-digit      "1742" is "17" and "42": the answers are all later years, the foils the start year
               and all earlier ones
single-digit   digits are tokens of their own: the next decade's digit decides, "17" → 5, …, 9 and
               not 0, …, 3; the start decade is neither right nor wrong, since a later year may lie
               in it
"""

from __future__ import annotations

import random
from itertools import product

from headcount.errors import HeadcountError
from headcount.tasks.items import tables
from headcount.tasks.task import Example, Task, Tokenizer
from headcount.tasks.template_tasks import (
    TemplateSettings,
    aligned,
    enough_single_tokens,
    single_tokens,
    template_task,
)

CENTURIES = tuple(range(11, 19))
MIN_NOUNS = 8
MIN_STARTS = 20  # years of a century that a tokenizer must write as two tokens of two digits
MIN_CENTURIES = 3


def greater_than(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """A year that comes after another one.

    Each example has its own triple of template, noun and century. Right answers are all
    later years of that century, foils all earlier ones; the target itself is the nearest later one.
    """
    data = tables("greater_than")
    digits, answers, starts = _form(tokenizer)
    nouns = enough_single_tokens(tokenizer, data.words("nouns"), "nouns", "greater-than", MIN_NOUNS)
    templates = data.lines("templates")

    def attempt(number: int, content: tuple[str, int], rng: random.Random) -> Example | None:
        noun, century = content
        start = rng.choice(starts[century])
        prompt, twin = (
            templates[number].format(noun=noun, start=f"{century}{year:02d}", century=century)
            for year in (start, 1)
        )
        after = start if digits == 2 else start // 10
        right = [text for number, text in answers.items() if number > after]
        # Nearest first; the start decade is neither right nor wrong.
        least = after if digits == 2 else after - 1
        wrong = [text for number, text in reversed(answers.items()) if number <= least]
        if not (right and wrong and aligned(tokenizer, {}, {prompt: (), twin: ()})):
            return None
        return Example(
            id="",
            prompt=prompt,
            target=right[0],
            foils=tuple(wrong),
            corrupted=twin,
            template=f"y{number}",
            content=f"{noun}/{century}",
            also=tuple(right[1:]),
        )

    contents = list(product(nouns, starts))
    forms = range(len(templates))
    return template_task("greater-than", forms, contents, attempt, "year", settings)


def _form(tokenizer: Tokenizer) -> tuple[int, dict[int, str], dict[int, list[int]]]:
    """Digits of an answer, the answers by their number, and the start years of each century.

    The form is the two-digit one where the tokenizer writes enough years so.
    """
    pairs = {text: int(text) for text in (f"{year:02d}" for year in range(100))}
    ids = single_tokens(tokenizer, list(pairs), before="")

    def split(century: int, year: str) -> bool:
        whole = tokenizer.encode(f"the year {century}{year}", add_special_tokens=False)
        start = tokenizer.encode(f"the year {century}", add_special_tokens=False)
        return list(whole) == [*start, ids[year]]

    starts = {
        century: [pairs[year] for year in ids if 2 <= pairs[year] <= 98 and split(century, year)]
        for century in CENTURIES
        if "01" in ids and split(century, "01")  # the twin's year
    }
    starts = {century: some for century, some in starts.items() if len(some) >= MIN_STARTS}
    if len(starts) >= MIN_CENTURIES:
        return 2, {pairs[text]: text for text in ids}, starts
    digits = single_tokens(tokenizer, [str(digit) for digit in range(10)], before="")
    if len(digits) < 10:
        raise HeadcountError(
            "This tokenizer writes neither years as two tokens of two digits nor each digit as one "
            "token, so Greater Than has no prompt and twin that align: choose another task."
        )
    years = list(range(10, 90))
    return 1, {int(text): text for text in digits}, dict.fromkeys(CENTURIES, years)
