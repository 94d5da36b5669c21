"""The mean rank of several rankings, which are often wrong about different heads."""

from __future__ import annotations

import numpy as np

from headcount.engine.measure.cost import Counter
from headcount.errors import HeadcountError
from headcount.heads import GOALS, HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.rankings.agreement import ranks
from headcount.rankings.ranking import RANKINGS, Ranking, Settings
from headcount.tasks import Task

USUAL = "ablation+denoising+integrated-gradients"


def ensemble(
    model: Model,
    task: Task,
    *,
    goal: str = "keep",
    metric: str = "logprob",
    ablation: str = "",
    rankings: str = USUAL,
    lab: Lab,
) -> HeadScores:
    """The mean rank of several rankings, joined by "+", from 0 for the last head to 1.

    Each ranking gets the goal, the metric and the ablation, if it has such settings; without an
    ablation, each has its own.
    """
    settings = {"goal": goal, "metric": metric, "ablation": ablation, "rankings": rankings}
    every = [_place(member.result(lab)) for member in _members(model, task, settings)]
    return HeadScores(model.layout, np.mean(every, axis=0), "ensemble")


def _place(scores: HeadScores) -> np.ndarray:
    """The rank of each head, from 0 to 1; for sets of heads, by the order of their scores."""
    return (ranks(scores.values) - 1) / max(scores.layout.total - 1, 1)


def check_ensemble(settings: Settings) -> None:
    """Refuse less than two rankings, unknown ones, and settings that they cannot use."""
    check_goal(settings)
    for name, own in _asked(settings).items():
        RANKINGS[name].bind(**own)


def check_goal(settings: Settings) -> None:
    """Refuse a goal other than "keep" and "mask"."""
    if settings["goal"] not in GOALS:
        raise HeadcountError(
            f'Heads are ranked for the goal "keep" or "mask", not "{settings["goal"]}".'
        )


def count_ensemble(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count every ranking of the ensemble."""
    for member in _members(model, task, settings):
        member.count(counter)


def _members(model: Model, task: Task, settings: Settings) -> list[Ranking]:
    return [Ranking.of(model, task, name, **own) for name, own in _asked(settings).items()]


def _asked(settings: Settings) -> dict[str, dict[str, str]]:
    """The settings of each ranking of the ensemble, by its name."""
    names = [name.strip() for name in str(settings["rankings"]).split("+") if name.strip()]
    if len({*names}) < 2 or "ensemble" in names:
        raise HeadcountError(
            f'An ensemble has two or more other rankings, such as "{USUAL}", not '
            f'"{settings["rankings"]}".'
        )
    given = {name: settings[name] for name in ("goal", "metric", "ablation") if settings[name]}
    return {
        name: {key: value for key, value in given.items() if key in RANKINGS[name].defaults()}
        for name in names
    }
