'''Tasks from sentence templates, whose prompts have corrupted prompts of equally many tokens.

Words that are single tokens can be swapped without moving any other token. The forms are published;
templates and words are ours.

IOI, indirect object identification (Wang et al., 2022): two people are named, and one of them gives
something to the other. The answer is the person whose name is not repeated. The corrupted prompt
has three other names, so that no name is the answer. In the long form, two to four sentences
without any person stand in between, and prompts have 40 to 100 tokens:

    Then, Mary and John went to the garden. John gave a lamp to →  Mary, not John

Greater Than: name a year after the start year (Hanna et al., 2023). The corrupted prompt starts in
another year, drawn at random. (It was published with the year 01 throughout: then ablating all
heads by means over corrupted prompts puts a wrong answer in, an early year, instead of none.) The
tokenizer's treatment of digits decides between two forms:

    The siege lasted from the year 1742 to the year 17 →  43, 44, …, 99; not 00, …, 42

    two-digit      "1742" is "17" and "42": all later years are right, the start year and all
                   earlier years are foils
    single-digit   each digit is a token, and the digit of the decade is predicted. All start years
                   are the last of their decade: after 1749, "17" → 5, …, 9 and not 0, …, 4. (After
                   1742 the start decade would be neither: some of its years are later. Models give
                   it most often, so that accuracy would count true answers as wrong.)

Docstring: name the argument that is documented next (Heimersheim and Janiak, 2023). The signature
shows which argument follows the last documented one. The corrupted prompt has other names in the
signature, and different ones in the docstring, so that no argument follows:

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

MAX_DRAWS = 100  # attempts to draw words for one prompt, before the tokenizer is refused

ORDERS = ("ABBA", "BABA")  # A is the answer, the indirect object; B is the giver
MIN_PEOPLE = 10  # an example needs five names; with fewer than ten, names would repeat too often
SHORTEST, LONGEST = 40, 100  # tokens of a long prompt
SAMPLE = {"first": "Mary", "second": "John", "giver": "John", "place": "garden", "object": "lamp"}

CENTURIES = tuple(range(11, 19))
MIN_NOUNS = 8
MIN_STARTS = 20  # start years of a century that must be two tokens of two digits
MIN_CENTURIES = 3

MIN_ARGUMENTS, MIN_WORDS = 24, 8

Form = TypeVar("Form")
Content = TypeVar("Content")


@dataclass(frozen=True)
class TemplateSettings:
    """The number of examples and the seed; a longer task starts with the examples of a shorter."""

    n: int = 200
    seed: int = 0
    bos: Bos = "auto"


# Raised when the examples of a task change, so that stored values are not taken for theirs.
VERSIONS = {"greater-than": 3}


def single_tokens(tokenizer: Tokenizer, texts: Sequence[str], before: str = " ") -> dict[str, int]:
    """The texts that are a single token after `before`, with their ids; each id occurs once."""
    known: dict[str, int] = {}
    for text in texts:
        try:
            ids = continuation_ids(tokenizer, before + text)
        except HeadcountError:  # the tokenizer has no ids for this text
            continue
        if len(ids) == 1 and ids[0] not in known.values():
            known[text] = ids[0]
    return known


def enough_single_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], kind: str, task: str, least: int
) -> dict[str, int]:
    """The words that are single tokens; fewer than `least` are refused."""
    known = single_tokens(tokenizer, texts)
    if len(known) < least:
        raise HeadcountError(
            f"Only {len(known)} of our {len(texts)} {kind} are single tokens for this tokenizer, "
            f"and the task {task} needs {least}: choose another task, or bring your own as a JSON "
            "Lines file."
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
    """Make a task of `n` different pairs of a form and a content; each round uses each form once.

    `attempt` fills a form with a content and with random words (`drawn`: a "name", a "year"). It
    returns None where prompt and corrupted prompt do not align, and is then called again.
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
                f"{key}, because this tokenizer splits a {drawn} differently in different places: "
                "choose another task."
            )
        examples.append(replace(example, id=f"{key}-{number:04d}"))
    return Task(key, VERSIONS.get(key, 1), tuple(examples), bos=settings.bos)


def aligned(
    tokenizer: Tokenizer, ids: Mapping[str, int], texts: Mapping[str, Sequence[str]]
) -> bool:
    """Whether all texts have equally many tokens, and each of their words is a single token."""
    lengths = set()
    for text, words in texts.items():
        tokens = tokenizer.encode(text)
        lengths.add(len(tokens))
        if any(tokens.count(ids[word]) != words.count(word) for word in words):
            return False
    return len(lengths) == 1


def ioi(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Indirect object identification: who was given the object?

    No sentence occurs twice, not even with other names: each example has its own pair of template
    and content (place and object). Templates and orders occur equally often.
    """
    templates = enumerate(tables("ioi").lines("templates"))
    named = {f"t{number:02d}": template for number, template in templates}
    return _giving(tokenizer, "ioi", named, settings)


def ioi_long(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Indirect object identification with two to four neutral sentences in between.

    Templates that have fewer than 40 or more than 100 tokens with this tokenizer are left out.
    """
    named = {
        f"l{number:02d}": template
        for number, template in enumerate(long_templates())
        # Other places and objects may have a few tokens more than the sample's.
        if SHORTEST <= len(tokenizer.encode(template.format_map(SAMPLE))) <= LONGEST - 6
    }
    if not named:
        raise HeadcountError(
            f"With this tokenizer no long prompt has {SHORTEST} to {LONGEST} tokens: choose the "
            "task ioi, or bring your own as a JSON Lines file."
        )
    return _giving(tokenizer, "ioi-long", named, settings)


def long_templates() -> list[str]:
    """One template for each passage; openings and closings repeat in turn."""
    openings, closings = (cycle(tables("ioi").lines(part)) for part in ("openings", "closings"))
    passages = zip(openings, tables("ioi").lines("passages"), closings, strict=False)
    return [" ".join(parts) for parts in passages]


def _giving(
    tokenizer: Tokenizer, key: str, templates: Mapping[str, str], settings: TemplateSettings
) -> Task:
    """The IOI task of the given templates, which are known by their names."""
    data = tables("ioi")
    names = enough_single_tokens(tokenizer, data.words("names"), "names", key, MIN_PEOPLE)

    def attempt(
        form: tuple[int, str], content: tuple[str, str], rng: random.Random
    ) -> Example | None:
        """Fill a template with single-token names, so that the corrupted prompt is as long."""
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

    forms = list(
        product(range(len(templates)), ORDERS)
    )  # the seed of a shuffle contains the template's number
    contents = list(product(data.words("places"), data.words("objects")))
    return template_task(key, forms, contents, attempt, "name", settings)


def greater_than(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Greater Than: name a year after the start year.

    Each example has its own triple of template, noun and century. All later years of the century
    are right, the start and all earlier ones are foils; the target is the next year (or decade)
    that the tokenizer can write.
    """
    data = tables("greater_than")
    digits, answers, starts = _years(tokenizer)
    nouns = enough_single_tokens(tokenizer, data.words("nouns"), "nouns", "greater-than", MIN_NOUNS)
    templates = data.lines("templates")

    def attempt(number: int, content: tuple[str, int], rng: random.Random) -> Example | None:
        noun, century = content
        start, other = rng.sample(starts[century], 2)
        prompt, corrupted = (
            templates[number].format(noun=noun, start=f"{century}{year:02d}", century=century)
            for year in (start, other)
        )
        after = start if digits == 2 else start // 10
        right = [text for number, text in answers.items() if number > after]
        # The nearest year comes first.
        wrong = [text for number, text in reversed(answers.items()) if number <= after]
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
    """The digits of an answer, the answers by their number, and the start years by century.

    Answers have two digits if enough years are two tokens of two digits, else one digit.
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
    }
    starts = {century: years for century, years in starts.items() if len(years) >= MIN_STARTS}
    if len(starts) >= MIN_CENTURIES:
        return 2, {pairs[text]: text for text in ids}, starts
    digits = single_tokens(tokenizer, [str(digit) for digit in range(10)], before="")
    if len(digits) < 10:
        raise HeadcountError(
            "This tokenizer encodes neither years as two tokens of two digits nor digits as single "
            "tokens, so Greater Than has no corrupted prompts that align: choose another task."
        )
    last_years = list(range(19, 90, 10))  # of a decade: no year of the start decade is later
    return 1, {int(text): text for text in digits}, dict.fromkeys(CENTURIES, last_years)


def docstring(tokenizer: Tokenizer, settings: TemplateSettings) -> Task:
    """Docstring: which argument is documented next?

    Each example has its own triple of template, function name and summary. Foils are the other
    arguments of the signature. Argument names and words of descriptions are single tokens.
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
