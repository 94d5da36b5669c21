"""The eight cognitive functions, each a task of its own items in one question-and-answer shape.

The functions are those of Ma et al. ("Cognitive Mirrors", NeurIPS 2025); every question here is our
own, and so under the licence of headcount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headcount.tasks.cognitive import (
    decision,
    inference,
    knowledge,
    logical,
    mathematics,
    retrieval,
    semantic,
    syntactic,
)
from headcount.tasks.cognitive.prompt import Function, build
from headcount.tasks.task import Bos, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FUNCTIONS = {
    function.key: function
    for function in (
        Function("retrieval", "Retrieval", "low", 10, retrieval.items),
        Function("knowledge-recall", "Knowledge Recall", "low", 12, knowledge.items),
        Function("semantic", "Semantic Understanding", "low", 12, semantic.items),
        Function("syntactic", "Syntactic Understanding", "low", 6, syntactic.items),
        Function("math", "Math Calculation", "high", 9, mathematics.items),
        Function("inference", "Inference", "high", 6, inference.items),
        Function("logical", "Logical Reasoning", "high", 8, logical.items),
        Function("decision", "Decision-making", "high", 12, decision.items),
    )
}


class _Factory(Protocol):
    def __call__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        n: int = ...,
        shots: int = ...,
        draw: int = ...,
        twins: bool = ...,
        max_new_tokens: int = ...,
        bos: Bos = ...,
    ) -> Task: ...


def factory(function: Function) -> _Factory:
    """The task factory of a function; its settings are those of `build`."""

    def make(
        tokenizer: PreTrainedTokenizerBase,
        *,
        n: int = 0,
        shots: int = function.shots,
        draw: int = 0,
        twins: bool = False,
        max_new_tokens: int = 16,
        bos: Bos = "auto",
    ) -> Task:
        return build(
            function,
            tokenizer,
            n=n,
            shots=shots,
            draw=draw,
            twins=twins,
            max_new_tokens=max_new_tokens,
            bos=bos,
        )

    level = f"{function.level} level"
    make.__doc__ = f"{function.name}, one of the eight cognitive functions ({level})."
    return make
