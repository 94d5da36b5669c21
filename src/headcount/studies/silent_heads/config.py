"""The settings of the study `silent-heads`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.registry import setting

# Scores of activity, and their names in figures.
SCORES = {
    "relative-norm": "layer-relative norm",
    "output-norm": "output norm",
    "first-token": "first-token attention",
    "value-norm": "first-token value",
    "entropy": "attention entropy",
    "written": "write share (ours)",
}
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "tasks": ("common-sense", "ioi", "docstring"),
        "shares": (5, 13, 30, 50),
        "n": 24,
        "ranked": 24,
        "seeds": 2,
    },
    "full": {},
}


@dataclass(frozen=True)
class Config:
    """Score against the share of heads zeroed, chosen for each input by a score of activity.

    Thresholds are fixed on the ranking split, over all its prompts and heads, and applied to the
    test split.
    """

    tasks: tuple[str, ...] = setting(
        ("common-sense", "syntactic", "inference", "ioi", "greater-than", "docstring"),
        "tasks with wrong answers to choose from, or files of them",
    )
    scores: tuple[str, ...] = setting(
        tuple(SCORES),
        f"scores of activity, of {', '.join(SCORES)}; the first is compared with all others and "
        "with the controls",
    )
    shares: tuple[int, ...] = setting(
        (2, 5, 10, 13, 20, 30, 50), "percentages of all heads that thresholds are to zero"
    )
    seeds: int = setting(3, "random draws of each control")
    n: int = setting(150, "test prompts of each task")
    ranked: int = setting(100, "ranking prompts of each task, on which thresholds are fixed")
    pool: int = setting(600, "prompts that tasks without a fixed number of them are made of")
    task_settings: Mapping[str, Any] | None = setting(None, "settings of the tasks")

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        if not self.tasks or not self.scores or not self.shares:
            raise HeadcountError("silent-heads needs at least one task, one score and one share.")
        for score in self.scores:
            if score not in SCORES:
                raise unknown("score of activity", score, SCORES)
        for share in self.shares:
            if not isinstance(share, int) or not 0 < share < 100:
                raise HeadcountError(
                    f"Shares are whole percentages between 0 and 100, not {share}: with all heads "
                    "zeroed there is nothing to choose."
                )
        for name in ("tasks", "scores", "shares"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise HeadcountError(f"silent-heads needs each of its {name} once.")
        if self.n < 2 or self.ranked < 1 or self.seeds < 1:
            raise HeadcountError(
                "silent-heads needs n of at least 2, ranked and seeds of at least 1, not "
                f"n={self.n}, ranked={self.ranked}, seeds={self.seeds}."
            )
