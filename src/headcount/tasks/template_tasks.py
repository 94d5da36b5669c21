'''Tasks of sentence templates, each prompt with a corrupted prompt of as many tokens.

Words that a tokenizer writes as one token each can be swapped without moving anything else. The
forms are published ones; templates and words are ours.

IOI, indirect object identification (Wang et al., 2022): two people are named, one of them gives the
other something. The answer is the person who has not been named again. The corrupted prompt
has three fresh names, so that no name is the answer. In the long form, two to four
sentences without any person stand in between, so that prompts have 40 to 100 tokens:

    Then, Mary and John went to the garden. John gave a lamp to →  Mary, not John

Greater Than, a year that comes after another one (Hanna et al., 2023). The corrupted
prompt starts in the year 01, after which all years are likely. It has two forms, by what
the tokenizer does to digits:

    The siege lasted from the year 1742 to the year 17 →  43, 44, …, 99; not 00, …, 42

    two-digit      "1742" is "17" and "42": the answers are all later years, the foils the start
                   year and all earlier ones
    single-digit   digits are tokens of their own: the next decade's digit decides, "17" → 5, …, 9
                   and not 0, …, 3; the start decade is neither right nor wrong, since a later year
                   may lie in it

Docstring, the argument that is documented next (Heimersheim and Janiak, 2023): the one that
follows, in the signature, the last one documented. The corrupted prompt has fresh names
in the signature and other fresh ones in the docstring, so that nothing follows:

    def port(self, light, size, files, last):
        """Read the first page

        :param light: name of the table
        :param size: part of the road
        :param →  files, not light, size or last
'''

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from typing import TypeVar

from headcount.errors import HeadcountError
from headcount.tasks.encoding import continuation_ids
from headcount.tasks.items import tables
from headcount.tasks.task import Bos, Example, Task, Tokenizer

MAX_DRAWS = 100  # of words for one prompt and its corrupted prompt, before a tokenizer is given up

ORDERS = ("ABBA", "BABA")  # A is the answer, the indirect object; B gives
MIN_PEOPLE = 10  # an example takes five, and few names would come back in every prompt
SHORTEST, LONGEST = 40, 100  # tokens of a long prompt
SOME = {"first": "Mary", "second": "John", "giver": "John", "place": "garden", "object": "lamp"}

CENTURIES = tuple(range(11, 19))
MIN_NOUNS = 8
MIN_STARTS = 20  # years of a century that a tokenizer must write as two tokens of two digits
MIN_CENTURIES = 3

MIN_ARGUMENTS, MIN_WORDS = 24, 8

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
    None where prompt and corrupted prompt do not align: then it is asked again.
    """
    n, seed, most = settings.n, settings.seed, len(forms) * len(contents)
    if not 1 <= n <= most:
        raise HeadcountError(f"The task {key} has from 1 to {most} different examples, not {n}.")
    draws, rounds = (random.Random(f"{key} {kind} {seed}") for kind in (f"{drawn}s", "rounds"))
    shuffles = (random.Random(f"{key} {seed} {form}") for form in forms)
    decks = [shuffle.sample(contents, len(contents)) for shuffle in shuffles]
    pairs = (
        (forms[number], decks[number][turn])
        for turn in range(len(contents))
        for number in rounds.sample(range(len(forms)), len(forms))
    )
    examples = []
    for number, (form, content) in enumerate(islice(pairs, n)):
        attempts = (attempt(form, content, draws) for _ in range(MAX_DRAWS))
        example = next(filter(None, attempts), None)
        if example is None:
            raise HeadcountError(
                f"Found no corrupted prompt as long as its prompt in {MAX_DRAWS} draws for task "
                f"{key}: this tokenizer writes a {drawn} differently from place to place. Choose "
                "another task."
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


def ioi(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Indirect object identification: who was given the thing?

    No sentence comes twice, not even with other names: each example has its own pair of template
    and content (place and object). Templates and orders come round evenly.
    """
    templates = enumerate(tables("ioi").lines("templates"))
    named = {f"t{number:02d}": template for number, template in templates}
    return _giving(tokenizer, "ioi", named, settings)


def ioi_long(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Indirect object identification with two to four neutral sentences in between.

    Templates that this tokenizer writes with fewer than 40 or more than 100 tokens are left out.
    """
    named = {
        f"l{number:02d}": template
        for number, template in enumerate(long_templates())
        # Other places and objects may take a few tokens more.
        if SHORTEST <= len(tokenizer.encode(template.format_map(SOME))) <= LONGEST - 6
    }
    if not named:
        raise HeadcountError(
            f"This tokenizer writes none of the long prompts with {SHORTEST} to {LONGEST} tokens: "
            "choose the task ioi, or bring yours as a JSON Lines file."
        )
    return _giving(tokenizer, "ioi-long", named, settings)


def long_templates() -> list[str]:
    """One template for each passage; openings and closings come round."""
    openings, closings = (cycle(tables("ioi").lines(part)) for part in ("openings", "closings"))
    passages = zip(openings, tables("ioi").lines("passages"), closings, strict=False)
    return [" ".join(parts) for parts in passages]


def _giving(
    tokenizer: Tokenizer, key: str, templates: Mapping[str, str], settings: TemplateSettings
) -> Task:
    """A task in which somebody gives something to the other one, from named templates."""
    data = tables("ioi")
    names = enough_single_tokens(tokenizer, data.words("names"), "names", key, MIN_PEOPLE)

    def attempt(
        form: tuple[int, str], content: tuple[str, str], rng: random.Random
    ) -> Example | None:
        """Fill a template with names of one token each, so that the corrupted prompt is as long."""
        (number, order), (place, thing) = form, content
        name, pattern = list(templates.items())[number]
        receiver, giver, *fresh = rng.sample(list(names), 5)
        own = [receiver, giver, giver] if order == "ABBA" else [giver, receiver, giver]
        prompt, corrupted = (
            pattern.format(first=first, second=second, giver=last, place=place, object=thing)
            for first, second, last in (own, fresh)
        )
        if not aligned(tokenizer, names, {prompt: own, corrupted: fresh}):
            return None
        return Example(
            id="",
            prompt=prompt,
            target=f" {receiver}",
            foils=(f" {giver}",),
            corrupted=corrupted,
            template=f"{name}-{order}",
            content=f"{place}/{thing}",
        )

    forms = list(product(range(len(templates)), ORDERS))  # their numbers are in the draw
    contents = list(product(data.words("places"), data.words("objects")))
    return template_task(key, forms, contents, attempt, "name", settings)


def greater_than(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """A year that comes after another one.

    Each example has its own triple of template, noun and century. Right answers are all
    later years of that century, foils all earlier ones; the target itself is the nearest later one.
    """
    data = tables("greater_than")
    digits, answers, starts = _years(tokenizer)
    nouns = enough_single_tokens(tokenizer, data.words("nouns"), "nouns", "greater-than", MIN_NOUNS)
    templates = data.lines("templates")

    def attempt(number: int, content: tuple[str, int], rng: random.Random) -> Example | None:
        noun, century = content
        start = rng.choice(starts[century])
        prompt, corrupted = (
            templates[number].format(noun=noun, start=f"{century}{year:02d}", century=century)
            for year in (start, 1)
        )
        after = start if digits == 2 else start // 10
        right = [text for number, text in answers.items() if number > after]
        # Nearest first; the start decade is neither right nor wrong.
        least = after if digits == 2 else after - 1
        wrong = [text for number, text in reversed(answers.items()) if number <= least]
        if not (right and wrong and aligned(tokenizer, {}, {prompt: (), corrupted: ()})):
            return None
        return Example(
            id="",
            prompt=prompt,
            target=right[0],
            foils=tuple(wrong),
            corrupted=corrupted,
            template=f"y{number}",
            content=f"{noun}/{century}",
            also=tuple(right[1:]),
        )

    contents = list(product(nouns, starts))
    forms = range(len(templates))
    return template_task("greater-than", forms, contents, attempt, "year", settings)


def _years(tokenizer: Tokenizer) -> tuple[int, dict[int, str], dict[int, list[int]]]:
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
        if "01" in ids and split(century, "01")  # the corrupted prompt's year
    }
    starts = {century: some for century, some in starts.items() if len(some) >= MIN_STARTS}
    if len(starts) >= MIN_CENTURIES:
        return 2, {pairs[text]: text for text in ids}, starts
    digits = single_tokens(tokenizer, [str(digit) for digit in range(10)], before="")
    if len(digits) < 10:
        raise HeadcountError(
            "This tokenizer writes neither years as two tokens of two digits nor each digit as one "
            "token, so Greater Than has no corrupted prompts that align: choose another task."
        )
    years = list(range(10, 90))
    return 1, {int(text): text for text in digits}, dict.fromkeys(CENTURIES, years)


def docstring(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Which argument is documented next?

    Each example has its own triple of template, function name and summary. Foils are the other
    arguments of the signature. Names, and the words of the descriptions, are one token each.
    """
    data = tables("docstring")
    known = list(dict.fromkeys(data.words("names")))
    names = enough_single_tokens(tokenizer, known, "argument names", "docstring", MIN_ARGUMENTS)
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
        prompt, corrupted = fill(own, described), fill(fresh, loose)
        if not aligned(tokenizer, names, {prompt: own + described, corrupted: fresh + loose}):
            return None
        return Example(
            id="",
            prompt=prompt,
            target=f" {answer}",
            foils=tuple(f" {name}" for name in (*described, *later)),
            corrupted=corrupted,
            template=f"d{number}",
            content=f"{function}/{summary}",
        )

    contents = list(product(data.words("functions"), data.lines("summaries")))
    return template_task("docstring", range(len(templates)), contents, attempt, "name", settings)
