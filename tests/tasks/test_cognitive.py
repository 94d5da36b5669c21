"""From items to tasks: shown items are never asked, foils and corrupted ones fit the tokenizer."""

from __future__ import annotations

import pytest
from tiny_tokenizers import byte_level

from headcount import HeadcountError, make_task
from headcount.tasks import FUNCTIONS, encode, require_corrupted, require_foils
from headcount.tasks.cognitive import DRAWS, MAX_SHOTS, Function, cognitive_task, set_aside
from headcount.tasks.few_shot import shape
from headcount.tasks.items import Item

TOWNS = [f"Town{a}{b}" for a in "abcdefgh" for b in "klmnopqr"]


def items() -> list[Item]:
    """Two forms; the answers are names that the tokenizer knows as one token each."""
    return [
        Item(f"Whose town is {town}?", ("Mary", "John")[place % 2], form, f"{form}/{town}")
        for form in ("ends", "closes")
        for place, town in enumerate(TOWNS)
    ]


FUNCTION = Function("letters", "Letters", "low", 4, items)


def test_the_shape_is_question_and_answer() -> None:
    task = cognitive_task(FUNCTION, byte_level(), shots=2)
    blocks = task.examples[0].prompt.split("\n\n")
    assert len(blocks) == 3
    assert all(block.startswith("Question: Whose town is Town") for block in blocks)
    assert all("\nAnswer: " in block for block in blocks[:2])
    assert blocks[2].endswith("\nAnswer:")
    assert all(example.target[0] == " " for example in task)
    assert cognitive_task(FUNCTION, byte_level(), shots=0).examples[0].prompt.count("Question") == 1


def test_what_is_shown_is_never_asked() -> None:
    aside = set_aside(items())
    assert len(aside) == len(set(aside)) == DRAWS * MAX_SHOTS
    shown = {item.content for item in aside}
    fronts = set()
    for draw in range(DRAWS):
        task = cognitive_task(FUNCTION, byte_level(), shots=4, draw=draw)
        assert not shown & {example.content for example in task}
        assert len(task) == len(items()) - len(aside)
        (front,) = {example.prompt.rsplit("Question:", 1)[0] for example in task}
        fronts.add(front)
    assert len(fronts) == DRAWS  # and no draw has an item of another
    solved = [block for front in fronts for block in front.split("\n\n") if block]
    assert len(set(solved)) == len(solved) == 4 * DRAWS


def test_forms_take_turns_among_the_shown() -> None:
    aside = set_aside(items())
    for draw in range(DRAWS):
        forms = [item.template for item in aside[draw * MAX_SHOTS :][:4]]
        assert sorted(forms) == ["closes", "closes", "ends", "ends"]


def test_which_ones_are_shown_does_not_depend_on_the_order() -> None:
    assert set_aside(items()) == set_aside(items()[::-1])


def test_corrupted_prompts_and_foils_fit() -> None:
    tokenizer = byte_level()
    task = cognitive_task(FUNCTION, tokenizer, shots=2)
    encoded = encode(task, tokenizer)
    require_corrupted(encoded)
    require_foils(encoded, "this test")
    for example in task:
        assert example.corrupted is not None
        assert (
            example.corrupted.rsplit("Question:", 1)[0] == example.prompt.rsplit("Question:", 1)[0]
        )
    again = cognitive_task(FUNCTION, tokenizer, shots=2)
    assert again.examples == task.examples


def test_items_without_a_corrupted_prompt_can_be_left_out() -> None:
    odd = Item("Whose town is the one with a very long name?", "Mary", "ends", "ends/odd")
    function = Function("letters", "Letters", "low", 4, lambda: [*items(), odd])
    whole = cognitive_task(function, byte_level(), shots=2)
    assert [example.content for example in whole if example.corrupted is None] in (
        [odd.content],
        [],
    )
    paired = cognitive_task(function, byte_level(), shots=2, need_corrupted=True)
    assert all(example.corrupted is not None for example in paired)
    assert len(whole) - len(paired) == sum(example.corrupted is None for example in whole)


def test_some_of_the_items() -> None:
    some = cognitive_task(FUNCTION, byte_level(), shots=2, n=20)
    assert len(some) == 20
    whole = cognitive_task(FUNCTION, byte_level(), shots=2)
    assert {example.id for example in some} < {example.id for example in whole}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shots": 13}, "from 0 to 12 shots"),
        ({"shots": 2, "draw": 3}, "draws 0 to 2"),
        ({"shots": 2, "n": 1000}, "or 0 for all"),
        ({"shots": 2, "front": "comon"}, 'Did you mean "common"'),
    ],
)
def test_what_cannot_be_done_is_a_sentence(settings: dict[str, object], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        cognitive_task(FUNCTION, byte_level(), **settings)


@pytest.mark.parametrize("key", FUNCTIONS)
def test_every_function_is_a_task(key: str) -> None:
    task = make_task(key, byte_level(), n=40)
    assert task.name == key
    assert task.parameters["shots"] == FUNCTIONS[key].shots
    assert len(task) == 40
    assert len(task.split("ranking")) >= 10 <= len(task.split("test"))
    assert shape("x") == "Question: x\nAnswer:"
    assert len(make_task(key, byte_level())) >= 200
