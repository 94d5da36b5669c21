'''Docstring: which argument is documented next?

    def port(self, light, size, files, last):
        """Read the first page

        :param light: name of the table
        :param size: part of the road
        :param →  files, not light, size or last

The next name is the one that follows, in the signature, the last one documented. The twin has fresh
names in the signature and other fresh ones in the docstring, so that nothing follows. (The form is
that of Heimersheim and Janiak, 2023; templates and words are ours.)
'''

from __future__ import annotations

import random
import re
from itertools import product

from headcount.tasks.items import tables
from headcount.tasks.task import Example, Task, Tokenizer
from headcount.tasks.template_tasks import (
    TemplateSettings,
    aligned,
    enough_single_tokens,
    template_task,
)

MIN_NAMES, MIN_WORDS = 24, 8


def docstring(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Which argument is documented next?

    Each example has its own triple of template, function name and summary. Foils are
    the other arguments of the signature. Names, and the words of the descriptions, are one token
    each for the tokenizer at hand.
    """
    data = tables("docstring")
    known = list(dict.fromkeys(data.words("names")))
    names = enough_single_tokens(tokenizer, known, "argument names", "docstring", MIN_NAMES)
    fillers = data.words("words")
    words = enough_single_tokens(tokenizer, fillers, "filler words", "docstring", MIN_WORDS)
    templates = [line.replace(r"\n", "\n") for line in data.lines("templates")]

    def attempt(number: int, content: tuple[str, str], rng: random.Random) -> Example | None:
        (function, summary), pattern = content, templates[number]
        arguments = len(re.findall(r"\{\d\}", pattern))
        documented = pattern.count(":param") - 1
        usable = [name for name in names if name != function]
        drawn = rng.sample(usable, 2 * arguments + documented)
        own, fresh, loose = drawn[:arguments], drawn[arguments:-documented], drawn[-documented:]
        said = dict(zip("wxyz", rng.sample(list(words), 4), strict=True))

        def fill(signature: list[str], described: list[str]) -> str:
            letters = dict(zip("abc", described, strict=False))
            return pattern.format(*signature, function=function, summary=summary, **letters, **said)

        described, (answer, *later) = own[:documented], own[documented:]
        prompt, twin = fill(own, described), fill(fresh, loose)
        if not aligned(tokenizer, names, {prompt: own + described, twin: fresh + loose}):
            return None
        return Example(
            id="",
            prompt=prompt,
            target=f" {answer}",
            foils=tuple(f" {name}" for name in (*described, *later)),
            corrupted=twin,
            template=f"d{number}",
            content=f"{function}/{summary}",
        )

    contents = list(product(data.words("functions"), data.lines("summaries")))
    return template_task("docstring", range(len(templates)), contents, attempt, "name", settings)
