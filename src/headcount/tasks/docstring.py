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
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from headcount.errors import HeadcountError
from headcount.tasks.rounds import rounds
from headcount.tasks.task import Bos, Example, Task
from headcount.tasks.words import MAX_DRAWS, enough_single_tokens, no_twin, words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Signature and docstring: the names of the signature are {0}, {1}, …, those that are documented
# {a}, {b}, …; every one of them has a space in front of it.
TEMPLATES = (
    (
        4,
        'def {function}(self, {0}, {1}, {2}, {3}):\n    """{summary}\n\n'
        "    :param {a}: {w} {x}\n    :param {b}: {y} {z}\n    :param",
    ),
    (
        4,
        'def {function}(data, {0}, {1}, {2}, {3}):\n    """{summary}\n\n'
        "    :param {a}: the {w} of the {x}\n    :param {b}: the {y}\n    :param",
    ),
    (
        5,
        'def {function}(self, {0}, {1}, {2}, {3}, {4}):\n    """{summary}.\n\n'
        "    :param {a}: {w} {x}\n    :param {b}: {y} {z}\n    :param",
    ),
    (
        5,
        'async def {function}(self, {0}, {1}, {2}, {3}, {4}):\n    """{summary}\n\n'
        "    :param {a}: {w}\n    :param {b}: {x}\n    :param {c}: {y}\n    :param",
    ),
    (
        4,
        'def {function}(self, {0}, {1}, {2}, {3}):\n    """\n    {summary}.\n\n'
        "    :param {a}: {w} of {x}\n    :param {b}: {y} of {z}\n    :param",
    ),
    (
        5,
        'def {function}(text, {0}, {1}, {2}, {3}, {4}):\n    """{summary}\n\n'
        "    :param {a}: a {w} {x}\n    :param {b}: a {y} {z}\n    :param",
    ),
)
SUMMARIES = (
    "Read the first page",
    "Find the right place",
    "Make a short list",
    "Send the whole thing",
    "Move to the next line",
    "Count the open doors",
    "Show the last result",
    "Keep the old values",
    "Draw a simple picture",
    "Check the new order",
    "Build a small house",
    "Cut the long text",
)
FUNCTIONS = words("""
    port load call build find make send move count show keep draw check cut open read write start
    stop run get set add put
""")
# What a description says means nothing; what arguments are called are names like any other.
WORDS = words("""
    name part road table garden river animal letter winter music paper window number bottle
    village island forest student engine kitchen mountain summer morning history colour army
    market doctor teacher
""")
NAMES = words("""
    light size files last image angle point weight level path model index value group field state
    mode event user item shape speed depth width height length order color style title label note
    date time year month day code key file line page node root base rate step scale limit range
    start end left right top bottom center target source input output result test train score rank
    match rule role plan task job team game player world city country language word text format
    version type class object method module package system device server client host port address
    domain query record column row block chunk buffer queue stack tree graph edge path map filter
    kernel layer unit cell grid frame scene camera sound voice signal noise power energy force mass
    water fire wind stone metal wood glass gold silver
""")
DOCUMENTED = "abc"
MIN_NAMES, MIN_WORDS = 24, 8


def docstring(
    tokenizer: PreTrainedTokenizerBase, *, n: int = 200, seed: int = 0, bos: Bos = "auto"
) -> Task:
    """Which argument is documented next?

    Each of the `n` examples has its own triple of template, function name and summary. Foils are
    the other arguments of the signature. Names, and the words of the descriptions, are one token
    each for the tokenizer at hand.
    """
    known = dict.fromkeys(NAMES)
    names = enough_single_tokens(tokenizer, list(known), "argument names", "Docstring", MIN_NAMES)
    fillers = enough_single_tokens(tokenizer, WORDS, "filler words", "Docstring", MIN_WORDS)
    most = len(TEMPLATES) * len(FUNCTIONS) * len(SUMMARIES)
    if not 1 <= n <= most:
        raise HeadcountError(f"Docstring has from 1 to {most} different examples, not {n}.")
    rng = random.Random(f"docstring names {seed}")
    sentences = _sentences(seed)
    examples = (
        _example(i, *next(sentences), names, list(fillers), rng, tokenizer) for i in range(n)
    )
    return Task("docstring", 1, tuple(examples), bos=bos)


def _sentences(seed: int) -> Iterator[tuple[int, str, str]]:
    """All (template, function, summary), shuffled; each template once per round."""
    contents = list(product(FUNCTIONS, SUMMARIES))
    for template, content in rounds("docstring", seed, range(len(TEMPLATES)), contents):
        yield template, *content


def _example(
    index: int,
    template: int,
    function: str,
    summary: str,
    names: dict[str, int],
    fillers: list[str],
    rng: random.Random,
    tokenizer: PreTrainedTokenizerBase,
) -> Example:
    arguments, pattern = TEMPLATES[template]
    documented = pattern.count(":param") - 1
    usable = [name for name in names if name != function]
    for _ in range(MAX_DRAWS):
        drawn = rng.sample(usable, 2 * arguments + documented)
        own, fresh, loose = drawn[:arguments], drawn[arguments:-documented], drawn[-documented:]
        said = dict(zip("wxyz", rng.sample(fillers, 4), strict=True))

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
                id=f"docstring-{index:04d}",
                prompt=prompt,
                target=f" {answer}",
                foils=tuple(f" {name}" for name in (*own[:documented], *later)),
                corrupted=twin,
                template=f"d{template}",
                content=f"{function}/{summary}",
            )
    raise no_twin(pattern.split("\n")[0], "name")
