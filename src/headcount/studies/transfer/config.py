"""The settings of the study `transfer`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import setting

PANELS = ("retrieval", "knowledge-recall", "math", "inference")
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"tasks": PANELS, "counts": (4,), "n": 60},
    "full": {"n": 200, "seeds": 10},
}


@dataclass(frozen=True)
class Config:
    """Rank the heads on one task, mask the best, test on another: for all pairs of tasks."""

    tasks: tuple[str, ...] = setting(
        ("all",), "tasks, or files of examples; all stands for the eight cognitive functions"
    )
    ranking: str = setting("attribution", "the ranking of the heads on every task")
    counts: tuple[int, ...] | None = setting(
        None, "numbers of heads to mask; losses are means over them (published fractions of heads)"
    )
    seeds: int = setting(5, "random draws of layer-matched heads for each task and count")
    n: int = setting(0, "items of each task; 0 takes all, also of a task that has fewer")
    metric: str = setting(
        "exact_match",
        "a metric for which chance is known: exact_match of written answers or, read off logits, "
        "accuracy, choice, logit_difference or logprob",
    )
    scope: str = setting(
        "all", "mask heads at all tokens, or only at new ones", choices=("all", "decode")
    )
    epsilon: float = setting(0.0, "factor by which masked heads are multiplied")
    task_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        if len(set(self.tasks)) < 2 and "all" not in self.tasks:
            raise HeadcountError(
                "transfer ranks heads on one task and tests them on another: name at least two "
                f"tasks, not {', '.join(self.tasks) or 'none'}."
            )
        if self.seeds < 2:
            raise HeadcountError(
                f"The layer-matched heads need at least 2 draws, so that their spread is known, "
                f"not seeds={self.seeds}."
            )
