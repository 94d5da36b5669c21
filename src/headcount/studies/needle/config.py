"""The settings of the study `needle`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import setting

LENGTHS = (1000, 2000, 4000, 8000, 16000, 32000)
SHARE = 0.06  # of the heads, where no counts are given


@dataclass(frozen=True)
class Config:
    """Retrieval at length: a needle task with and without the heads that look at the needle.

    Heads are ranked at one length, on needles that are not asked in the test. The best are masked
    at all positions, and only where the answer is predicted.
    """

    lengths: tuple[int, ...] | None = setting(
        None, "tokens of a prompt (1000 2000 4000 … 32000, as far as the model reads)"
    )
    depths: tuple[float, ...] = setting(
        (0.1, 0.5, 0.9), "where needles stand: 0 is the beginning of the text, 1 its end"
    )
    n: int = setting(48, "examples of each length; half of the needles are for ranking")
    ranking: str = setting("retrieval-score", "what ranks the heads")
    ranked_at: int = setting(0, "tokens of the prompts that rank the heads; 0: the shortest length")
    counts: tuple[int, ...] | None = setting(None, "numbers of heads to mask (6 % of all heads)")
    seeds: int = setting(3, "random draws for each count and control")
    task_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        if self.lengths is not None:
            whole = all(isinstance(n, int) and n > 0 for n in self.lengths)
            if not self.lengths or not whole or list(self.lengths) != sorted({*self.lengths}):
                raise HeadcountError(
                    "lengths are different whole numbers above 0, in rising order, not "
                    f"{' '.join(map(str, self.lengths)) or 'none'}."
                )
        for name, least in (("ranked_at", 0), ("seeds", 2)):
            if getattr(self, name) < least:
                raise HeadcountError(
                    f"needle needs {name} of at least {least}, not {getattr(self, name)}."
                )


PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"lengths": (128, 256, 512), "n": 36},
    "full": {"n": 48, "ranked_at": 1000},
}
