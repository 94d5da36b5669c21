from __future__ import annotations

from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.errors import HeadcountError
from headcount.tasks.task import Example, Task, quoted


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let wrong values through to our own words where the package runs under a type checker."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def example(number: int, **fields: object) -> Example:
    return replace(Example(str(number), f"prompt {number}", f" target {number}"), **fields)


def task(*examples: Example) -> Task:
    return Task("toy", 1, examples)


def numbered(contents: list[int]) -> Task:
    return task(*(example(i, content=f"c{content}") for i, content in enumerate(contents)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": ""}, "has an empty prompt"),
        ({"target": ""}, "has an empty target"),
        ({"foils": (" x", "")}, "has an empty foil"),
        ({"foils": (" x", " target 7")}, 'has the foil " target 7", which is its target'),
        ({"corrupted": ""}, "has an empty corrupted prompt"),
        ({"corrupted": "prompt 7"}, "has a corrupted prompt that is equal to its prompt"),
        ({"target": " \ud83d"}, "not valid Unicode"),
        ({"content": "\ud83d"}, "not valid Unicode"),
    ],
)
def test_a_bad_example_is_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(HeadcountError, match='Example "7" of the task "toy"') as error:
        task(example(1), example(7, **fields))
    assert words in str(error.value)


def test_no_examples_and_equal_ids_are_refused() -> None:
    with pytest.raises(HeadcountError, match='"toy" has no examples'):
        task()
    with pytest.raises(HeadcountError, match='two examples with the id "1"'):
        task(example(1), example(2), example(1, prompt="another"))


@pytest.mark.usefixtures("unchecked")
def test_bos_rules() -> None:
    with pytest.raises(HeadcountError, match="not 'maybe'"):
        Task("toy", 1, (example(1),), bos="maybe")  # type: ignore[arg-type]
    with pytest.raises(HeadcountError, match='leave bos at "auto", not "always"'):
        Task("toy", 1, (example(1),), bos="always", chat=True)


def test_a_swapped_name_is_the_same_cluster() -> None:
    mary = Example("0", "Mary waves to", " John", template="waves", content="hill")
    john = replace(mary, id="1", prompt="John waves to", target=" Mary")
    other = replace(mary, id="2", content="lake")
    assert mary.cluster == john.cluster
    elsewhere = replace(mary, id="3", template="nods")  # the same content in another template
    found = task(mary, other, john, elsewhere).clusters
    np.testing.assert_array_equal(found, [[0, 0], [0, 1], [0, 0], [1, 0]])


def test_without_contents_each_prompt_is_its_own() -> None:
    np.testing.assert_array_equal(task(example(1), example(2)).clusters, [[0, 0], [0, 1]])


@given(st.lists(st.integers(0, 30), min_size=2, max_size=60))
def test_the_parts_share_no_content_and_make_up_the_task(contents: list[int]) -> None:
    whole = numbered(contents)
    if len(set(contents)) == 1:
        with pytest.raises(HeadcountError, match="share one content"):
            whole.split("test")
        return
    ranking, test = whole.split("ranking"), whole.split("test")
    assert {e.content for e in ranking}.isdisjoint(e.content for e in test)
    assert {*ranking, *test} == {*whole}
    assert whole.split("all") is whole
    if len(set(contents)) == len(contents):
        assert min(len(ranking), len(test)) >= len(whole) // 4


MORE = numbered(list(range(1001)))


@given(st.sets(st.integers(0, 1000), min_size=60, max_size=90))
def test_an_example_keeps_its_part_whatever_else_there_is(contents: set[int]) -> None:
    some = numbered(sorted(contents))
    assert some.test_contents <= MORE.test_contents
    assert {e.content for e in some.split("ranking")}.isdisjoint(MORE.test_contents)


def test_one_large_content_does_not_empty_a_part() -> None:
    whole = numbered([0] * 50 + [1])
    assert sorted((len(whole.split("ranking")), len(whole.split("test")))) == [1, 50]


def test_parts_are_not_split_again() -> None:
    whole = numbered(list(range(40)))
    test = whole.split("test")
    assert test.split("test") == test
    assert {*whole.subset(20).split("test")} <= {*test}
    with pytest.raises(HeadcountError, match="has no examples in its ranking split"):
        test.split("ranking")


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_split_gets_a_suggestion() -> None:
    with pytest.raises(HeadcountError, match='Did you mean "ranking"'):
        numbered([1, 2]).split("rankin")  # type: ignore[arg-type]


def test_a_part_keeps_everything_else() -> None:
    whole = Task("toy", 3, (example(1), example(2)), {"n": 2}, bos="never")
    part = whole.split("ranking")
    assert (part.name, part.version, part.parameters, part.bos) == ("toy", 3, {"n": 2}, "never")
    assert len(part) == 1


def test_a_subset_spreads_over_the_templates() -> None:
    whole = task(*(example(i, template=f"t{i % 10 if i < 20 else 0}") for i in range(100)))
    ten, twelve, other = whole.subset(10), whole.subset(12), whole.subset(10, seed=1)
    assert {e.template for e in ten} == {f"t{i}" for i in range(10)}
    assert {*ten} < {*twelve}
    assert {*ten} != {*other}
    assert [int(e.id) for e in twelve] == sorted(int(e.id) for e in twelve)
    assert whole.subset(100) == whole


@pytest.mark.parametrize("n", [0, 4, -1])
def test_a_subset_has_1_to_all_examples(n: int) -> None:
    with pytest.raises(HeadcountError, match=rf"Cannot take {n} examples .* it has 3"):
        numbered([1, 2, 3]).subset(n)


def test_long_texts_are_shortened_in_messages() -> None:
    assert quoted("x" * 100) == '"' + "x" * 59 + '…"'
