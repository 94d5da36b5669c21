"""The settings of the study `steering`, and its presets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import setting

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "tasks": ("math", "inference"),
        "n": 32,
        "ranked": 64,
        "alphas": (-5.0, -2.0, 2.0, 5.0),
        "seeds": 2,
    },
    "full": {},
}


@dataclass(frozen=True)
class Config:
    """Add to what the best heads say the direction in which right and wrong answers differ.

    Directions and rankings come from the ranking split; the test split is steered.
    """

    tasks: tuple[str, ...] = setting(
        ("knowledge-recall", "math", "inference"),
        "tasks of which the model answers some items right and some wrong, or files of examples",
    )
    ranking: str = setting("attribution", "the ranking of the heads")
    top: int = setting(8, "the number of best heads that are steered")
    alphas: tuple[float, ...] = setting(
        (-5.0, -2.0, -1.0, 1.0, 2.0, 5.0),
        "how strongly: multiples of the spread of each head's output along its direction",
    )
    seeds: int = setting(5, "random directions, and draws of layer-matched random heads")
    n: int = setting(0, "test items of each task; 0 takes all")
    ranked: int = setting(0, "ranking items of each task; 0 takes all")
    task_settings: Mapping[str, Any] | None = setting(None, "settings of the tasks")

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        for name in ("tasks", "alphas"):
            chosen = getattr(self, name)
            if not chosen or len(set(chosen)) < len(chosen):
                raise HeadcountError(f"steering needs at least one of its {name}, and each once.")
        for alpha in self.alphas:
            if not isinstance(alpha, int | float) or not math.isfinite(alpha):
                raise HeadcountError(f"Alphas are numbers such as 5 or -0.5, not {alpha!r}.")
        if 0 in self.alphas:
            raise HeadcountError("An alpha of 0 adds nothing: the whole model is measured anyway.")
        if self.top < 1 or self.seeds < 2 or min(self.n, self.ranked) < 0 or self.n == 1:
            raise HeadcountError(
                "steering needs a top of at least 1, seeds of at least 2, and n and ranked of 0 "
                f"(all) or more, n not 1; not top={self.top}, seeds={self.seeds}, n={self.n}, "
                f"ranked={self.ranked}."
            )
