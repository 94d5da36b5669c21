"""The settings of the study `teamwork`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import setting

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "tasks": ("ioi", "greater-than"),
        "top": 10,
        "n": 32,
        "ranked": 16,
        "validated": 16,
        "seeds": 3,
    },
    "full": {},
}


@dataclass(frozen=True)
class Config:
    """Which heads back each other up: joint losses of heads against the sum of their single ones.

    Heads are ranked on some prompts, their roles are found on others, and both are tested on the
    test split.
    """

    tasks: tuple[str, ...] = setting(
        ("ioi", "greater-than", "docstring", "ioi-long"),
        "tasks with wrong answers to compare with, or files of them; means over corrupted prompts "
        "need corrupted prompts",
    )
    ranking: str = setting(
        "integrated-gradients",
        "the ranking of the heads; one by effects of single heads does not see a head with a "
        "backup",
    )
    top: int = setting(20, "the number of best heads, which are off alone, in all pairs, and more")
    ablation: str = setting("mean", "what a head says that is off")
    metric: str = setting(
        "auto",
        "a difference of logits or log-probabilities, in which effects add up; auto takes "
        "logit_difference for answers of one token, and logprob_difference for others",
    )
    seeds: int = setting(5, "random orders of other heads, as a control of the sets")
    n: int = setting(150, "test prompts of each task")
    ranked: int = setting(50, "ranking prompts of each task, on which heads are ranked")
    validated: int = setting(
        75, "other ranking prompts of each task, on which roles are found: which heads repair which"
    )
    pool: int = setting(900, "prompts of each task, from which all these are drawn")
    task_settings: Mapping[str, Any] | None = setting(None, "settings of the tasks")

    @property
    def per(self) -> str:
        """Heads are ranked once for each task."""
        return "task"

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise HeadcountError("teamwork needs at least one task, and each of them once.")
        if self.top < 2:
            raise HeadcountError(
                f"teamwork looks at pairs of heads: choose a top of at least 2, not {self.top}."
            )
        if self.n < 2 or self.ranked < 1 or self.validated < 2 or self.seeds < 2:
            raise HeadcountError(
                "teamwork needs n, validated and seeds of at least 2 and ranked of at least 1, not "
                f"n={self.n}, validated={self.validated}, seeds={self.seeds}, ranked={self.ranked}."
            )
