"""The settings of the study `pruned`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import setting

TEXT = "text"  # the name of the text among tasks


@dataclass(frozen=True)
class PruneSettings:
    """How heads are chosen for pruning, and how a pruned model is measured."""

    tasks: tuple[str, ...] = setting(("ioi", "common-sense"), "tasks to test, or files of examples")
    ranking: str = setting("reconstruction", "what ranks the heads, or a file of scores")
    ranked_on: str = setting(TEXT, "task on whose ranking split heads are ranked, or text")
    text: str = setting("", "file of text; without one, the model writes the text itself")
    block: int = setting(128, "tokens in a block of text")
    fitted: int = setting(32, "blocks of text on which heads are ranked and rescaled")
    tested: int = setting(32, "blocks of text on which the loss is measured")
    held_out: int = setting(500, "first articles of the file, which are only tested on")
    n: int = setting(40, "test examples of each task")
    draws: int = setting(3, "random draws of each size")
    rescale: bool = setting(True, "rescale the heads that are kept")
    heal_steps: int = setting(0, "training steps that heal a pruned model; 0: none")
    batch: int = setting(4, "blocks in a training step")
    rank: int = setting(16, "rank of the adapters that heal")
    healed_draws: int = setting(1, "random draws of each size that are healed")
    rounds: int = setting(6, "rounds in which the speeds of whole and pruned model are measured")
    seed: int = setting(0, "seed of the training")

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        if not self.tasks:
            raise HeadcountError("Pruning is measured on at least one task: name one.")
        if TEXT in self.tasks:
            raise HeadcountError("The loss on the text is always measured: name other tasks.")
        least = {
            **dict.fromkeys(("block", "tested", "fitted", "n"), 2),
            **dict.fromkeys(("draws", "batch", "rank", "rounds", "held_out"), 1),
            **dict.fromkeys(("heal_steps", "healed_draws", "seed"), 0),
        }
        for name, number in least.items():
            if getattr(self, name) < number:
                raise HeadcountError(
                    f"{name.replace('_', '-')} must be at least {number}, not "
                    f"{getattr(self, name)}."
                )
        if self.healed_draws > self.draws:
            raise HeadcountError(
                f"Of {self.draws} random draws at most as many can be healed, not "
                f"{self.healed_draws}."
            )


@dataclass(frozen=True)
class Config(PruneSettings):
    """A smaller checkpoint: accuracy and loss against the share of the cache that is kept.

    Whole key/value groups are removed, or query heads of each group; the best are kept, or random
    ones. Each pruned model is measured as it is, with its heads rescaled, and after a short
    training.
    """

    keep_groups: tuple[int, ...] | None = setting(
        None, "numbers of key/value groups to keep (every one that a stock config holds)"
    )
    keep_heads_per_group: tuple[int, ...] | None = setting(
        None, "numbers of query heads of each group to keep (every one that a stock config holds)"
    )
    task_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse numbers that no model has."""
        super().__post_init__()
        for kept in (self.keep_groups, self.keep_heads_per_group):
            if kept is not None and any(not isinstance(k, int) or k < 1 for k in kept):
                raise HeadcountError(
                    "Numbers of groups and heads to keep are whole numbers from 1 on, not "
                    f"{' '.join(map(str, kept))}."
                )


PRESETS: dict[str, dict[str, Any]] = {
    "quick": {},
    "full": {
        "tasks": ("ioi", "greater-than", "common-sense", "retrieval"),
        "n": 200,
        "tested": 256,
        "fitted": 64,
        "draws": 10,
        "heal_steps": 200,
        "healed_draws": 3,
    },
}
