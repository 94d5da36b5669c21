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

    Gates come from the folder `gates`, else from those that headcount brings along, else they are
    fitted, as with `refit`; what takes longer than half an hour is fitted with `refit` only.
    """

    tasks: tuple[str | Task, ...] = setting(
        tuple(ROWS), "tasks by name, or .jsonl files; one row each"
    )
    counts: tuple[int, ...] | None = setting(
        None, "numbers of ablated heads; 0, 2, 4, … 50 unless given"
    )
    seeds: int = setting(10, "fits, from different starts")
    n: int = setting(0, "validation prompts; 0 takes all")
    plain: bool = setting(True, "the curve from the whole model as well")
    gates: str = setting("", "folder of fitted gates")
    refit: bool = setting(False, "fit gates, however long that takes")
    updates: int = setting(500, "updates of each of the two stages of a fit")
    batch: int = setting(64, "prompts of an update")
    variant: str = setting(
        "published",
        "published, or released: as the published code fits, with learning rate 1 and gradients "
        "clipped to norm 1",
        choices=("published", "released"),
    )
    compiled: bool = setting(False, "compiled blocks, on a GPU")
    task_settings: Mapping[str, Any] | None = setting(None, "settings of every task")

    def __post_init__(self) -> None:
        if not self.tasks:
            raise HeadcountError("The study needs at least one task.")
        if self.seeds < 1 or self.n < 0:
            raise HeadcountError(
                f"The study needs at least 1 seed, and n of 0 or more: not {self.seeds}, {self.n}."
            )

    @property
    def bases(self) -> tuple[Base, ...]:
        """What curves start from."""
        return ("soft", "plain") if self.plain else ("soft",)
