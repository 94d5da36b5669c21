"""Rankings by attention patterns: which tokens a head attends to, not what it does with them.

They need no gate and no metric, and describe only half of a head: two heads that attend to the same
tokens may write opposite outputs. So compare them with rankings by effect, such as ablation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.engine.measure.cost import Counter
from headcount.engine.read.attention import attend
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.models.sites import HeadSite, plain
from headcount.rankings.ranking import Settings, ranking_tokens
from headcount.tasks import Task
from headcount.tasks.task import quoted


def attention_induction(
    model: Model, task: Task, *, length: int = 24, sequences: int = 16, seed: int = 0, lab: Lab
) -> HeadScores:
    """On repeated random tokens, the attention to the token that followed the first occurrence.

    The score is the mean attention of each token of the second copy to the token after its first
    occurrence. The task only provides the special token in front of its prompts (BOS).
    """
    if length < 2 or sequences < 1:
        raise HeadcountError(
            f"Induction needs at least 1 sequence of at least 2 tokens, not {sequences} of "
            f"{length}."
        )
    # The special token that prompts start with, if any: idle heads attend to it.
    start = model.encode(task.split("ranking"))[0].prompt[:1]
    front = start if start[0] in model.tokenizer.all_special_ids else ()
    texts = repeated_tokens(model, length, sequences, seed)
    first = torch.arange(length) + len(front)  # positions of the first copy

    def reduce(site: HeadSite, weights: Tensor, indices: Sequence[int]) -> Tensor:
        return weights[:, :, first + length, first + 1].float().mean(-1)

    sequences_of_ids = [(*front, *text) for text in texts]
    samples = attend(query_heads_of(model), sequences_of_ids, reduce, progress=lab.progress)
    return HeadScores.averaged(
        model.layout, largest_of_group(model, samples), "attention-induction"
    )


def attention_previous(model: Model, task: Task, *, lab: Lab) -> HeadScores:
    """The mean attention of a prompt's tokens to the token right before them."""
    prompts = [example.prompt for example in model.encode(task.split("ranking"))]
    short = sum(len(prompt) < 2 for prompt in prompts)
    if short:
        raise HeadcountError(
            f'{short} of {len(prompts)} prompts of the task "{task.name}" have a single token, '
            "which has no token before it: choose a task with longer prompts."
        )

    def reduce(site: HeadSite, weights: Tensor, indices: Sequence[int]) -> Tensor:
        return weights.diagonal(-1, 2, 3).float().mean(-1)

    samples = attend(query_heads_of(model), prompts, reduce, progress=lab.progress)
    return HeadScores.averaged(model.layout, largest_of_group(model, samples), "attention-previous")


def attention_retrieval(model: Model, task: Task, *, lab: Lab) -> HeadScores:
    """The attention to the answer in the prompt, from the positions that predict the answer.

    The score is the share of a head's attention on the tokens of the answer, wherever the prompt
    contains it, averaged over the positions that predict the target's tokens.
    """
    examples = model.encode(task.split("ranking"))
    answers = answer_positions(task, model)

    def reduce(site: HeadSite, weights: Tensor, indices: Sequence[int]) -> Tensor:
        rows = []
        for row, index in enumerate(indices):
            start = len(examples[index].prompt) - 1
            predicting = weights[row, :, start:]  # (heads, targets, keys)
            rows.append(predicting[..., answers[index]].float().sum(-1).mean(-1))
        return torch.stack(rows)

    texts = [(*example.prompt, *example.target[:-1]) for example in examples]
    samples = attend(query_heads_of(model), texts, reduce, progress=lab.progress)
    return HeadScores.averaged(
        model.layout, largest_of_group(model, samples), "attention-retrieval"
    )


def query_heads_of(model: Model) -> Model:
    """The model gated by query heads, each of which has one attention pattern."""
    return model.by_query or model


def largest_of_group(
    model: Model, samples: Float[np.ndarray, "samples heads"]
) -> Float[np.ndarray, "samples units"]:
    """The largest score of the query heads of each key/value head; the same without groups."""
    if model.by_query is None:
        return samples
    borders = zip(
        model.layout.counts, np.split(samples, model.by_query.layout.starts[1:], 1), strict=True
    )
    grouped = [of_site.reshape(len(samples), count, -1).max(-1) for count, of_site in borders]
    return np.concatenate(grouped, axis=1)


def count_induction(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the passes over sequences of repeated random tokens."""
    counter.passes(model, 2 * settings["length"] * settings["sequences"])


def count_retrieval(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count one pass; refuse a task whose prompts do not contain their answers."""
    answer_positions(task, model)
    counter.passes(model, ranking_tokens(model, task))


def answer_positions(task: Task, model: Model) -> list[list[int]]:
    """The positions of the answer's tokens in each prompt of the ranking split.

    All occurrences count. Refuses a task with a prompt that does not contain its answer, and one
    with several right answers, since the positions that predict are those of one answer.
    """
    positions = []
    for example in model.encode(task.split("ranking")):
        if example.also:
            raise HeadcountError(
                f"Example {quoted(example.example.id)} has several right answers, and retrieval is "
                "attention to the target alone: choose another ranking, such as attribution."
            )
        word, prompt = example.example.target.strip(), example.prompt
        bare = tuple(model.tokenizer.encode(word, add_special_tokens=False))
        in_prompt: set[int] = set()
        for answer in {example.target, bare} - {()}:  # after a line break a word has no space
            for start in range(len(prompt) - len(answer) + 1):
                if prompt[start : start + len(answer)] == answer:
                    in_prompt.update(range(start, start + len(answer)))
        positions.append(sorted(in_prompt))
    usable = sum(map(bool, positions))
    if usable < len(positions):
        raise HeadcountError(
            f'Only {usable} of {len(positions)} prompts of the task "{task.name}" '
            f"({usable / len(positions):.0%}) hold their answer's tokens, and retrieval is "
            "attention to them: choose a task in which every prompt holds the answer."
        )
    return positions


def repeated_tokens(model: Model, length: int, sequences: int, seed: int) -> list[tuple[int, ...]]:
    """Sequences of random ordinary tokens, each sequence repeated once.

    No token occurs twice in one copy, so that "the token after the first occurrence" is unique.
    """
    rows = int(plain(model.module).get_input_embeddings().weight.shape[0])  # type: ignore[operator]
    # Added tokens mark roles, tools and the like, and do not occur in ordinary text either.
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
