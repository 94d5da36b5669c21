"""Factories by name, and the settings that go with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headcount import HeadcountError
from headcount.errors import did_you_mean
from headcount.registry import Factory, Registry, make_settings


@pytest.fixture
def registry() -> Registry[Any]:
    made: Registry[Any] = Registry("ranking", Factory)

    @made.register("walk", "Walking")
    def walk(
        model: object,
        *,
        steps: int = 16,
        speed: float = 1.5,
        back: bool = False,
        where: str = "home",
        dog: object = None,
    ) -> dict[str, Any]:
        """One step after the other.

        And so on.
        """
        return {"steps": steps, "speed": speed, "back": back, "where": where, "dog": dog}

    @made.register("stand", "Standing")
    def stand(model: object) -> dict[str, Any]:
        return {}

    return made


def test_an_entry_knows_its_name_summary_and_settings(registry: Registry[Any]) -> None:
    entry = registry["walk"]
    assert (entry.key, entry.name) == ("walk", "Walking")
    assert entry.summary == "One step after the other."
    assert entry.defaults() == {
        "steps": 16,
        "speed": 1.5,
        "back": False,
        "where": "home",
        "dog": None,
    }
    assert registry["stand"].summary == ""
    assert registry["stand"].defaults() == {}
    assert list(registry) == [entry.key for entry in registry.values()] == ["walk", "stand"]


def test_bound_settings_rebuild_the_object(registry: Registry[Any]) -> None:
    entry = registry["walk"]
    bound = entry.bind(steps=3)
    assert bound == {**entry.defaults(), "steps": 3}
    assert entry.function(None, **bound) == bound


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 3},
        {"steps": np.int64(3)},
        {"speed": 2},
        {"speed": np.float32(2.5)},
        {"back": True},
        {"where": "away"},
        {"where": Path("away")},
        {"dog": "Rex"},
        {"dog": 3},
    ],
)
def test_settings_of_the_right_kind(registry: Registry[Any], settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    bound = registry["walk"].bind(**settings)
    assert bound[name] == (str(value) if name == "where" else value)
    json.dumps(bound)  # plain values, such as a log can hold


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": "many"}, "\"steps\" of walk is a whole number, such as 16, not 'many'"),
        ({"steps": 2.5}, "a whole number"),
        ({"steps": True}, "a whole number"),
        ({"steps": None}, "a whole number"),
        ({"speed": "fast"}, "a number, such as 1.5"),
        ({"back": 1}, "True or False"),
        ({"back": "yes"}, "True or False"),
        ({"where": 3}, "a text, such as 'home'"),
        ({"stesp": 3}, 'no setting "stesp" (it has: steps, speed, back, where, dog). Did you mean'),
        ({"model": 3}, 'no setting "model"'),
    ],
)
def test_settings_of_the_wrong_kind_are_refused(
    registry: Registry[Any], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(HeadcountError) as caught:
        registry["walk"].bind(**settings)
    assert words in str(caught.value)


@dataclass(frozen=True)
class Walk:
    seed: int = 0
    seeds: int = 1
    pace: int = 1

    def __post_init__(self) -> None:
        if self.pace < 1:
            raise HeadcountError("A walk needs a pace.")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": -1}, 'The setting "seed" of tour must be at least 0, not -1.'),
        ({"seed": 2**63}, "must be at most"),
        ({"seeds": -1}, "must be at least 0"),
        ({"seeds": 10**8}, 'The setting "seeds" of tour must be at most 10,000, not 100,000,000.'),
        ({"pace": 0}, "A walk needs a pace."),
        ({"pace": 9}, "No pace of 9."),
    ],
)
def test_values_that_no_factory_can_use_are_refused_when_bound(
    registry: Registry[Any], settings: dict[str, int], words: str
) -> None:
    def check(bound: Mapping[str, Any]) -> None:
        if bound["pace"] == 9:
            raise HeadcountError("No pace of 9.")

    registry.register("tour", "Touring", config=Walk, check=check)(lambda settings: settings)
    assert registry["tour"].bind(seed=2**63 - 1, seeds=10_000)["pace"] == 1
    with pytest.raises(HeadcountError) as caught:
        registry["tour"].bind(**settings)
    assert words in str(caught.value)
    if "pace" not in settings:
        with pytest.raises(HeadcountError):
            make_settings("tour", Walk, settings)


def test_without_settings_there_are_none(registry: Registry[Any]) -> None:
    with pytest.raises(HeadcountError, match=r'stand has no setting "steps" \(it has: none\)'):
        registry["stand"].bind(steps=3)


def test_an_unknown_name_is_refused_with_a_suggestion(registry: Registry[Any]) -> None:
    with pytest.raises(HeadcountError) as caught:
        registry["wlak"]
    assert str(caught.value) == (
        'There is no ranking "wlak" (known: walk, stand). Did you mean "walk"?'
    )
    with pytest.raises(HeadcountError) as caught:
        registry["zebra"]
    assert str(caught.value) == 'There is no ranking "zebra" (known: walk, stand).'


def test_a_name_is_registered_once(registry: Registry[Any]) -> None:
    with pytest.raises(
        HeadcountError,
        match=r'already the ranking "walk", of test_registry\.registry.*choose another name',
    ):
        registry.register("walk", "Again")(dict)
    assert registry["walk"].name == "Walking"


def test_a_function_that_is_defined_again_takes_its_own_place(registry: Registry[Any]) -> None:
    for steps in (1, 2):  # as a cell of a notebook that runs twice

        @registry.register("run", "Running")
        def run(model: object, *, steps: int = steps) -> int:
            return steps

    assert registry["run"].defaults() == {"steps": 2}
    assert run(None) == 2  # the decorator returns the function


@dataclass
class NoDefault:
    steps: int


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Walk far", "Walking"), "cannot have the name 'Walk far': use lower-case letters"),
        (("my/walk", "Walking"), "cannot have the name"),
        (("slow", " "), 'Give the ranking "slow" a title'),
        (("slow", "Slow", dict), "config of the ranking \"slow\" is <class 'dict'>: give a data"),
        (("slow", "Slow", NoDefault), 'field "steps" in the config of the ranking "slow" has no'),
    ],
)
def test_what_cannot_be_registered_is_refused(
    registry: Registry[Any], arguments: tuple[Any, ...], words: str
) -> None:
    key, name, config = (*arguments, None)[:3]
    with pytest.raises(HeadcountError) as caught:
        registry.register(key, name, config=config)(dict)
    assert words in str(caught.value)
    with pytest.raises(HeadcountError, match='Decorate a function for the ranking "slow", not 3'):
        registry.register("slow", "Slow")(3)  # type: ignore[type-var]
    assert list(registry) == ["walk", "stand"]


def test_suggestions_do_not_mind_capitals() -> None:
    assert did_you_mean("Accuracy", ["accuracy", "choice"]) == ' Did you mean "accuracy"?'


def test_entries_are_values() -> None:
    assert Factory("a", "A", dict) == Factory("a", "A", dict)
