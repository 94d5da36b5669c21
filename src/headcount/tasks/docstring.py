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
from headcount.tasks.task import Bos, Example, Task, Tokenizer
from headcount.tasks.template_tasks import MAX_DRAWS, deal, enough_single_tokens, no_twin

DOCUMENTED = "abc"
MIN_NAMES, MIN_WORDS = 24, 8


def docstring(tokenizer: Tokenizer, *, n: int = 200, seed: int = 0, bos: Bos = "auto") -> Task:
    """Which argument is documented next?

    Each of the `n` examples has its own triple of template, function name and summary. Foils are
    the other arguments of the signature. Names, and the words of the descriptions, are one token
    each for the tokenizer at hand.
    """
    data = tables("docstring")
    known = list(dict.fromkeys(data.words("names")))
    names = enough_single_tokens(tokenizer, known, "argument names", "Docstring", MIN_NAMES)
    fillers = data.words("words")
    words = enough_single_tokens(tokenizer, fillers, "filler words", "Docstring", MIN_WORDS)
    lines = [line.replace(r"\n", "\n") for line in data.lines("templates")]
    templates = [(f"d{number}", line) for number, line in enumerate(lines)]
    contents = list(product(data.words("functions"), data.lines("summaries")))
    rng = random.Random(f"docstring names {seed}")
    pairs = deal("docstring", "Docstring", n, seed, range(len(templates)), contents)
    examples = [
        _example(f"docstring-{number:04d}", templates[form], content, names, words, rng, tokenizer)
        for number, (form, content) in enumerate(pairs)
    ]
    return Task("docstring", 1, tuple(examples), bos=bos)


def _example(
    identifier: str,
    template: tuple[str, str],
    content: tuple[str, str],
    names: dict[str, int],
    words: dict[str, int],
    rng: random.Random,
    tokenizer: Tokenizer,
) -> Example:
    (key, pattern), (function, summary) = template, content
    arguments = len(re.findall(r"\{\d\}", pattern))
    documented = pattern.count(":param") - 1
    usable = [name for name in names if name != function]
    for _ in range(MAX_DRAWS):
        drawn = rng.sample(usable, 2 * arguments + documented)
        own, fresh, loose = drawn[:arguments], drawn[arguments:-documented], drawn[-documented:]
        said = dict(zip("wxyz", rng.sample(list(words), 4), strict=True))

        def fill(signature: list[str], described: list[str], said: dict[str, str] = said) -> str:
            letters = dict(zip(DOCUMENTED, described, strict=False))
            return pattern.format(*signature, function=function, summary=summary, **letters, **said)

        prompt, twin = fill(own, own[:documented]), fill(fresh, loose)
        ids, twin_ids = tokenizer.encode(prompt), tokenizer.encode(twin)
        once = own[documented:]
        if (
            len(ids) == len(twin_ids)
            and all(ids.count(names[name]) == 2 for name in own[:documented])
            and all(ids.count(names[name]) == 1 for name in once)
            and all(twin_ids.count(names[name]) == 1 for name in (*fresh, *loose))
        ):
            answer, *later = once
            return Example(
                id=identifier,
                prompt=prompt,
                target=f" {answer}",
                foils=tuple(f" {name}" for name in (*own[:documented], *later)),
                corrupted=twin,
                template=key,
                content=f"{function}/{summary}",
            )
    raise no_twin(pattern.split("\n")[0], "name")
