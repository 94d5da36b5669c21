"""The settings of the study `head-roles`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headcount.errors import HeadcountError
from headcount.registry import setting
from headcount.studies.presets import Preset
from headcount.tasks import Task

Base = Literal["soft", "plain"]

OURS = {"syntax": "Syntax", "common-sense": "Common Sense", "arithmetic": "Math"}
# Published data, as they are or in their place, are rows of the same names.
ROWS = OURS | {
    "big-bench": "Syntax",
    "commonsense-qa": "Common Sense",
    "openmath": "Math",
    "gsm8k": "Math",
}
# The published counts, and those that are the published shares of the heads in models of 336 heads.
FULL = tuple(sorted({*range(0, 51, 2), 17, 25, 33}))
PRESETS: dict[str, Mapping[str, Any] | Preset] = {
    "quick": {"counts": (0, 2, 5, 10, 20, 50), "seeds": 2, "n": 16, "plain": False},
    "full": {"counts": FULL, "seeds": 10, "n": 0},
    "paper": Preset(
        settings={
            "tasks": ("big-bench", "commonsense-qa", "openmath"),
            "counts": FULL,
            "seeds": 10,
            "n": 500,
            "plain": False,
            "refit": True,
            "task_settings": {
                "bos": "never",
                "separator": "\n",
                "pool": 50,
                "validation": 0.1,
                "big-bench": {"each": 10_000},
                "commonsense-qa": {"letters": True},
                "openmath": {
                    "shortest": 55_050,
                    "instruction": "Solve each problem step by step, write mathematics in LaTeX, "
                    "and put the final answer into \\boxed{}.",
                },
            },
        },
        models=(
            "meta-llama/Llama-3.2-1B",
            "meta-llama/Llama-3.2-3B",
            "meta-llama/Llama-3.2-3B-Instruct",
            "meta-llama/Llama-3.1-8B",
        ),
        loading={"dtype": "bfloat16"},
        inferred=(
            "Prompts (one solved item of 50, a line break behind it, no BOS, no chat template) and "
            "the 10 % of items for validation are those of the released package; the instruction "
            "for Math has our words.",
            "Curves are means over 500 validation prompts; the paper does not print their number.",
            "Of each of the three BIG-bench tasks the first 10,000 rows are used, and the target "
            "is the answer's words.",
            "Options of CommonsenseQA keep their order, and items come from its training split.",
            "Models run in bfloat16.",
        ),
    ),
}


@dataclass(frozen=True)
class Config:
    """Learned causal gates split heads into facilitating, irrelevant and interfering ones.

    Gates are read from the folder `gates`, else taken from those that come with headcount, else
    fitted. Fits that take longer than half an hour need `refit`.
    """

    tasks: tuple[str | Task, ...] = setting(
        tuple(OURS), "tasks, or .jsonl files of examples; each is a row of the figure"
    )
    counts: tuple[int, ...] | None = setting(
        None, "numbers of heads to ablate (0 2 4 … 50, and 17 25 33)"
    )
    seeds: int = setting(10, "fits of the gates, from different random starts")
    n: int = setting(0, "validation prompts of each task; 0 takes all")
    plain: bool = setting(True, "also draw the curves that start from the whole model")
    gates: str = setting("", "folder of fitted gates, instead of those that come with headcount")
    refit: bool = setting(False, "fit the gates anew, however long that takes")
    updates: int = setting(500, "gradient updates in each of the two stages of a fit")
    batch: int = setting(64, "prompts in each update")
    variant: str = setting(
        "published",
        "how gates are fitted: as published, or as the released code does it, with learning rate 1 "
        "and gradients clipped to norm 1",
        choices=("published", "released"),
    )
    compiled: bool = setting(False, "fit with compiled blocks, on a GPU")
    task_settings: Mapping[str, Any] | None = setting(None, "settings of every task")

    def __post_init__(self) -> None:
        if not self.tasks:
            raise HeadcountError("head-roles needs at least one task.")
        if self.seeds < 1:
            raise HeadcountError(f"head-roles needs at least 1 seed, not {self.seeds}.")
        if self.n < 0:
            raise HeadcountError(f"n is 0 (all prompts) or more, not {self.n}.")

    @property
    def bases(self) -> tuple[Base, ...]:
        """What the curves start from: soft gates, and with `plain` also the whole model."""
        return ("soft", "plain") if self.plain else ("soft",)
