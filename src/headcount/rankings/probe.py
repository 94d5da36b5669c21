"""The probe ranking: which heads tell a classifier which function the model is carrying out.

One classifier reads all heads at once, on answer tokens, and names the function (retrieval, maths,
…). A head counts for a function by gradient × feature of that function's logit. This is how the
heads *differ* between functions, not what the answers *need*: hold it against ablation. And since
each feature holds the mean of its layer, a telling head lends some of its score to its neighbours.

This file is about items and scores; the classifier is in `classifier.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.errors import HeadcountError, did_you_mean, unknown
from headcount.heads import HeadLayout, HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.rankings.probe_classifier import Fit, Training, fit
from headcount.rankings.probe_features import Features, answer_features, held_out, one_template_each
from headcount.rankings.ranking import examples_key
from headcount.tasks import FUNCTIONS, TASKS, Task, encode, make_task

LEAST = 5  # items of a function: one in five is held out


@dataclass(frozen=True)
class ProbeSettings(Training):
    """How a probe is made; the other settings are those of its training.

    against         the other functions, separated by commas; all of them unless given
    answers         "generated": the model's own answers, up to a line break; "gold": the targets
    tokens          of an answer: None for all, or the k that surprised the model most
    items           of each function, at most
    max_new_tokens  of a generated answer
    seeds           so many probes, each with its own split, start and order
    unseen          also measure accuracy on templates that were left out of the training
    """

    against: str = ""
    answers: str = "generated"
    tokens: int | str | None = None
    items: int = 100
    max_new_tokens: int = 32
    unseen: bool = False
    seed: int = 0
    seeds: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers not in ("generated", "gold"):
            raise unknown("kind of answers", self.answers, ("generated", "gold"))
        if self.tokens not in (None, "all") and not isinstance(self.tokens, int):
            raise HeadcountError(f"tokens is a whole number, or None for all, not {self.tokens!r}.")
        if isinstance(self.tokens, int) and self.tokens < 1:
            raise HeadcountError(f"A probe reads at least 1 token of an answer, not {self.tokens}.")
        if self.seeds < 1 or self.items < LEAST:
            raise HeadcountError(
                f"A probe needs at least 1 seed and {LEAST} items of each function, not "
                f"{self.seeds} and {self.items}."
            )


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """What a probe found: importance with its sign, for every seed, function and head.

    `confusion` counts held-out items, true function by named one, over all seeds; the accuracies
    are means over seeds. `unseen` is the accuracy on templates left out of the training: None where
    it was not asked for. `dropped` counts items of each function whose answer was empty.
    """

    layout: HeadLayout
    functions: tuple[str, ...]
    importance: Float[np.ndarray, "seeds functions heads"]
    confusion: Int[np.ndarray, "functions named"]
    accuracy: float
    trained: float  # accuracy on what it was trained on
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
    """Train a probe to tell the functions apart, on the ranking parts of their tasks."""
    settings = settings or ProbeSettings()
    if len(tasks) < 2:
        raise HeadcountError("A probe tells functions apart: give it the tasks of at least two.")
    features = answer_features(
        model,
        tasks,
        answers=settings.answers,
        tokens=settings.tokens if isinstance(settings.tokens, int) else None,
        items=settings.items,
        max_new_tokens=settings.max_new_tokens,
        progress=progress,
    )
    return probe_features(features, tuple(tasks), model.layout, settings, progress=progress)


def probe_features(
    features: Features,
    functions: Sequence[str],
    layout: HeadLayout,
    settings: ProbeSettings,
    *,
    progress: bool = True,
) -> ProbeResult:
    """The part of `fit_probe` that needs no model: from head outputs to importance."""
    for number, name in enumerate(functions):
        left = int((features.labels == number).sum())
        contents = {
            c for c, n in zip(features.contents, features.labels, strict=True) if n == number
        }
        if left < LEAST or len(contents) < 2:
            raise HeadcountError(
                f'The probe has {left} items of {len(contents)} contents for "{name}" and needs at '
                f"least {LEAST} of 2: give the task more examples."
            )
    fits: list[Fit] = []
    unseen: list[float] = []
    for seed in range(settings.seed, settings.seed + settings.seeds):
        chosen = held_out(features, seed)
        fits.append(fit(features.sites, features.labels, chosen, settings, seed, show=progress))
        if settings.unseen:
            left_out = one_template_each(features, seed)
            again = fit(features.sites, features.labels, left_out, settings, seed, show=progress)
            unseen.append(again.accuracy)
    return ProbeResult(
        layout,
        tuple(functions),
        np.stack([one.importance for one in fits]),
        np.sum([one.confusion for one in fits], axis=0),
        float(np.mean([one.accuracy for one in fits])),
        float(np.mean([one.trained for one in fits])),
        float(np.mean(unseen)) if unseen else None,
        {name: features.dropped.get(name, 0) for name in functions},
    )


def elbow(values: Float[np.ndarray, "heads"]) -> int:
    """How many heads stand before the elbow of the sorted scores: the K of "cognitive heads".

    The elbow is the point farthest from the chord between the highest and the lowest score. Where
    the curve hangs below the chord, the elbow is the first of the low scores; where it bulges above
    it, the last of the high ones. A straight line has none: 0.

    >>> elbow(np.array([9.0, 0.1, 8.0, 0.2, 0.0, 0.1]))
    2
    """
    curve = np.sort(values)[::-1]
    if len(curve) < 3:
        return 0
    # The distance to the chord is the height above it times a constant.
    height = curve - np.linspace(curve[0], curve[-1], len(curve))
    place = int(np.abs(height).argmax())
    if abs(height[place]) <= 1e-9 * np.abs(curve).max():
        return 0
    return place + int(height[place] > 0)


def probe(model: Model, task: Task, settings: ProbeSettings, *, lab: Lab) -> HeadScores:
    """Gradient × feature of a classifier that tells the cognitive functions by the heads' outputs.

    The task must be a cognitive function. Features are not standardised unless asked for, as
    published.
    """
    tasks = probe_tasks(model, task, settings.against)
    return fit_probe(model, tasks, settings, progress=lab.progress).scores(task.name)


def probe_tasks(model: Model, task: Task, against: str = "") -> dict[str, Task]:
    """The function under test and those that it is told from, each with its task.

    The others are made with the settings of `task`, where they have them, so that prompts differ in
    nothing but the function.
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
    tasks = {task.name: task}
    for name in others:
        known_there = set(TASKS[name].defaults()) - {"n", "shots"}  # a function's own numbers
        shared = {key: value for key, value in task.parameters.items() if key in known_there}
        other = make_task(name, model.tokenizer, **shared)
        tasks[name] = replace(other, bos=task.bos, chat=task.chat)
    return tasks


def probe_context(model: Model, task: Task, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What determines a probe's scores besides the task under test: the items of the others."""
    return {
        name: [other.version, examples_key(encode(other.part("ranking"), model.tokenizer))]
        for name, other in probe_tasks(model, task, parameters["against"]).items()
    }
