"""Head outputs on answer tokens: what the probe reads, and how it is split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from headcount.engine.measure.batch import make_batches
from headcount.engine.measure.forward import measuring, score
from headcount.engine.measure.plan import default_tokens
from headcount.engine.read.collect import collect
from headcount.engine.write.decode import generate
from headcount.errors import HeadcountError
from headcount.models.memory import within_memory
from headcount.models.model import Model
from headcount.tasks import Encoded, Task, encode

STOP = "\n"  # ends a generated answer


@dataclass(frozen=True, eq=False)
class Features:
    """One item per row: each site's head outputs, the item's function, content and template."""

    sites: Sequence[Float[np.ndarray, "items _ _"]]  # (items, heads, size) at each site
    labels: Int[np.ndarray, "items"]
    contents: tuple[str, ...]
    templates: tuple[str, ...]
    dropped: Mapping[str, int]  # items without an answer, by function


def answer_features(
    model: Model,
    tasks: Mapping[str, Task],
    *,
    answers: str,
    tokens: int | None,
    items: int,
    max_new_tokens: int,
    progress: bool,
) -> Features:
    """Each head's output, averaged over the positions that consume an item's answer tokens."""
    examples: list[Encoded] = []
    labels: list[int] = []
    dropped: dict[str, int] = {}
    for number, (name, task) in enumerate(tasks.items()):
        part = task.part("ranking")
        part = part.subset(items) if len(part) > items else part
        some = encode(part, model.tokenizer)
        if answers == "generated":
            asked = len(some)
            some = _answered(model, some, max_new_tokens, progress)
            dropped[name] = asked - len(some)
        examples += some
        labels += [number] * len(some)
    if not examples:
        raise HeadcountError(
            "The model gave no answer to any item, so a probe has nothing to read."
        )
    sequences = [(*one.prompt, *one.target) for one in examples]
    answered = [range(len(one.prompt), len(one.prompt) + len(one.target)) for one in examples]
    positions: list[Sequence[int]] = list(answered)
    if tokens is not None:
        surprise = surprisals(model, examples)
        for place, (where, values) in enumerate(zip(answered, surprise, strict=True)):
            best = np.sort(np.argsort(-values, kind="stable")[:tokens])
            positions[place] = [where[int(index)] for index in best]
    return Features(
        collect(model, sequences, positions, mean=True, progress=progress),
        np.array(labels),
        tuple(one.example.content_id for one in examples),
        tuple(one.example.template for one in examples),
        dropped,
    )


def _answered(model: Model, examples: Sequence[Encoded], new: int, progress: bool) -> list[Encoded]:
    """The examples with the model's own answers for targets, less those it says nothing to."""
    prompts = [one.prompt for one in examples]
    texts = generate(model, prompts, max_new_tokens=new, stop=STOP, progress=progress)
    found = []
    for one, text in zip(examples, texts, strict=True):
        ids = list(text.ids)
        while ids and STOP in model.tokenizer.decode(ids):
            ids.pop()  # the end of the answer is no part of it
        if ids and model.tokenizer.decode(ids).strip():
            found.append(replace(one, target=tuple(ids), foils=(), corrupted=None, also=()))
    return found


def held_out(features: Features, seed: int) -> Bool[np.ndarray, "items"]:
    """A fifth of each function's items, by whole contents, drawn by the seed."""
    rng = np.random.default_rng([seed, 0])
    chosen = np.zeros(len(features.labels), dtype=bool)
    contents = np.array(features.contents)
    for number in np.unique(features.labels):
        own = features.labels == number
        names = list(dict.fromkeys(contents[own]))
        for place in rng.permutation(len(names))[:-1]:  # at least one content is left
            if chosen[own].sum() >= max(1, round(own.sum() / 5)):
                break
            chosen |= own & (contents == names[place])
    return chosen


def one_template_each(features: Features, seed: int) -> Bool[np.ndarray, "items"]:
    """All items of one template of every function that has several, drawn by the seed."""
    rng = np.random.default_rng([seed, 1])
    chosen = np.zeros(len(features.labels), dtype=bool)
    templates = np.array(features.templates)
    for number in np.unique(features.labels):
        own = features.labels == number
        names = list(dict.fromkeys(templates[own]))
        if len(names) > 1:
            chosen |= own & (templates == names[rng.integers(len(names))])
    if not chosen.any():
        raise HeadcountError(
            "No function has two templates, so that none can be left out of the training: leave "
            "unseen at False."
        )
    return chosen


@torch.no_grad()
def surprisals(model: Model, examples: Sequence[Encoded]) -> list[Float[np.ndarray, "targets"]]:
    """−log p of each target token, teacher-forced."""
    found: dict[int, Float[np.ndarray, "targets"]] = {}

    def work(tokens: int) -> None:
        for batch in make_batches(examples, tokens=tokens, device=model.device):
            scored = score(model, batch)
            logs = scored.logits.float().log_softmax(-1)  # (rows, targets, vocab)
            picked = logs.gather(-1, scored.targets[..., None])[..., 0]
            rows = (-picked).double().cpu().numpy()
            found.update(zip(batch.examples, rows, strict=True))

    longest = max(len(one.prompt) + len(one.target) for one in examples)
    with measuring(model):
        within_memory(model, work, default_tokens(model), longest)
    return [found[place] for place in range(len(examples))]
