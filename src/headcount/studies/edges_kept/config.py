"""The settings of the study `edges-kept`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.registry import setting

UNITS = ("task", "prompt")  # edges are ranked once for prompts that align, or once per prompt
RANKINGS = ("attribution", "integrated-gradients")
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"tasks": ("ioi", "greater-than"), "n": 8, "ranked": 4, "pool": 600, "seeds": 1},
    "full": {"rankings": RANKINGS, "n": 100, "ranked": 12, "pool": 1000, "seeds": 3},
}


@dataclass(frozen=True)
class Config:
    """Explained effect against attention edges kept, in one model or in a dense and a sparse one.

    An edge is (layer, head, query, key). One that is not kept says what it says on the corrupted
    prompt.
    """

    tasks: tuple[str, ...] = setting(
        ("greater-than", "ioi", "docstring", "ioi-long"),
        "tasks, or files of clean and corrupt prompts; each is a panel of the figure",
    )
    rankings: tuple[str, ...] = setting(
        ("attribution",),
        "attribution, integrated-gradients or both, by their absolute values; the first makes the "
        "figure",
        option="ranking",
    )
    signed: bool = setting(
        True,
        "also order edges by their signed scores, which drops those that work against the answer",
    )
    counts: tuple[int, ...] | None = setting(
        None, "numbers of edges to keep (1 2 5 10 … up to all edges)"
    )
    seeds: int = setting(2, "random orders of the edges, as a control")
    n: int = setting(50, "test prompts that are measured")
    ranked: int = setting(8, "ranking prompts of each template and length")
    pool: int = setting(600, "prompts of each task, from which both of these are drawn")
    per: str = setting(
        "task",
        "rank the edges once for all prompts of one template and length, or for each test prompt",
        choices=UNITS,
    )
    threshold: float = setting(0.9, "explained effect that counts as enough")
    metric: str = setting(
        "auto",
        "metric of logits; auto takes mass_difference for tasks with several right answers, else "
        "logit_difference, of the first tokens where answers have several",
    )
    task_settings: Mapping[str, Any] | None = setting(None, "settings of the tasks")

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        if not self.tasks or not self.rankings:
            raise HeadcountError("edges-kept needs at least one task and one ranking.")
        for ranking in self.rankings:
            if ranking not in RANKINGS:
                raise unknown("ranking of edges", ranking, RANKINGS)
        if len(set(self.rankings)) < len(self.rankings):
            raise HeadcountError("edges-kept needs each ranking once.")
        if self.per not in UNITS:
            raise unknown("value of per", self.per, UNITS)
        if self.n < 2 or self.ranked < 1 or self.seeds < 0:
            raise HeadcountError(
                "edges-kept needs n of at least 2, ranked of at least 1 and seeds of at least 0, "
                f"not n={self.n}, ranked={self.ranked}, seeds={self.seeds}."
            )
        if self.counts is not None and not all(
            isinstance(count, int) and count > 0 for count in self.counts
        ):
            raise HeadcountError("counts of edges are whole numbers above 0.")
        if not 0 < self.threshold < 1:
            raise HeadcountError(f"threshold lies between 0 and 1, not at {self.threshold:g}.")

    @property
    def validated(self) -> int:
        """No prompts are set aside to compare orders of edges with each other."""
        return 0
