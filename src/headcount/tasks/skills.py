"""Six small skills, each in two forms: told by an instruction, or shown by solved examples.

After the tasks by which "Causal Head Gating" (Nam et al., NeurIPS 2025) separates instruction
following from learning in context. The items are our own. An instruction says in words what to do,
and solved examples do not:

    instruction   Write the opposite of the word.        in-context   Input: big
                  Word: hot                                           Output: small
                  Opposite: → cold
                                                                      Input: hot
                                                                      Output: → cold

A template is a wording of the instruction, or a frame of the solved examples. A content is a word;
the words that are shown solved are never asked. Both forms of a skill have the same words in their
test splits, because a content's hash decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from headcount.errors import HeadcountError
from headcount.system.files import digest
from headcount.tasks.few_shot import check_shots, task_of
from headcount.tasks.items import tables
from headcount.tasks.task import Bos, Example, Task, Tokenizer, of_task

SKILLS = {
    "antonym": "Antonym",
    "capitalise": "Capitalise",
    "country-capital": "Country-Capital",
    "english-french": "English-French",
    "present-past": "Present-Past",
    "singular-plural": "Singular-Plural",
}
TOLD, SHOWN = "instruction", "in-context"
FORMS = (TOLD, SHOWN)
ASIDE = 12  # words of a skill that are shown solved and never asked


@dataclass(frozen=True)
class ToldSettings:
    """The number of items (0: all), spread over the templates."""

    n: int = 0
    max_new_tokens: int = 8
    bos: Bos = "auto"


@dataclass(frozen=True)
class ShownSettings(ToldSettings):
    """Solved items in front of each item; `draw` chooses others of those that are set aside."""

    shots: int = 5
    draw: int = 0


def skill_task(key: str, form: str, tokenizer: Tokenizer, settings: ToldSettings) -> Task:
    """The task of a skill in one form: each word that is asked, in each template."""
    data, own = tables("skills"), f"{key}-{form}"
    answers = data.pairs(key)
    words = sorted(answers, key=lambda word: digest(f"{key} {word}"))
    aside, asked = words[:ASIDE], words[ASIDE:]
    lines = data.lines(f"{key}, told" if form == TOLD else "frames")
    patterns = [line.replace(r"\n", "\n") for line in lines]

    def front(number: int, word: str) -> str:
        """The solved examples in front of a word, in the frame of its template."""
        if not isinstance(settings, ShownSettings):
            return ""
        drawn = sorted(aside, key=lambda o: digest(f"{settings.draw} {number} {word} {o}"))
        solved = [f"{asking(patterns[number], o)} {answers[o]}" for o in drawn[: settings.shots]]
        return "".join(f"{one}\n\n" for one in solved)

    if isinstance(settings, ShownSettings):
        check_shots(own, settings.shots, ASIDE)
        if not settings.shots:
            raise HeadcountError(
                f"The task {own} shows a skill by solved examples: give it at least one shot."
            )
    examples = [
        Example(
            id=f"{own}-{number}-{word}",
            prompt=front(number, word) + asking(patterns[number], word),
            target=f" {answers[word]}",
            template=f"{own}-{number}",
            content=f"{key}/{word}",
        )
        for number, word in product(range(len(patterns)), asked)
    ]
    return task_of(own, examples, n=settings.n, **of_task(settings))


def asking(pattern: str, word: str) -> str:
    """A pattern with the word in it.

    >>> asking("Say the opposite of {}: the opposite of {} is", "hot")
    'Say the opposite of hot: the opposite of hot is'
    """
    return pattern.replace("{}", word)


def joined(name: str, tasks: Sequence[Task]) -> Task:
    """One task with the examples of several; contents keep their splits."""
    examples = tuple(example for task in tasks for example in task)
    test = frozenset().union(*(task.test_contents for task in tasks))
    return replace(tasks[0], name=name, examples=examples, test_contents=test, parameters={})


def _factory(key: str, form: str) -> Callable[..., Task]:
    factory = partial(skill_task, key, form)
    how = "said by an instruction" if form == TOLD else "shown by solved examples"
    factory.__doc__ = f"{SKILLS[key]}, one of six small skills, {how}."
    return factory


SKILL_TASKS: tuple[tuple[str, str, Callable[..., Task], type[Any]], ...] = tuple(
    (
        f"{key}-{form}",
        f"{name}, {form}",
        _factory(key, form),
        ToldSettings if form == TOLD else ShownSettings,
    )
    for key, name in SKILLS.items()
    for form in FORMS
)
