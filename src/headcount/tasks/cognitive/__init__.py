"""The eight cognitive functions: one task each, all in the same question-and-answer format.

The functions are those of Ma et al. ("Cognitive Mirrors", NeurIPS 2025); every question here is our
own, under the licence of headcount. The solved questions in front of an item come from items that
are set aside and never asked. There are three fixed draws of solved questions; a task shows the
same draw in front of all its items. With the `common` front, one solved question of each function
stands there: then the prompts of all functions begin alike, and only the question differs.

With the `path` of a CogQA file, a function asks the published sub-questions of its skill instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cache, partial
from typing import Any, Literal, get_args

from headcount.errors import HeadcountError, unknown
from headcount.system.files import digest
from headcount.tasks.cognitive import items
from headcount.tasks.cogqa import CogqaSettings, cogqa_task
from headcount.tasks.few_shot import check_shots, few_shot_task
from headcount.tasks.items import Item
from headcount.tasks.task import Bos, Task, Tokenizer

Front = Literal["own", "common"]
DRAWS = 3
MAX_SHOTS = 12  # the number of items that are set aside for each draw


@dataclass(frozen=True)
class Function:
    """A cognitive function: its name in figures, its level, its number of shots, and its items."""

    key: str
    name: str
    level: Literal["low", "high"]
    shots: int
    items: Callable[[], Sequence[Item]]

    @property
    def factory(self) -> Callable[..., Task]:
        """The task factory of the function."""
        factory = partial(_function_task, self)
        level = f"{self.level} level"
        factory.__doc__ = f"{self.name}, one of the eight cognitive functions ({level})."
        return factory

    @property
    def settings(self) -> type[Any]:
        """The settings of the function's task, with its own number of shots."""
        shots = ("shots", int, field(default=self.shots))
        return make_dataclass("FunctionSettings", [shots], bases=(CognitiveSettings,), frozen=True)


@dataclass(frozen=True)
class CognitiveSettings(CogqaSettings):
    """The settings of a function's own items, and with a `path` of CogQA's sub-questions."""

    draw: int = 0
    front: Front = "own"
    need_corrupted: bool = False
    max_new_tokens: int = 16


def _function_task(function: Function, tokenizer: Tokenizer, settings: Any) -> Task:
    if settings.path:
        return replace(cogqa_task(settings, function.name), name=function.key)
    own = ("n", "shots", "draw", "front", "need_corrupted", "max_new_tokens", "bos")
    return cognitive_task(function, tokenizer, **{name: getattr(settings, name) for name in own})


def cognitive_task(
    function: Function,
    tokenizer: Tokenizer,
    *,
    n: int = 0,
    shots: int,
    draw: int = 0,
    front: Front = "own",
    need_corrupted: bool = False,
    max_new_tokens: int = 16,
    bos: Bos = "auto",
) -> Task:
    """Make the task of a function: `n` items (0: all) with `shots` solved items in front of each.

    The `common` front has one solved item of each of the eight functions instead, whatever `shots`
    says. With `need_corrupted`, items without a corrupted prompt under this tokenizer are left out.
    """
    check_shots(function.key, shots, MAX_SHOTS)
    if front not in get_args(Front):
        raise unknown("front", front, get_args(Front))
    if not 0 <= draw < DRAWS:
        raise HeadcountError(
            f"{function.name} has the draws 0 to {DRAWS - 1}, not {draw}: choose one of these."
        )
    all_items = function.items()
    aside = set_aside(all_items)
    solved = common_front(draw) if front == "common" else aside[draw * MAX_SHOTS :][:shots]
    asked = [(item, solved) for item in all_items if item not in aside]
    own: dict[str, Any] = {"bos": bos, "max_new_tokens": max_new_tokens}
    return few_shot_task(
        function.key, asked, tokenizer, turn, turn, n=n, need_corrupted=need_corrupted, **own
    )


@cache
def common_front(draw: int) -> list[Item]:
    """One solved item of each function, in the order of their keys' digests."""
    ordered = sorted(FUNCTIONS.values(), key=lambda function: digest(function.key))
    return [set_aside(function.items())[draw * MAX_SHOTS] for function in ordered]


def set_aside(items: Sequence[Item]) -> list[Item]:
    """The items that are shown solved, for all draws: forms and answers are used equally often.

    The choice depends on the contents of the items alone.
    """
    left = sorted(items, key=turn)
    forms, answers = Counter[str](), Counter[str]()
    chosen: list[Item] = []
    while left and len(chosen) < DRAWS * MAX_SHOTS:
        item = min(left, key=lambda item: (forms[item.template], answers[item.answer]))
        left.remove(item)
        forms[item.template] += 1
        answers[item.answer] += 1
        chosen.append(item)
    return chosen


def turn(item: Item) -> str:
    """The sort key of an item, which does not change when other items are added."""
    return digest(f"{item.template}/{item.content}")


FUNCTIONS = {
    function.key: function
    for function in (
        Function("retrieval", "Retrieval", "low", 10, items.retrieval),
        Function("knowledge-recall", "Knowledge Recall", "low", 12, items.knowledge),
        Function("semantic", "Semantic Understanding", "low", 12, items.semantic),
        Function("syntactic", "Syntactic Understanding", "low", 6, items.syntactic),
        Function("math", "Math Calculation", "high", 9, items.mathematics),
        Function("inference", "Inference", "high", 6, items.inference),
        Function("logical", "Logical Reasoning", "high", 8, items.logical),
        Function("decision", "Decision-making", "high", 12, items.decision),
    )
}
