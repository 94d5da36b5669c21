"""The settings of benchmarks under head sets; nothing here needs lm-eval."""

from __future__ import annotations

from dataclasses import dataclass

from headcount.errors import HeadcountError, unknown
from headcount.registry import setting

CONTROLS = ("random", "matched")


@dataclass(frozen=True)
class BenchmarkSettings:
    """Which heads are masked, and how benchmarks are asked."""

    counts: tuple[int, ...] | None = setting(
        None, "numbers of heads (8 16, or as many as --heads names), besides the whole model"
    )
    series: tuple[str, ...] = setting(
        ("top", *CONTROLS),
        "curves: top, random, or matched (random heads of the same layers) heads",
        choices=("top", *CONTROLS),
    )
    seeds: int = setting(3, "random draws for each count")
    keep: bool = setting(False, "keep the chosen heads, and mask all others")
    epsilon: float = setting(0.0, "factor by which masked heads are multiplied")
    num_fewshot: int | None = setting(
        None, "solved examples before each question (as the benchmark says)"
    )
    limit: int | None = setting(
        None, "only the first documents of each benchmark, or of each part of a group"
    )
    chat: bool = setting(False, "ask in the tokenizer's chat template")
    include_path: str = setting("", "folder of further task files of lm-eval")

    def __post_init__(self) -> None:
        for name in self.series:
            if name not in ("top", *CONTROLS):
                raise unknown("series", name, ("top", *CONTROLS))
        if self.counts is not None:
            from headcount.heads import check_counts  # imports NumPy, which help texts do without

            check_counts(self.counts)
        for name in ("seeds", "limit"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise HeadcountError(f"The setting {name} is at least 1, not {number}.")
