"""The settings of the study `heads-kept`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.registry import setting

UNITS = ("task", "prompt")  # heads are ranked once per task, or once per prompt
ALL_RANKINGS = ("patching", "attribution", "integrated-gradients")
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"n": 12, "ranked": 3, "pool": 400, "seeds": 4, "ablations": ("mean", "zero")},
    "full": {
        "rankings": ALL_RANKINGS,
        "n": 150,
        "ranked": 100,
        "pool": 1000,
        "seeds": 5,
        "validated": 40,
        "absolute": True,
    },
}


@dataclass(frozen=True)
class Config:
    """Explained effect against heads kept, in one model or in a dense and a sparse one."""

    tasks: tuple[str, ...] = setting(
        ("greater-than", "ioi", "docstring", "ioi-long"),
        "tasks, or files of clean and corrupt prompts; each is a panel of the figure",
    )
    rankings: tuple[str, ...] = setting(
        ("patching",), "rankings; the first makes the figure, others are compared", option="ranking"
    )
    counts: tuple[int, ...] | None = setting(
        None, "numbers of heads to keep (1 2 3 5 8 … and every tenth of all heads)"
    )
    absolute: bool = setting(False, "also order heads by the absolute values of their scores")
    ablations: tuple[str, ...] = setting(
        ("mean", "clean-mean", "resampled", "zero"),
        "what replaces absent heads; the first makes the figure and is measured in all orders",
    )
    seeds: int = setting(3, "random orders of the heads, as a control")
    n: int = setting(100, "test prompts that are measured")
    ranked: int = setting(16, "prompts on which the heads are ranked")
    validated: int = setting(
        0, "ranking prompts, neither ranked nor tested, on which the best order is chosen"
    )
    pool: int = setting(600, "prompts of each task, from which both of these are drawn")
    per: str = setting(
        "task", "rank the heads once for the task, or for each test prompt", choices=UNITS
    )
    threshold: float = setting(0.9, "explained effect that counts as enough")
    metric: str = setting(
        "auto",
        "metric of logits; auto takes mass_difference for tasks with several right answers, "
        "logprob_difference for answers of several tokens, and logit_difference for others",
    )
    fine: bool = setting(False, "measure about fifty counts, unless --counts names them")
    task_settings: Mapping[str, Any] | None = setting(None, "settings of the tasks")

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        if not self.tasks or not self.rankings:
            raise HeadcountError("heads-kept needs at least one task and one ranking.")
        if "random" in self.rankings:
            raise HeadcountError(
                "heads-kept measures random orders anyway: choose another ranking than random."
            )
        if self.per not in UNITS:
            raise unknown("value of per", self.per, UNITS)
        if self.n < 2 or self.ranked < 1 or self.seeds < 0 or self.validated < 0:
            raise HeadcountError(
                "heads-kept needs n of at least 2, ranked of at least 1, seeds and validated of at "
                f"least 0, not n={self.n}, ranked={self.ranked}, seeds={self.seeds}, "
                f"validated={self.validated}."
            )
        if not self.ablations or len(set(self.ablations)) < len(self.ablations):
            raise HeadcountError("heads-kept needs at least one ablation, and each of them once.")
        if not 0 < self.threshold < 1:
            raise HeadcountError(f"Choose a threshold between 0 and 1, not {self.threshold}.")
