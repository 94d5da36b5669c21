"""Indirect object identification: who was given the thing?

    Then, Mary and John went to the garden. John gave a lamp to →  Mary, not John

Two people are named, one of them gives the other something. The answer is the person who has not
been named again. The corrupted twin has three fresh names, so that no name is the answer. (The form
is that of Wang et al., 2022; templates, names, places and objects are ours.)
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from headcount.errors import HeadcountError
from headcount.tasks.rounds import rounds
from headcount.tasks.task import Bos, Example, Task
from headcount.tasks.words import MAX_DRAWS, enough_single_tokens, no_twin, single_tokens, words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


# Every name has a space in front of it, so that one look at the tokenizer tells which names serve.
TEMPLATES = (
    "Then, {first} and {second} went to the {place}. {giver} gave a {object} to",
    "When {first} and {second} met at the {place}, {giver} handed a {object} to",
    "After {first} and {second} arrived at the {place}, {giver} offered a {object} to",
    "While {first} and {second} were waiting at the {place}, {giver} passed a {object} to",
    "Last week, {first} and {second} spent a day at the {place}. {giver} gave a {object} to",
    "On Sunday, {first} and {second} walked to the {place}, and {giver} gave a {object} to",
    "The friends {first} and {second} found a {object} at the {place}. {giver} gave it to",
    "Today, {first} and {second} had a talk at the {place}. In the end, {giver} gave a {object} to",
    "Once again, {first} and {second} were alone at the {place}. {giver} showed a {object} to",
    "Early in the morning, {first} and {second} reached the {place}. {giver} handed a {object} to",
    "As soon as {first} and {second} got back from the {place}, {giver} handed a {object} to",
    "At the {place}, {first} and {second} saw a {object}. Then, {giver} handed it to",
    "Because of the rain, {first} and {second} stayed at the {place}. {giver} lent a {object} to",
    "It was late when {first} and {second} left the {place}. {giver} gave a {object} to",
    "Nobody else saw {first} and {second} at the {place}, where {giver} gave a {object} to",
    "We saw {first} and {second} leave the {place}. A moment later, {giver} gave a {object} to",
    "In spring, {first} and {second} worked near the {place}. Then, {giver} promised a {object} to",
    "Two people came to the {place}, {first} and {second}. Later, {giver} gave a {object} to",
    "Each year {first} and {second} meet at the {place}, and each year {giver} gives a {object} to",
    "Before {first} and {second} left for the {place}, {giver} sent a {object} to",
    "After a quarrel at the {place}, {first} and {second} made up, and {giver} gave a {object} to",
    "My cousins {first} and {second} played near the {place}, until {giver} showed a {object} to",
)
ORDERS = ("ABBA", "BABA")  # A is the answer, the indirect object; B gives

PLACES = words("""
    garden library station market school museum beach office kitchen hospital park church theatre
    restaurant bakery farm castle harbour hotel bridge river stadium airport gallery
""")
OBJECTS = words("""
    lamp book letter ring key map ball drum coat hat cup basket watch camera ticket flower cake
    bottle pen picture guitar box necklace blanket
""")
NAMES = words("""
    Mary John Alice Peter Sarah David Emma Daniel Laura James Anna Michael Lucy Robert Helen
    Thomas Julia Simon Karen Paul Susan Kevin Linda Brian Nancy Steven Rachel George Maria Henry
    Alex Andrew Amanda Anthony Andrea Adam Amy Arthur Barbara Ben Betty Carl Carol Charles Charlotte
    Chris Claire Daisy Diana Dan Donald Dorothy Edward Elizabeth Ellen Emily Eric Eva Fred Gary Greg
    Hannah Harry Isabel Jack Jacob Jane Jason Jennifer Jessica Jim Joe Jonathan Joseph Joshua Julie
    Kate Katie Keith Kelly Larry Lee Leo Lily Lisa Louis Luke Margaret Martin Matthew Max Melissa
    Michelle Mike Nathan Nicholas Nick Nicole Oliver Oscar Patricia Patrick Philip Rebecca Richard
    Roger Ruth Ryan Sam Samuel Scott Sean Sophie Stephen Teresa Tim Tom Tony Victor William
""")
MIN_NAMES = 10  # an example takes five, and few names would come back in every prompt


def ioi(
    tokenizer: PreTrainedTokenizerBase, *, n: int = 200, seed: int = 0, bos: Bos = "auto"
) -> Task:
    """Indirect object identification: who was given the thing?

    No sentence comes twice, not even with other names: each of the `n` examples has its own pair
    of template and content (place and object). Templates and orders come round evenly. A longer
    task starts with the examples of a shorter one.
    """
    forms = [(f"t{number:02d}", template) for number, template in enumerate(TEMPLATES)]
    return giving(tokenizer, "ioi", "IOI", forms, n=n, seed=seed, bos=bos)


def giving(
    tokenizer: PreTrainedTokenizerBase,
    key: str,
    label: str,
    templates: Sequence[tuple[str, str]],
    *,
    n: int,
    seed: int,
    bos: Bos,
) -> Task:
    """A task in which somebody gives something to the other one, from named templates."""
    names = enough_single_tokens(tokenizer, NAMES, "names", label, MIN_NAMES)
    most = len(templates) * len(ORDERS) * len(PLACES) * len(OBJECTS)
    if not 1 <= n <= most:
        raise HeadcountError(f"{label} has from 1 to {most} different examples, not {n}.")
    rng = random.Random(f"{key} names {seed}")
    sentences = _sentences(key, seed, templates)
    examples = (
        _example(f"{key}-{i:04d}", *next(sentences), names, rng, tokenizer) for i in range(n)
    )
    return Task(key, 1, tuple(examples), bos=bos)


def single_token_names(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The names that this tokenizer writes as one token when a space stands before them."""
    return single_tokens(tokenizer, NAMES)


def _sentences(
    key: str, seed: int, templates: Sequence[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], str, str, str]]:
    """All (template, order, place, object), shuffled; each template and order once per round."""
    contents = list(product(PLACES, OBJECTS))
    forms = list(product(range(len(templates)), ORDERS))
    for (template, order), content in rounds(key, seed, forms, contents):
        yield templates[template], order, *content


def _example(
    identifier: str,
    template: tuple[str, str],
    order: str,
    place: str,
    thing: str,
    names: dict[str, int],
    rng: random.Random,
    tokenizer: PreTrainedTokenizerBase,
) -> Example:
    """Fill a template with names that stay one token each, so that the twin is equally long."""
    name, pattern = template

    def fill(first: str, second: str, giver: str) -> str:
        return pattern.format(first=first, second=second, giver=giver, place=place, object=thing)

    for _ in range(MAX_DRAWS):
        receiver, giver, *fresh = rng.sample(list(names), 5)
        first, second = (receiver, giver) if order == "ABBA" else (giver, receiver)
        prompt, twin = fill(first, second, giver), fill(*fresh)
        ids, twin_ids = tokenizer.encode(prompt), tokenizer.encode(twin)
        if (
            len(ids) == len(twin_ids)
            and ids.count(names[receiver]) == 1
            and ids.count(names[giver]) == 2
            and all(twin_ids.count(names[name]) == 1 for name in fresh)
        ):
            return Example(
                id=identifier,
                prompt=prompt,
                target=f" {receiver}",
                foils=(f" {giver}",),
                corrupted=twin,
                template=f"{name}-{order}",
                content=f"{place}/{thing}",
            )
    raise no_twin(pattern, "name")
