"""Indirect object identification: who was given the thing?

    Then, Mary and John went to the garden. John gave a lamp to →  Mary, not John

Two people are named, one of them gives the other something. The answer is the person who has not
been named again. The corrupted twin has three fresh names, so that no name is the answer. (The form
is that of Wang et al., 2022; templates, names, places and objects are ours.)

In the long form, two to four sentences without any person stand between the clause that names both
and the one in which something is given, so that prompts have 40 to 100 tokens:

    Last Friday, Mary and John met at the market. The weather was mild … In the end, John gave a
    lamp to →  Mary, not John
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

from headcount.errors import HeadcountError
from headcount.tasks.items import tables
from headcount.tasks.task import Example, Task, Tokenizer
from headcount.tasks.template_tasks import (
    TemplateSettings,
    aligned,
    enough_single_tokens,
    template_task,
)

ORDERS = ("ABBA", "BABA")  # A is the answer, the indirect object; B gives
MIN_NAMES = 10  # an example takes five, and few names would come back in every prompt
SHORTEST, LONGEST = 40, 100  # tokens of a long prompt


def ioi(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Indirect object identification: who was given the thing?

    No sentence comes twice, not even with other names: each example has its own pair of template
    and content (place and object). Templates and orders come round evenly.
    """
    templates = tables("ioi").lines("templates")
    named = [(f"t{number:02d}", template) for number, template in enumerate(templates)]
    return _giving(tokenizer, "ioi", named, settings)


def ioi_long(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Indirect object identification with two to four neutral sentences in between.

    Templates that this tokenizer writes with fewer than 40 or more than 100 tokens are left out.
    """
    named = [
        (f"l{number:02d}", template)
        for number, template in enumerate(long_templates())
        if _fits(tokenizer, template)
    ]
    if not named:
        raise HeadcountError(
            f"This tokenizer writes none of the long prompts with {SHORTEST} to {LONGEST} tokens: "
            "choose the task ioi, or bring yours as a JSON Lines file."
        )
    return _giving(tokenizer, "ioi-long", named, settings)


def long_templates() -> list[str]:
    """One template for each passage; openings and closings come round."""
    openings, closings = tables("ioi").lines("openings"), tables("ioi").lines("closings")
    return [
        f"{openings[number % len(openings)]} {passage} {closings[number % len(closings)]}"
        for number, passage in enumerate(tables("ioi").lines("passages"))
    ]


def _fits(tokenizer: Tokenizer, template: str) -> bool:
    filled = template.format(
        first="Mary", second="John", giver="John", place="garden", object="lamp"
    )
    # Other places and objects may take a few tokens more.
    return SHORTEST <= len(tokenizer.encode(filled)) <= LONGEST - 6


def _giving(
    tokenizer: Tokenizer,
    key: str,
    templates: Sequence[tuple[str, str]],
    settings: TemplateSettings,
) -> Task:
    """A task in which somebody gives something to the other one, from named templates."""
    data = tables("ioi")
    names = enough_single_tokens(tokenizer, data.words("names"), "names", key, MIN_NAMES)

    def attempt(
        form: tuple[int, str], content: tuple[str, str], rng: random.Random
    ) -> Example | None:
        """Fill a template with names that stay one token each, so that the twin is as long."""
        (number, order), (place, thing) = form, content
        name, pattern = templates[number]
        receiver, giver, *fresh = rng.sample(list(names), 5)
        own = [receiver, giver, giver] if order == "ABBA" else [giver, receiver, giver]
        prompt, twin = (
            pattern.format(first=first, second=second, giver=last, place=place, object=thing)
            for first, second, last in (own, fresh)
        )
        if not aligned(tokenizer, names, {prompt: own, twin: fresh}):
            return None
        return Example(
            id="",
            prompt=prompt,
            target=f" {receiver}",
            foils=(f" {giver}",),
            corrupted=twin,
            template=f"{name}-{order}",
            content=f"{place}/{thing}",
        )

    forms = list(product(range(len(templates)), ORDERS))
    contents = list(product(data.words("places"), data.words("objects")))
    return template_task(key, forms, contents, attempt, "name", settings)
