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
    # As published, but for the sampling settings, which the paper leaves to each model †.
    "paper": {
        "tasks": ("math-500",),
        "prompts": 32,
        "temperature": 0.6,
        "top_p": 0.95,
        "seeds": 5,
    },
}


@dataclass(frozen=True)
class Config:
    """Meaningless and meaningful inserts: accuracy, and what one head attends to.

    The first task makes the figure and the claims, others are reported beside it.
    """

    tasks: tuple[str, ...] = setting(
        ("word-problems",), "tasks of maths problems: names, or files of problems"
    )
    n: int = setting(0, "how many problems; 0 takes all")
    meaningless: str = setting("/", "text of the meaningless insert")
    meaningful: str = setting("he", "text of the meaningful insert")
    length: int = setting(55, "how many tokens are inserted")
    position: str = setting("between", "where the insert goes", choices=PLACES)
    sweep: str = setting(
        "", "also measure accuracy by length or by position of the insert", choices=SWEEPS
    )
    layer: int = setting(0, "layer of the head whose attention is drawn")
    head: int = setting(
        -1,
        "its number in the layer; -1 is head 14, or in a layer of fewer than 15 heads the one that "
        "an insert changes most",
    )
    prompts: int = setting(16, "prompts on which attention and activations are read; 0 for none")
    sinks: int = setting(1, "first tokens that are left out of attention profiles")
    temperature: float = setting(0.0, "temperature of sampling; 0 decodes greedily")
    top_p: float = setting(1.0, "share of the probability that sampling draws from")
    seeds: int = setting(1, "sampled runs")
    accuracy: str = setting("maths", "metric that grades the texts")
    heads: tuple[str, ...] = setting((), "heads that are off in everything, as LAYER.HEAD")
    keep: bool = setting(False, "keep only these heads instead")
    redistribution: str = setting(
        "", "one more bar: activations redistributed, without insert", choices=get_args(Variant)
    )
    arm_c: float = setting(0.13, "redistribution: how wide 'near zero' is")
    arm_p1: float = setting(99.5, "redistribution: percentile up to which activations are lifted")
    task_settings: Mapping[str, Any] | None = setting(None, "settings of the tasks")

    def __post_init__(self) -> None:
        if self.sweep and self.sweep not in SWEEPS:
            raise unknown("sweep", self.sweep, SWEEPS)
        counts = (self.prompts, self.sinks, self.n, self.head + 1)
        if not self.tasks or self.seeds < 1 or min(counts) < 0:
            raise HeadcountError(
                "The study needs a task and a run; prompts, sinks and n are at least 0, and head "
                "at least -1."
            )
        heads: Any = self.heads  # of any kind, from a command line
        if isinstance(heads, str | int | float):
            raise HeadcountError(
                "Name heads as --heads LAYER.HEAD, with a space between two of them."
            )
        if self.keep and not self.heads:
            raise HeadcountError("Name the heads that are kept: heads=LAYER.HEAD.")
        if self.seeds > 1 and not self.temperature:
            raise HeadcountError(
                "Greedy decoding writes the same in every run: for several, set temperature above "
                "0."
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
        """Both kinds of insert, by the name of their series."""
        texts = {"w/ Mless": self.meaningless, "w/ Mful": self.meaningful}
        place: Any = self.position  # an insert refuses what is no place
        return {series: Insert(text, self.length, place) for series, text in texts.items()}

    @property
    def runs(self) -> int:
        """How often each problem is asked; greedily, every run would write the same."""
        return self.seeds if self.temperature else 1

    @property
    def longest(self) -> int:
        """The tokens of the longest insert."""
        lengths = [insert.length for insert in self.inserts().values() if not insert.empty]
        return max([*lengths, *(LENGTHS if self.sweep == "length" else [])], default=0)


def task_name(spec: str) -> str:
    """The registered name of a task, from a name or a file of problems.

    >>> task_name("my/problems.jsonl"), task_name("word-problems")
    ('problems', 'word-problems')
    """
    return "problems" if spec.endswith((".json", ".jsonl")) else spec
