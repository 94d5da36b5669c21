"""The settings of the study `heads-kept`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.registry import setting

UNITS = ("task", "prompt")  # heads are ranked once per task, or once per prompt
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"rankings": ("patching",), "n": 12, "ranked": 3, "pool": 400, "seeds": 2},
    "full": {
        "rankings": ("patching", "attribution", "integrated-gradients"),
        "n": 250,
        "ranked": 100,
        "pool": 1000,
        "seeds": 10,
        "fine": True,
    },
}


@dataclass(frozen=True)
class Config:
    """Explained effect against heads kept, in one model or in a dense and a sparse one."""

    tasks: tuple[str, ...] = setting(
        ("greater-than", "ioi", "docstring", "ioi-long"),
        "tasks by name, or files of clean and corrupt prompts; the figure has one panel for each",
    )
    rankings: tuple[str, ...] = setting(
        ("patching",),
        "rankings; the first makes the figure, the others are compared with it",
        option="ranking",
    )
    counts: tuple[int, ...] | None = setting(
        None, "numbers of heads kept (default: fixed shares of all heads)"
    )
    seeds: int = setting(3, "number of random orders")
    n: int = setting(100, "number of test prompts that are measured")
    ranked: int = setting(16, "number of ranking prompts that heads are ranked on")
    pool: int = setting(
        600, "number of prompts of each task, from which test and ranking prompts are drawn"
    )
    per: str = setting(
        "task", "one ranking for the whole task, or one for each test prompt", choices=UNITS
    )
    threshold: float = setting(0.9, "explained effect that the kept heads must reach")
    metric: str = setting(
        "auto",
        "logit metric; auto: mass_difference for tasks with several right answers, else "
        "logit_difference",
    )
    fine: bool = setting(False, "about ninety counts, unless counts are given")
    task_settings: Mapping[str, Any] | None = setting(None, "settings for all tasks")

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        if not self.tasks or not self.rankings:
            raise HeadcountError("The study needs at least one task and one ranking: name them.")
        if "random" in self.rankings:
            raise HeadcountError(
                "Every run includes random orders: choose a ranking other than random."
            )
        if self.per not in UNITS:
            raise unknown("choice of per", self.per, UNITS)
        if self.n < 2 or self.ranked < 1 or self.seeds < 0:
            raise HeadcountError(
                "heads-kept needs n of at least 2, ranked of at least 1 and seeds of at least 0, "
                f"not n={self.n}, ranked={self.ranked}, seeds={self.seeds}."
            )
        if not 0 < self.threshold < 1:
            raise HeadcountError(f"Choose a threshold between 0 and 1, not {self.threshold}.")
