"""The settings of the study `token-insertion`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headcount.errors import HeadcountError, did_you_mean, unknown
from headcount.registry import setting
from headcount.tasks import TASKS
from headcount.tasks.inserts import LENGTHS, PLACES, Insert

Variant = Literal["replace", "add"]
SWEEPS = ("length", "position")
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"n": 60, "prompts": 12},
    "full": {"n": 400, "prompts": 32},
    # As published, except for the sampling settings: the paper takes those of each model.
    "paper": {"tasks": ("math-500",), "prompts": 32, "temperature": 0.6, "top_p": 0.95, "seeds": 5},
}


@dataclass(frozen=True)
class Config:
    """Meaningless and meaningful inserts: accuracy, and the attention of one head.

    The first task makes the figure and the claims; further tasks are reported in the tables.
    """

    tasks: tuple[str, ...] = setting(
        ("word-problems",), "tasks of maths problems by name, or files of problems"
    )
    n: int = setting(0, "number of problems; 0 takes all")
    meaningless: str = setting("/", "text of the meaningless insert")
    meaningful: str = setting("he", "text of the meaningful insert")
    length: int = setting(55, "number of inserted tokens")
    position: str = setting("between", "place of the insert in the prompt", choices=PLACES)
    sweep: str = setting(
        "", "also measure accuracy by length or by position of the insert", choices=SWEEPS
    )
    layer: int = setting(0, "layer of the head whose attention is drawn")
    head: int = setting(
        -1,
        "number of that head in the layer; -1 takes head 14 or, in a layer of fewer than 15 heads, "
        "the head that the inserts change most",
    )
    prompts: int = setting(16, "prompts on which attention and activations are read; 0 reads none")
    sinks: int = setting(1, "number of first tokens that attention profiles leave out")
    temperature: float = setting(0.0, "sampling temperature; 0 decodes greedily")
    top_p: float = setting(
        1.0, "share of the probability that sampling draws from (nucleus sampling)"
    )
    seeds: int = setting(1, "number of sampled runs")
    accuracy: str = setting("maths", "metric that grades the texts")
    heads: tuple[str, ...] = setting(
        (), "heads that are switched off in the whole study, as LAYER.HEAD"
    )
    keep: bool = setting(False, "keep only the given heads instead, and switch off all others")
    redistribution: str = setting(
        "", "add a bar with redistributed activations, no insert", choices=get_args(Variant)
    )
    arm_c: float = setting(
        0.13, "redistribution: factor c of the limit ε below which an activation is near zero"
    )
    arm_p1: float = setting(99.5, "redistribution: percentile up to which activations are lifted")
    task_settings: Mapping[str, Any] | None = setting(None, "settings for all tasks")

    def __post_init__(self) -> None:
        if self.sweep and self.sweep not in SWEEPS:
            raise unknown("sweep", self.sweep, SWEEPS)
        counts = (self.prompts, self.sinks, self.n, self.head + 1)
        if not self.tasks or self.seeds < 1 or min(counts) < 0:
            raise HeadcountError(
                "The study needs at least one task and one seed; prompts, sinks and n must be at "
                "least 0, and head at least -1."
            )
        heads: Any = self.heads  # the command line may pass any type
        if isinstance(heads, str | int | float):
            raise HeadcountError(
                "Name heads as --heads LAYER.HEAD LAYER.HEAD, with spaces between them."
            )
        if self.keep and not self.heads:
            raise HeadcountError("keep needs heads: name the heads to keep, heads=LAYER.HEAD.")
        if self.seeds > 1 and not self.temperature:
            raise HeadcountError(
                "Greedy decoding writes the same text in every run: set temperature above 0, or "
                "seeds to 1."
            )
        self.inserts()
        known = {key for spec in self.tasks for key in TASKS[task_name(spec)].defaults()}
        for key in self.task_settings or {}:
            if key not in known:
                raise HeadcountError(
                    f'Neither the study nor its tasks have a setting "{key}".'
                    f"{did_you_mean(key, known)}"
                )

    def inserts(self) -> dict[str, Insert]:
        """The two inserts by the names of their series."""
        texts = {"w/ Mless": self.meaningless, "w/ Mful": self.meaningful}
        place: Any = self.position  # `Insert` refuses an unknown place
        return {series: Insert(text, self.length, place) for series, text in texts.items()}

    @property
    def runs(self) -> int:
        """How often each problem is asked: once if decoding is greedy, as runs would be equal."""
        return self.seeds if self.temperature else 1

    @property
    def longest(self) -> int:
        """The number of tokens of the longest insert."""
        lengths = [insert.length for insert in self.inserts().values() if not insert.empty]
        return max([*lengths, *(LENGTHS if self.sweep == "length" else [])], default=0)


def task_name(spec: str) -> str:
    """The registered name of a task, given its name or a file of problems.

    >>> task_name("my/problems.jsonl"), task_name("word-problems")
    ('problems', 'word-problems')
    """
    is_file = spec not in TASKS.entries and spec.endswith((".json", ".jsonl"))
    return "problems" if is_file else spec
