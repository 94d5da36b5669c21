"""Two tasks in one planted model: heads that one of them needs, and heads that both need.

    both = plant_two(one=["0.1", "0.5"], two=["2.0", "2.3"], shared=["1.2"])
    both.model, both.one, both.two

    we saw +Ada then and Bob here →  Ada      task one: only heads of `one` and `shared` see "+"
    we saw -Ada then and Bob here →  Ada      task two: only heads of `two` and `shared` see "-"

Each such head writes toward the marked name by STRENGTH, and looks at "we" where it sees no mark,
which says nothing; all other heads write where nothing reads. As in `planted`, "nobody" is the
answer as soon as more than `spare` of a task's heads are gone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from planted import (
    ANSWER,
    NAMES,
    NOBODY,
    ONE,
    SHARPNESS,
    SIZE,
    STRENGTH,
    SUBJECT,
    UNTURNED,
    WIDTH,
    WORDS,
    N,
    plant,
)
from toy import word_tokenizer

from headcount import Example, Head, Task, wrap
from headcount.models.model import Model

FRONTS = ("we saw {mark}{name} then and {other} here", "we and {other} saw {mark}{name}")
SINK = "we"
# Where keys and queries hold the marks: both dimensions of the pair that no position turns.
SEES = {"+": UNTURNED, "-": UNTURNED + SIZE // 2}
# Where the residual stream says that a token is marked, or is the sink; with 8 heads it has room.
MARKED, NO_MARK = {"+": SUBJECT, "-": WIDTH}, WIDTH + 1


@dataclass(frozen=True)
class TwoTasks:
    """A model and the two tasks that it solves."""

    model: Model
    one: Task
    two: Task


def plant_two(
    one: Sequence[str],
    two: Sequence[str],
    shared: Sequence[str] = (),
    *,
    spare: int = 0,
    n: int = 48,
) -> TwoTasks:
    """Plant the heads of both tasks: they need equally many heads, so that they share "nobody"."""
    if len(one) != len(two):
        raise ValueError("both tasks need equally many heads")
    heads, tokenizer = 8, word_tokenizer(WORDS)
    module: Any = plant([*one, *two, *shared], layers=4, heads=heads).model.module
    marks = dict.fromkeys(one, "+") | dict.fromkeys(two, "-") | dict.fromkeys(shared, "+-")
    with torch.no_grad():
        embedding = module.get_input_embeddings().weight  # (vocab, width)
        embedding[:, NOBODY] = (len(one) + len(shared) - spare - 0.5) * STRENGTH
        embedding[:, SUBJECT] = 0
        embedding[tokenizer.convert_tokens_to_ids(SINK), NO_MARK] = 1
        for mark, place in MARKED.items():
            words = tokenizer.convert_tokens_to_ids([f"{mark}{name}" for name in NAMES])
            embedding[words, place] = 1
        for layer, block in enumerate(module.model.layers):
            _see_marks(block.self_attn, layer, marks, heads)
    model = wrap(module, tokenizer, name="two-tasks")
    return TwoTasks(model, task_of_marks("+", n), task_of_marks("-", n))


def _see_marks(attention: Any, layer: int, marks: Mapping[str, str], heads: int) -> None:
    """Let each head of a task look at the marks of its task, and write toward the marked name."""
    width = attention.q_proj.weight.shape[1]
    query = attention.q_proj.weight.view(heads, SIZE, width)
    key = attention.k_proj.weight.view(-1, SIZE, width)
    output = attention.o_proj.weight.view(width, heads, SIZE)
    key.zero_()
    for mark, place in MARKED.items():
        key[:, SEES[mark], place] = SHARPNESS * SIZE**0.5
        key[:, SEES[mark], NO_MARK] = 0.3 * SHARPNESS * SIZE**0.5  # less than any mark, also twice
    for index in range(heads):
        seen = marks.get(str(Head(layer, index)), "")
        query[index].zero_()
        for mark in seen:
            query[index, SEES[mark], ONE] = 1
        if seen:
            output[ANSWER, index, :N] = STRENGTH * torch.eye(N)


def task_of_marks(mark: str, n: int) -> Task:
    """Prompts with one marked name, which is the answer, and another name."""
    rng = random.Random(f"marks {mark}")
    examples = []
    for number in range(n):
        name, other = rng.sample(NAMES, 2)
        examples.append(
            Example(
                id=f"{mark}{number}",
                prompt=FRONTS[number % len(FRONTS)].format(mark=mark, name=name, other=other),
                target=f" {name}",
                foils=(f" {other}",),
                template=f"t{number % len(FRONTS)}",
                content=f"{number // len(FRONTS)}",
            )
        )
    return Task(f"marked {mark}", 1, tuple(examples))
