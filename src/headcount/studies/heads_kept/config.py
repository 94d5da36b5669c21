"""The settings of the study `heads-kept`, and its presets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.registry import setting
from headcount.studies.presets import Preset

SPARSE_GPT2, SPARSE_OLMO = "sparse-gpt2", "sparse-olmo-7b"
UNITS = ("task", "prompt")  # heads are ranked once per task, or once per prompt
ALL_RANKINGS = ("patching", "attribution", "integrated-gradients")
PRESETS: dict[str, Mapping[str, Any] | Preset] = {
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
    "paper": Preset(
        settings={
            "pairs": ("greater-than=1,2", "ioi=1,2", "docstring=3,4", "ioi-long=3,4"),
            "n": 100,
            "ranked": 100,
            "pool": 1000,
            "ablations": ("mean", "zero"),
        },
        models=("openai-community/gpt2", SPARSE_GPT2, "allenai/OLMo-7B-hf", SPARSE_OLMO),
        loading={
            "dtype": "bfloat16",
            "openai-community/gpt2": {"dtype": "float32"},
            SPARSE_GPT2: {"dtype": "float32"},
        },
        local={
            SPARSE_GPT2: "make it of the weights that the paper's authors released, with headcount "
            f"convert final.pth --out {SPARSE_GPT2}, or name yours with --model",
            SPARSE_OLMO: "make it with headcount sparsify --model allenai/OLMo-7B-hf --text FILE "
            f"--out {SPARSE_OLMO}, or leave OLMo out: --tasks greater-than ioi --model "
            f"openai-community/gpt2 --model {SPARSE_GPT2}",
        },
        inferred=(
            "Prompts are our own, of the published shapes, each made for its tokenizer.",
            "The explained effect is a ratio of means; heads are ranked once per task (--per "
            "prompt is our reading of the other published version).",
            "100 prompts are tested and 100 ranked on, and absent heads get their mean by "
            "position; the paper prints none of these.",
            "GPT-2 runs in float32 and OLMo-7B in bfloat16.",
            "No weights of a sparse OLMo-7B are known to us: the one that you make is ours in "
            "method.",
        ),
    ),
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
    pairs: tuple[str, ...] = setting(
        (),
        "models of single panels, by their places among --model, such as ioi=1,2 docstring=3,4; "
        "other panels show all",
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
        _ = self.places

    @property
    def places(self) -> dict[str, list[int]]:
        """The places of the models of single panels, counted from 1."""
        places = {}
        for pair in self.pairs:
            task, _, numbers = pair.partition("=")
            if not re.fullmatch(r"[1-9](,[1-9])*", numbers):
                raise HeadcountError(
                    f'"{pair}" does not say which models a panel shows: write TASK=1,2, with the '
                    "places of models among --model."
                )
            places[task] = list(map(int, numbers.split(",")))
        return places
