"""Six small skills, told or shown: the same words in both forms, and no answer given away."""

from __future__ import annotations

from collections import Counter

import pytest
from tasks.tiny_tokenizers import byte_level

from headcount import HeadcountError, make_task
from headcount.tasks.items import tables
from headcount.tasks.skills import ASIDE, SHOWN, SKILLS, TOLD, joined
from headcount.tasks.task import Task

every_skill = pytest.mark.parametrize("skill", SKILLS)


def both(skill: str) -> tuple[Task, Task]:
    told, shown = (make_task(f"{skill}-{form}", byte_level()) for form in (TOLD, SHOWN))
    return told, shown


@every_skill
def test_items_are_enough_single_words(skill: str) -> None:
    answers = tables("skills").pairs(skill)
    assert 55 <= len(answers) <= 70
    for word, answer in answers.items():
        assert word.split() == [word]
        assert answer.split() == [answer]
    assert Counter(answers.values()).most_common(1)[0][1] <= 2


@every_skill
def test_both_forms_ask_the_same_words_and_split_them_alike(skill: str) -> None:
    told, shown = both(skill)
    assert {e.content for e in told} == {e.content for e in shown}
    for task in (told, shown):
        assert len({e.template for e in task}) == 6
        assert len(task) == 6 * len({e.content for e in task})
        assert set(task.split("test").test_contents) == set(told.test_contents)
        share = len(task.split("ranking")) / len(task)
        assert 0.3 < share < 0.7


@every_skill
def test_only_the_shown_form_has_solved_words_and_they_are_never_asked(skill: str) -> None:
    answers = tables("skills").pairs(skill)
    told, shown = both(skill)
    asked = {e.content.split("/")[1] for e in told}
    assert len(answers) - len(asked) == ASIDE
    for example in shown:
        *solved, question = example.prompt.split("\n\n")
        assert len(solved) == 5
        assert len(set(solved)) == 5
        frame = question.replace(example.content.split("/")[1], "{}", 1)
        patterns = {f"{frame.replace('{}', word)} {answers[word]}" for word in answers}
        assert set(solved) <= patterns - {
            f"{frame.replace('{}', word)} {answers[word]}" for word in asked
        }
        assert example.content.split("/")[1] in question
    for example in told:
        assert "\n\n" not in example.prompt
        assert example.prompt[-1] != " "
        # The answer stands in the prompt only where it is a word of the instruction.
        word = example.content.split("/")[1]
        pattern = tables("skills").lines(f"{skill}, told")[int(example.template[-1])]
        assert example.prompt == pattern.replace(r"\n", "\n").replace("{}", word)


def test_the_number_of_solved_words_and_their_draw() -> None:
    tokenizer = byte_level()
    few = make_task("antonym-in-context", tokenizer, shots=2)
    assert {e.prompt.count("\n\n") for e in few} == {2}
    other = make_task("antonym-in-context", tokenizer, shots=2, draw=1)
    assert [e.id for e in other] == [e.id for e in few]
    assert sum(a.prompt != b.prompt for a, b in zip(few, other, strict=True)) > len(few) / 2
    assert len(make_task("antonym-instruction", tokenizer, n=30)) == 30
    for shots, words in ((0, "at least one shot"), (ASIDE + 1, "from 0 to 12 shots, not 13")):
        with pytest.raises(HeadcountError, match=words):
            make_task("antonym-in-context", tokenizer, shots=shots)
    with pytest.raises(HeadcountError, match=r'no setting "shots"'):
        make_task("antonym-instruction", tokenizer, shots=2)


def test_joined_tasks_keep_their_splits() -> None:
    tasks = [both(skill)[1] for skill in ("antonym", "present-past")]
    whole = joined("two", tasks)
    assert len(whole) == sum(map(len, tasks))
    for split in ("ranking", "test"):
        ids = {e.id for task in tasks for e in task.split(split)}  # type: ignore[arg-type]
        assert {e.id for e in whole.split(split)} == ids  # type: ignore[arg-type]
