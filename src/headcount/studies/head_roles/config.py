"""The settings of the study `head-roles`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headcount.errors import HeadcountError
from headcount.registry import setting
from headcount.tasks import Task

Base = Literal["soft", "plain"]

ROWS = {"syntax": "Syntax", "common-sense": "Common Sense", "arithmetic": "Math"}
FULL = tuple(range(0, 51, 2))  # the published counts
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"counts": (0, 2, 5, 10, 20, 50), "seeds": 2, "n": 16, "plain": False},
    "full": {"counts": FULL, "seeds": 10, "n": 0},
    "paper": {"counts": FULL, "seeds": 10, "n": 0, "plain": False},
}


@dataclass(frozen=True)
class Config:
    """Learned causal gates split heads into facilitating, irrelevant and interfering ones.

    Gates are read from the folder `gates`, else taken from those that come with headcount, else
    fitted. Fits that take longer than half an hour need `refit`.
    """

    tasks: tuple[str | Task, ...] = setting(
        tuple(ROWS), "tasks by name, or .jsonl files; the figure has one row for each"
    )
    counts: tuple[int, ...] | None = setting(
        None, "numbers of ablated heads (default: 0, 2, 4, … 50)"
    )
    seeds: int = setting(10, "number of fits, from different random starts")
    n: int = setting(0, "number of validation prompts; 0 takes all")
    plain: bool = setting(True, "also measure the curves that start from the whole model")
    gates: str = setting("", "folder of fitted gates")
    refit: bool = setting(False, "fit the gates, however long that takes")
    updates: int = setting(500, "updates in each of the two stages of a fit")
    batch: int = setting(64, "prompts in each update")
    variant: str = setting(
        "published",
        "published: as in the paper; released: as in its code, with learning rate 1 and gradients "
        "clipped to norm 1",
        choices=("published", "released"),
    )
    compiled: bool = setting(False, "compile the model's blocks, on a GPU")
    task_settings: Mapping[str, Any] | None = setting(None, "settings for all tasks")

    def __post_init__(self) -> None:
        if not self.tasks:
            raise HeadcountError("The study needs at least one task: name one, such as syntax.")
        if self.seeds < 1 or self.n < 0:
            raise HeadcountError(
                "The study needs seeds of at least 1 and n of at least 0, not "
                f"seeds={self.seeds}, n={self.n}."
            )

    @property
    def bases(self) -> tuple[Base, ...]:
        """What the curves start from: soft gates, and with `plain` also the whole model."""
        return ("soft", "plain") if self.plain else ("soft",)
