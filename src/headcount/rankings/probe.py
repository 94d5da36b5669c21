"""The probe ranking: from which heads can a classifier tell what the model is doing?

One classifier reads all heads at once, on answer tokens, and predicts the cognitive function
(retrieval, maths, …). A head's score for a function is gradient × feature of that function's logit.
It says how heads *differ* between functions, not which heads the answers *need*: compare it with
ablation. Each head's feature includes the mean of its layer, so an informative head passes some of
its score to the other heads of its layer. The classifier is in `probe_classifier.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from headcount.engine.measure.batch import make_batches
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.forward import measuring, score
from headcount.engine.measure.plan import default_tokens
from headcount.engine.read.collect import collect
from headcount.engine.write.decode import generate
from headcount.errors import HeadcountError, did_you_mean, unknown
from headcount.heads import HeadLayout, HeadScores
from headcount.lab import Lab
from headcount.models.memory import within_memory
from headcount.models.model import Model
from headcount.rankings.probe_classifier import TrainedProbe, Training, train_probe
from headcount.rankings.ranking import Settings, examples_key
from headcount.tasks import FUNCTIONS, TASKS, Encoded, Task, make_task
from headcount.tasks.cognitive import Front

FEWEST_ITEMS = 5  # of each function, because a fifth of them is held out


@dataclass(frozen=True)
class ProbeSettings(Training):
    """Settings of a probe, besides those of its training.

    against         the functions to tell the task's function from, separated by commas (default:
                    all others)
    answers         "generated": the model's own answers, which end as the task says (at a line
                    break); "gold": the targets
    tokens          how many tokens of an answer are read: the k with the highest surprisal, or None
                    for all
    items           the largest number of items of each function
    max_new_tokens  the largest number of tokens of a generated answer
    seeds           how many probes are trained, each with its own split, initial weights and order
    unseen          also measure the accuracy on templates that were left out of the training
    front           "common": the same solved questions stand in front of all functions' items, one
                    of each function, so that nothing but the question tells functions apart; "own":
                    each function's own solved questions, as the task has them
    """

    against: str = ""
    answers: str = "generated"
    tokens: int | str | None = None
    items: int = 100
    max_new_tokens: int = 32
    unseen: bool = True
    front: str = "common"
    seed: int = 0
    seeds: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers not in ("generated", "gold"):
            raise unknown("kind of answers", self.answers, ("generated", "gold"))
        if self.front not in get_args(Front):
            raise unknown("front", self.front, get_args(Front))
        if self.tokens not in (None, "all") and not isinstance(self.tokens, int):
            raise HeadcountError(f"tokens is a whole number, or None for all, not {self.tokens!r}.")
        if isinstance(self.tokens, int) and self.tokens < 1:
            raise HeadcountError(f"A probe reads at least 1 token of an answer, not {self.tokens}.")
        if self.seeds < 1 or self.items < FEWEST_ITEMS:
            raise HeadcountError(
                f"A probe needs at least 1 seed and {FEWEST_ITEMS} items of each function, not "
                f"{self.seeds} and {self.items}."
            )


@dataclass(frozen=True, eq=False)
class Features:
    """The head outputs on each item, and the item's function, content and template."""

    sites: Sequence[Float[np.ndarray, "items _ _"]]  # one array per site: (items, heads, size)
    labels: Int[np.ndarray, "items"]
    contents: tuple[str, ...]
    templates: tuple[str, ...]
    dropped: Mapping[str, int]  # the number of items without an answer, by function


def answer_features(
    model: Model, tasks: Mapping[str, Task], settings: ProbeSettings, *, progress: bool
) -> Features:
    """Each head's output, averaged over the positions of an item's answer tokens."""
    examples: list[Encoded] = []
    labels: list[int] = []
    dropped: dict[str, int] = {}
    for number, (name, task) in enumerate(tasks.items()):
        items = items_of(task, model, settings.items)
        if settings.answers == "generated":
            answered = _answered(model, task, items, settings.max_new_tokens, progress)
            dropped[name] = len(items) - len(answered)
            items = answered
        examples += items
        labels += [number] * len(items)
    if not examples:
        raise HeadcountError(
            'The model answered no item, so a probe has nothing to read: use answers="gold".'
        )
    sequences = [(*item.prompt, *item.target) for item in examples]
    positions: list[Sequence[int]] = [
        range(len(item.prompt), len(item.prompt) + len(item.target)) for item in examples
    ]
    if isinstance(settings.tokens, int):
        surprise = surprisals(model, examples)
        for number, (answer, values) in enumerate(zip(positions, surprise, strict=True)):
            highest = np.sort(np.argsort(-values, kind="stable")[: settings.tokens])
            positions[number] = [answer[int(index)] for index in highest]
    return Features(
        collect(model, sequences, positions, mean=True, progress=progress),
        np.array(labels),
        tuple(item.example.content_id for item in examples),
        tuple(item.example.template for item in examples),
        dropped,
    )


def items_of(task: Task, model: Model, most: int) -> list[Encoded]:
    """The items of a function that a probe reads: at most `most` of the ranking split."""
    split = task.split("ranking")
    return model.encode(split.subset(most) if len(split) > most else split)


def _answered(
    model: Model, task: Task, examples: Sequence[Encoded], new: int, progress: bool
) -> list[Encoded]:
    """The examples with the model's own answers as targets, without those with empty answers."""
    prompts = [example.prompt for example in examples]
    ends: dict[str, Any] = {"stop": task.stop, "until": task.until}
    texts = generate(model, prompts, max_new_tokens=new, progress=progress, **ends)
    answered = []
    for example, text in zip(examples, texts, strict=True):
        ids = list(text.ids)
        while ids and any(stop in model.tokenizer.decode(ids) for stop in task.stop):
            ids.pop()  # the stop string is not part of the answer
        if ids and model.tokenizer.decode(ids).strip():
            own = replace(example, target=tuple(ids), foils=(), corrupted=None, also=())
            answered.append(own)
    return answered


@torch.no_grad()
def surprisals(model: Model, examples: Sequence[Encoded]) -> list[Float[np.ndarray, "targets"]]:
    """−log p of each target token, teacher-forced."""
    by_example: dict[int, Float[np.ndarray, "targets"]] = {}

    def work(tokens: int) -> None:
        for batch in make_batches(examples, tokens=tokens, device=model.device):
            scored = score(model, batch)
            logs = scored.logits.float().log_softmax(-1)  # (rows, targets, vocab)
            picked = logs.gather(-1, scored.targets[..., None])[..., 0]
            rows = (-picked).double().cpu().numpy()
            by_example.update(zip(batch.examples, rows, strict=True))

    longest = max(len(example.prompt) + len(example.target) for example in examples)
    with measuring(model):
        within_memory(model, work, default_tokens(model), longest)
    return [by_example[number] for number in range(len(examples))]


def _by_function(
    features: Features, names: Sequence[str]
) -> Iterator[tuple[Bool[np.ndarray, "items"], list[Bool[np.ndarray, "items"]]]]:
    """Masks of each function's items, and of its items of each name (a content or a template)."""
    for number in np.unique(features.labels):
        own = features.labels == number
        own_names = list(dict.fromkeys(np.array(names)[own]))
        yield own, [own & (np.array(names) == name) for name in own_names]


def held_out(features: Features, seed: int) -> Bool[np.ndarray, "items"]:
    """A random fifth of each function's items; items of one content stay together."""
    rng = np.random.default_rng([seed, 0])
    chosen = np.zeros(len(features.labels), dtype=bool)
    for own, contents in _by_function(features, features.contents):
        for number in rng.permutation(len(contents))[:-1]:  # at least one content is trained on
            if chosen[own].sum() >= max(1, round(own.sum() / 5)):
                break
            chosen |= contents[number]
    return chosen


def one_template_each(features: Features, seed: int) -> Bool[np.ndarray, "items"]:
    """All items of one random template of each function that has several templates."""
    rng = np.random.default_rng([seed, 1])
    chosen = np.zeros(len(features.labels), dtype=bool)
    for _, templates in _by_function(features, features.templates):
        if len(templates) > 1:
            chosen |= templates[rng.integers(len(templates))]
    return chosen


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """The signed importance of each head for each function, by seed, and how accurate the probe is.

    `confusion` counts held-out items by true and predicted function, over all seeds; accuracies are
    means over seeds. `unseen` is the accuracy on templates left out of the training, or None if it
    was not measured, as where no function has two templates. `dropped` counts the items of each
    function whose answer was empty.
    """

    layout: HeadLayout
    functions: tuple[str, ...]
    importance: Float[np.ndarray, "seeds functions heads"]
    confusion: Int[np.ndarray, "functions named"]
    accuracy: float
    trained: float  # accuracy on the items that the probe was trained on
    unseen: float | None
    dropped: Mapping[str, int]

    def scores(self, function: str) -> HeadScores:
        """The scores of one function: mean absolute importance, one sample per seed."""
        if function not in self.functions:
            raise unknown("function of this probe", function, self.functions)
        signed = self.importance[:, self.functions.index(function)]  # (seeds, heads)
        values = np.abs(signed).mean(0)
        facts = {
            "functions": list(self.functions),
            "held_out_accuracy": self.accuracy,
            "training_accuracy": self.trained,
            "unseen_template_accuracy": self.unseen,
            "confusion": self.confusion.tolist(),
            "empty_answers": dict(self.dropped),
            "elbow": elbow(values),
            "signed": signed.mean(0).tolist(),
        }
        return HeadScores(self.layout, values, "probe", parameters=facts, samples=np.abs(signed))


def fit_probe(
    model: Model,
    tasks: Mapping[str, Task],
    settings: ProbeSettings | None = None,
    *,
    progress: bool = True,
) -> ProbeResult:
    """Train a probe to tell the functions apart, on the ranking splits of their tasks."""
    settings = settings or ProbeSettings()
    if len(tasks) < 2:
        raise HeadcountError("A probe tells functions apart: give it the tasks of at least two.")
    features = answer_features(model, tasks, settings, progress=progress)
    return probe_features(features, tuple(tasks), model.layout, settings, progress=progress)


def probe_features(
    features: Features,
    functions: Sequence[str],
    layout: HeadLayout,
    settings: ProbeSettings,
    *,
    progress: bool = True,
) -> ProbeResult:
    """Train the probe on head outputs and compute the importance: `fit_probe` without the model."""
    for number, name in enumerate(functions):
        items = int((features.labels == number).sum())
        contents = set(np.array(features.contents)[features.labels == number])
        if items < FEWEST_ITEMS or len(contents) < 2:
            raise HeadcountError(
                f'The probe has {items} items of {len(contents)} contents for "{name}" and needs '
                f"at least {FEWEST_ITEMS} items of 2 contents: give the task more examples."
            )

    def trained(left_out: Bool[np.ndarray, "items"], seed: int) -> TrainedProbe:
        return train_probe(features.sites, features.labels, left_out, settings, seed, show=progress)

    seeds = range(settings.seed, settings.seed + settings.seeds)
    fits = [trained(held_out(features, seed), seed) for seed in seeds]
    unseen = None
    if settings.unseen and one_template_each(features, settings.seed).any():
        retrained = [trained(one_template_each(features, seed), seed) for seed in seeds]
        unseen = float(np.mean([probe.accuracy for probe in retrained]))
    return ProbeResult(
        layout,
        tuple(functions),
        np.stack([probe.importance for probe in fits]),
        np.sum([probe.confusion for probe in fits], axis=0),
        float(np.mean([probe.accuracy for probe in fits])),
        float(np.mean([probe.trained for probe in fits])),
        unseen,
        {name: features.dropped.get(name, 0) for name in functions},
    )


def elbow(values: Float[np.ndarray, "heads"]) -> int:
    """How many heads come before the elbow of the sorted scores: the number of "cognitive heads".

    The elbow is the point farthest from the chord between the highest and the lowest score. If it
    lies below the chord, it is the first of the low scores, and is not counted; if it lies above,
    it is the last of the high scores, and is counted. A straight line has no elbow: 0 heads.

    >>> elbow(np.array([9.0, 0.1, 8.0, 0.2, 0.0, 0.1]))
    2
    """
    curve = np.sort(values)[::-1]
    if len(curve) < 3:
        return 0
    # The distance to the chord is the height above it times a constant.
    height = curve - np.linspace(curve[0], curve[-1], len(curve))
    farthest = int(np.abs(height).argmax())
    if abs(height[farthest]) <= 1e-9 * np.abs(curve).max():
        return 0
    return farthest + int(height[farthest] > 0)


def probe(model: Model, task: Task, settings: ProbeSettings, *, lab: Lab) -> HeadScores:
    """Gradient × feature of a classifier that predicts the cognitive function from head outputs.

    The task must be a cognitive function. As published, features are not standardised by default.
    """
    tasks = probe_tasks(model, task, settings.against, settings.front)
    return fit_probe(model, tasks, settings, progress=lab.progress).scores(task.name)


def probe_tasks(model: Model, task: Task, against: str = "", front: str = "own") -> dict[str, Task]:
    """The function under test and the functions to tell it from, each with its task.

    The other tasks are made with those settings of `task` that they have as well, so that their
    prompts differ only in the function. With the common front, the examples of `task` get it too.
    """
    known = ", ".join(FUNCTIONS)
    if task.name not in FUNCTIONS:
        raise HeadcountError(
            f'The probe tells cognitive functions apart, and the task "{task.name}" is none '
            f"(known: {known}): choose one of them, or give several tasks to fit_probe."
        )
    others = [name.strip() for name in against.split(",") if name.strip()]
    others = others or [name for name in FUNCTIONS if name != task.name]
    for name in others:
        if name not in FUNCTIONS or name == task.name:
            raise HeadcountError(
                f'"{name}" is no other function to tell {task.name} from (known: {known}).'
                f"{did_you_mean(name, FUNCTIONS)}"
            )
    changes = front != "own" and "front" in TASKS[task.name].defaults()
    settings = {**task.parameters, "front": front} if changes else task.parameters

    def with_settings(name: str) -> Task:
        shareable = set(TASKS[name].defaults()) - {"n", "shots"}  # these differ between functions
        shared = {key: value for key, value in settings.items() if key in shareable}
        made = make_task(name, model.tokenizer, **shared)
        return replace(made, bos=task.bos, chat=task.chat)

    own = task
    if changes:
        again = {example.id: example for example in with_settings(task.name)}
        asked = tuple(again.get(example.id, example) for example in task)
        own = replace(task, examples=asked)
    return {task.name: own, **{name: with_settings(name) for name in others}}


def probe_context(model: Model, task: Task, parameters: Settings) -> dict[str, Any]:
    """What determines a probe's scores besides its own task: the items of the other functions."""
    return {
        name: [other.version, examples_key(model.encode(other.split("ranking")))]
        for name, other in probe_tasks(
            model, task, parameters["against"], parameters["front"]
        ).items()
    }


def count_probe(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the answers to the items of every function, and a pass over each; training is cheap."""
    new = settings["max_new_tokens"] if settings["answers"] == "generated" else 0
    for function in probe_tasks(model, task, settings["against"], settings["front"]).values():
        items = items_of(function, model, settings["items"])
        tokens = sum(len(item.prompt) + new for item in items)
        if new:
            counter.passes(model, tokens, "writing")
        counter.passes(model, tokens)
