"""Rankings by attention patterns: what a head looks at, whatever it does with it.

They need no gate and no metric, and see only half of a head: two heads that look at the same tokens
may write opposite things. So they are descriptions to hold against rankings by effect.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headcount.engine.measure.cost import Counter
from headcount.engine.read.attention import attend
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.models.sites import HeadSite, plain
from headcount.rankings.ranking import Settings, ranking_tokens
from headcount.tasks import Task, encode


def attention_induction(
    model: Model, task: Task, *, length: int = 24, sequences: int = 16, seed: int = 0, lab: Lab
) -> HeadScores:
    """On random tokens said twice, the attention to what followed last time.

    The mean weight that each token of the second copy gives to the token after its first
    occurrence. Of the task only the token in front of its prompts (BOS) is used.
    """
    if length < 2 or sequences < 1:
        raise HeadcountError(
            f"Induction needs at least 1 sequence of at least 2 tokens, not {sequences} of "
            f"{length}."
        )
    # The special token that prompts start with, if any: heads rest their gaze on it.
    start = encode(task.split("ranking"), model.tokenizer)[0].prompt[:1]
    front = start if start[0] in model.tokenizer.all_special_ids else ()
    texts = repeated_tokens(model, length, sequences, seed)
    first = torch.arange(length) + len(front)  # positions of the first copy

    def reduce(site: HeadSite, weights: Tensor, places: Sequence[int]) -> Tensor:
        return weights[:, :, first + length, first + 1].float().mean(-1)

    samples = attend(model, [(*front, *text) for text in texts], reduce, progress=lab.progress)
    return HeadScores.averaged(model.layout, samples, "attention-induction")


def attention_previous(model: Model, task: Task, *, lab: Lab) -> HeadScores:
    """The mean attention of a prompt's tokens to the token right before them."""
    prompts = [one.prompt for one in encode(task.split("ranking"), model.tokenizer)]
    short = sum(len(prompt) < 2 for prompt in prompts)
    if short:
        raise HeadcountError(
            f'{short} of {len(prompts)} prompts of the task "{task.name}" have a single token, '
            "which has none before it: choose a task with longer prompts."
        )

    def reduce(site: HeadSite, weights: Tensor, places: Sequence[int]) -> Tensor:
        return weights.diagonal(-1, 2, 3).float().mean(-1)

    samples = attend(model, prompts, reduce, progress=lab.progress)
    return HeadScores.averaged(model.layout, samples, "attention-previous")


def attention_retrieval(model: Model, task: Task, *, lab: Lab) -> HeadScores:
    """The attention to the answer in the prompt, from the positions that predict it.

    The share of a head's attention that rests on tokens of the answer, wherever the prompt holds
    it, averaged over the positions that predict the target's tokens.
    """
    examples = encode(task.split("ranking"), model.tokenizer)
    places_of_answer = answer_positions(task, model)

    def reduce(site: HeadSite, weights: Tensor, places: Sequence[int]) -> Tensor:
        rows = []
        for row, place in enumerate(places):
            start = len(examples[place].prompt) - 1
            asking = weights[row, :, start:]  # (heads, targets, keys)
            rows.append(asking[..., places_of_answer[place]].float().sum(-1).mean(-1))
        return torch.stack(rows)

    texts = [(*one.prompt, *one.target[:-1]) for one in examples]
    samples = attend(model, texts, reduce, progress=lab.progress)
    return HeadScores.averaged(model.layout, samples, "attention-retrieval")


def count_induction(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Tell the passes over random tokens that are said twice."""
    counter.passes(model, 2 * settings["length"] * settings["sequences"])


def count_retrieval(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Tell one pass; refuses a task whose prompts do not hold their answers."""
    answer_positions(task, model)
    counter.passes(model, ranking_tokens(model, task))


def answer_positions(task: Task, model: Model) -> list[list[int]]:
    """Where each prompt of the ranking split holds its answer's tokens, all times that it does.

    Refuses a task where some prompts do not.
    """
    places = []
    for example in encode(task.split("ranking"), model.tokenizer):
        word, prompt = example.example.target.strip(), example.prompt
        bare = tuple(model.tokenizer.encode(word, add_special_tokens=False))
        held: set[int] = set()
        for answer in {example.target, bare} - {()}:  # after a line break words have no space
            for start in range(len(prompt) - len(answer) + 1):
                if prompt[start : start + len(answer)] == answer:
                    held.update(range(start, start + len(answer)))
        places.append(sorted(held))
    having = sum(map(bool, places))
    if having < len(places):
        raise HeadcountError(
            f'Only {having} of {len(places)} prompts of the task "{task.name}" '
            f"({having / len(places):.0%}) hold their answer's tokens, and retrieval is "
            "attention to them: choose a task in which every prompt holds the answer."
        )
    return places


def repeated_tokens(model: Model, length: int, sequences: int, seed: int) -> list[tuple[int, ...]]:
    """Random tokens of the vocabulary, special ones excluded, each sequence said twice.

    No token comes twice in one copy, so that "what followed last time" has one meaning.
    """
    rows = int(plain(model.module).get_input_embeddings().weight.shape[0])  # type: ignore[operator]
    # Added tokens are roles, tools and the like: no part of running text either.
    added = getattr(model.tokenizer, "added_tokens_decoder", {})
    special = [*model.tokenizer.all_special_ids, *added]
    usable = np.setdiff1d(np.arange(min(rows, len(model.tokenizer))), special)
    if len(usable) < length:
        raise HeadcountError(
            f"The vocabulary has {len(usable)} ordinary tokens, too few for {length} different "
            "ones: ask for a smaller length."
        )
    rng = np.random.default_rng(seed)
    copies = [rng.choice(usable, length, replace=False).tolist() for _ in range(sequences)]
    return [(*copy, *copy) for copy in copies]
