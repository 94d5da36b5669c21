"""Items of the tasks of the study head-roles, all our own, made from data files.

Syntax has six small operations on words and sentences. The skills follow the published study (which
takes them from BIG-Bench). No phrase occurs twice in a form; the subjects repeat in turn:

    agreement   I walk to the market. What does the farmer do? → The farmer walks to the market.
    tense       Put into the past tense: Today I open the box. → Yesterday I opened the box.
    plural      What is the plural of city? → cities
    pronoun     Who did the queen teach, if nobody else? → The queen taught herself.
    question    Turn this sentence into a question: The doctor is late. → Is the doctor late?
    negation    Make this sentence negative: The driver was late. → The driver was not late.

Common Sense asks about everyday things; the text of the answer is the target. Each question has
four wrong options: answers of other questions of its form, without those that could be right too:

    What do you use to cut paper? → scissors          What kind of thing is a robin? → bird

Math has word problems whose target is a whole worked solution. Each kind of problem draws numbers
for every item, and its steps are computed from them. The content is the kind, the thing and the
numbers; within a kind, no numbers occur twice. The people repeat in turn and are not part of the
content:

    Anna has 12 pens. She buys 5 more pens. How many pens does Anna have?
        →  Anna has 12 + 5 = 17 pens. The answer is 17.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, cycle

from headcount.system.files import digest
from headcount.tasks.items import Item, tables
from headcount.tasks.word_forms import irregular, past, plural, third_person

Forms = Iterator[tuple[str, str, str, str]]  # form, content, question, answer
REGULAR_PLURALS = 110  # regular nouns, besides all irregular ones
VERBS_PER_PERSON = 6
WRONG = 4  # wrong options of a question of Common Sense
PER_KIND = 42  # Math problems of each kind
MOST = 150  # the largest result of a Math problem


def syntax_items() -> list[Item]:
    """The items of Syntax, form by form."""
    return [
        Item(question, answer, form, f"{form}/{content}")
        for forms in (_of_phrases, _of_words, _of_predicates)
        for form, content, question, answer in forms()
    ]


def _of_phrases() -> Forms:
    phrases, people = tables("syntax").phrases("phrases"), tables("syntax").words("people")
    for number, (phrase, person) in enumerate(zip(phrases, cycle(people), strict=False)):
        verb, rest = phrase.split(" ", 1)
        if number % 2:
            subject, do = plural(person), "do"
        else:
            subject, do, verb = person, "does", third_person(verb)
        question = f"I {phrase}. What {do} the {subject} do?"
        yield "agreement", phrase, question, f"The {subject} {verb} {rest}."
    for phrase in phrases:
        verb, rest = phrase.split(" ", 1)
        question = f"Put into the past tense: Today I {phrase}."
        yield "tense", phrase, question, f"Yesterday I {past(verb)} {rest}."


def _of_words() -> Forms:
    nouns = tables("word_forms").words("nouns")[:REGULAR_PLURALS]
    for word, answer in ({noun: plural(noun) for noun in nouns} | irregular("plurals")).items():
        yield "plural", word, f"What is the plural of {word}?", answer
    data = tables("syntax")
    verbs = data.words("done to")
    pronouns = ("himself", "herself", "themselves")
    people = [(person, pronoun) for pronoun in pronouns for person in data.words(pronoun)]
    for number, (person, pronoun) in enumerate(people):
        for turn in range(
            VERBS_PER_PERSON
        ):  # verbs 0, 3, 6, …; the next person starts one verb later
            verb = verbs[(number + 3 * turn) % len(verbs)]
            question = f"Who did the {person} {verb}, if nobody else?"
            answer = f"The {person} {past(verb)} {pronoun}."
            yield "pronoun", f"{person}/{verb}", question, answer


def _of_predicates() -> Forms:
    predicates, people = tables("syntax").phrases("predicates"), tables("syntax").words("people")
    for predicate, person in zip(predicates, cycle(people), strict=False):
        verb, rest = predicate.split(" ", 1)
        question = f"Turn this sentence into a question: The {person} {predicate}."
        yield "question", predicate, question, f"{verb.capitalize()} the {person} {rest}?"
    for predicate, person in zip(predicates, cycle(people[::-1]), strict=False):
        verb, rest = predicate.split(" ", 1)
        question = f"Make this sentence negative: The {person} {predicate}."
        denied = "cannot" if verb == "can" else f"{verb} not"
        yield "negation", predicate, question, f"The {person} {denied} {rest}."


def common_sense_items() -> list[Item]:
    """The items of Common Sense, form by form."""
    items = []
    for form, question in tables("common_sense").pairs("questions").items():
        rows = tables("common_sense").rows(form)
        for answer, clues in rows.items():
            alike = too_near(form, answer)
            others = [other for other in rows if other not in alike]
            for clue in clues:
                wrong = sorted(others, key=lambda other: digest(f"{form}\0{clue}\0{other}"))[:WRONG]
                content = f"{form}/{clue}"
                items.append(Item(question.format(clue=clue), answer, form, content, tuple(wrong)))
    return items


def too_near(form: str, answer: str) -> set[str]:
    """The answers that could also be right where `answer` is right, and `answer` itself.

    >>> sorted(too_near("colour", "blue"))
    ['blue', 'green']
    """
    groups = [line.split("; ") for line in tables("common_sense").lines(f"alike {form}")]
    return {answer}.union(*(group for group in groups if answer in group))


@dataclass(frozen=True)
class ProblemKind:
    """A kind of problem; its question and steps have {fields} for names, things and numbers."""

    key: str
    column: str
    ranges: tuple[range, ...]
    question: str
    steps: str


def problem_kinds() -> list[ProblemKind]:
    """Read the kinds of problems from their data file."""
    kinds = []
    for line in tables("arithmetic").lines("kinds"):
        key, column, limits, question, steps = re.split(r" \(|; |\) | → ", line)
        bounds = [limit.split("-") for limit in limits.split(", ")]
        ranges = tuple(range(int(low), int(high) + 1) for low, high in bounds)
        kinds.append(ProblemKind(key, column, ranges, question, steps))
    return kinds


def arithmetic_items() -> list[Item]:
    """The items of Math, kind by kind."""
    return [item for kind in problem_kinds() for item in _of_kind(kind)]


def _of_kind(kind: ProblemKind) -> list[Item]:
    """Items of one kind with different numbers; things and people repeat in turn."""
    rng = random.Random(f"arithmetic {kind.key}")
    things, people = tables("arithmetic").words(kind.column), tables("arithmetic").words("people")
    by_numbers: dict[tuple[int, ...], Item] = {}
    turns = count(rng.randrange(100))
    while len(by_numbers) < PER_KIND:
        drawn = tuple(rng.choice(limits) for limits in kind.ranges)
        numbers = dict(zip("abc", drawn, strict=False))
        steps = results(kind.steps, numbers)
        if drawn in by_numbers or len(set(drawn)) < len(drawn) or steps is None:
            continue
        turn = next(turns)
        whole = things[turn % len(things)]
        box, _, thing = whole.rpartition("/")
        name, she = people[turn % len(people)].split("/")
        words = {"name": name, "she": she, "box": box, "thing": thing, **numbers, **steps}
        answer = f"{kind.steps.format(**words)} The answer is {[*steps.values()][-1]}."
        content = "/".join((kind.key, whole, *map(str, drawn)))
        by_numbers[drawn] = Item(kind.question.format(**words), answer, kind.key, content)
    return list(by_numbers.values())


def results(steps: str, numbers: dict[str, int]) -> dict[str, int] | None:
    """The result of each step; None where a result is not whole, too small or too large.

    >>> results("There are {a} x {b} = {x} eggs. Then {x} - {c} = {y}", {"a": 4, "b": 6, "c": 5})
    {'x': 24, 'y': 19}
    """
    known = dict(numbers)
    for left, sign, right, name in re.findall(r"\{(\w)\} ([-+x/]) \{(\w)\} = \{(\w)\}", steps):
        a, b = known[left], known[right]
        if sign == "/" and a % b:
            return None
        known[name] = {"+": a + b, "-": a - b, "x": a * b, "/": a // b}[sign]
        if not 2 <= known[name] <= MOST:
            return None
    return {name: value for name, value in known.items() if name not in numbers}
