"""The settings of the study `token-insertion`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headcount.errors import HeadcountError, did_you_mean, unknown
from headcount.registry import setting, settings_of
from headcount.studies.presets import Preset
from headcount.tasks import TASKS
from headcount.tasks.inserts import LENGTHS, PLACES, Insert

Variant = Literal["replace", "add"]
SWEEPS = ("length", "position")
DECODINGS = ("given", "model")
PRESETS: dict[str, Mapping[str, Any] | Preset] = {
    "quick": {"n": 60, "prompts": 12},
    "full": {"n": 0, "prompts": 64},
    "paper": Preset(
        settings={
            "tasks": ("math-500",),
            "prompts": 32,
            "decoding": "model",
            "seeds": 5,
            "accuracy": "published_maths",
            "task_settings": {"max_new_tokens": 2048, "shots": 0},
        },
        models=(
            "Qwen/Qwen2.5-Math-1.5B",
            "Qwen/Qwen2.5-Math-7B",
            "meta-llama/Llama-3.1-8B-Instruct",
        ),
        loading={"dtype": "bfloat16"},
        inferred=(
            "A model that samples by its own settings is asked five times; the paper says several.",
            "Attention is that of head 14 of layer 0 of the first model that has one; the paper "
            "does not name the model.",
            "It is the mean over 32 prompts of one length, as far as there are such prompts.",
            "Models run in bfloat16.",
        ),
    ),
}


@dataclass(frozen=True)
class Config:
    """Meaningless and meaningful inserts: accuracy, and the attention of one head.

    The first task makes the figure and the claims; further tasks are reported in the tables.
    """

    tasks: tuple[str, ...] = setting(
        ("word-problems",), "tasks of maths problems, or files of problems"
    )
    n: int = setting(0, "problems of each task; 0 takes all")
    leave_out: int = setting(
        0, "leave out the problems that --n with this number takes, to confirm a finding on others"
    )
    meaningless: str = setting("/", "text of the meaningless insert")
    meaningful: str = setting("he", "text of the meaningful insert")
    length: int = setting(55, "number of inserted tokens")
    position: str = setting("between", "where the tokens are inserted", choices=PLACES)
    sweep: str = setting(
        "", "also measure accuracy by the length or by the position of the insert", choices=SWEEPS
    )
    layer: int = setting(0, "layer of the head whose attention is drawn")
    head: int = setting(
        -1,
        "number of this head in its layer; -1 takes head 14, or in a smaller layer the head that "
        "an insert changes most on every other prompt, and judges it on the rest",
    )
    prompts: int = setting(16, "prompts on which attention and activations are read; 0 takes none")
    sinks: int = setting(1, "first tokens of the prompt to leave out of attention profiles")
    temperature: float = setting(0.0, "temperature of sampling; 0 takes the likeliest token")
    top_p: float = setting(1.0, "share of the probability from which tokens are sampled")
    decoding: str = setting(
        "given",
        "tokens are drawn by the given temperature and top-p, or as each model's own generation "
        "settings say",
        choices=DECODINGS,
    )
    seeds: int = setting(1, "sampled runs of each problem")
    accuracy: str = setting("maths", "metric that grades the answers: maths or published_maths")
    heads: tuple[str, ...] = setting((), "heads to switch off in all measurements, as LAYER.HEAD")
    keep: bool = setting(False, "keep these heads, and switch all others off")
    redistribution: str = setting(
        "", "add a bar with redistributed activations and no insert", choices=get_args(Variant)
    )
    arm_c: float = setting(0.13, "redistribution: width of the range that counts as near zero")
    arm_p1: float = setting(99.5, "redistribution: percentile up to which activations are lifted")
    task_settings: Mapping[str, Any] | None = setting(None, "settings for all tasks")

    def __post_init__(self) -> None:
        if self.sweep and self.sweep not in SWEEPS:
            raise unknown("sweep", self.sweep, SWEEPS)
        if not self.tasks:
            raise HeadcountError("token-insertion needs at least one task.")
        least = {"seeds": 1, "head": -1}
        for name in ("seeds", "prompts", "sinks", "n", "leave_out", "layer", "head"):
            if getattr(self, name) < (bound := least.get(name, 0)):
                value = getattr(self, name)
                raise HeadcountError(f"{name} must be at least {bound}, not {value}.")
        heads: Any = self.heads  # of any kind, from a command line
        if isinstance(heads, str | int | float):
            raise HeadcountError(
                "Name heads as --heads LAYER.HEAD LAYER.HEAD, with spaces between them."
            )
        if self.keep and not self.heads:
            raise HeadcountError("Name the heads to keep: --heads LAYER.HEAD.")
        if self.decoding not in DECODINGS:
            raise unknown("decoding", self.decoding, DECODINGS)
        if self.seeds > 1 and not self.temperature and self.decoding == "given":
            raise HeadcountError(
                "Without sampling every run writes the same texts: set temperature above 0 for "
                "several seeds."
            )
        self.inserts()
        known = {key for spec in self.tasks for key in TASKS[task_name(spec)].defaults()}
        for key in (key for spec in self.tasks for key in settings_of(self.task_settings, spec)):
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
    def longest(self) -> int:
        """The number of tokens of the longest insert."""
        lengths = [insert.length for insert in self.inserts().values() if not insert.empty]
        return max([*lengths, *(LENGTHS if self.sweep == "length" else [])], default=0)


def task_name(spec: str) -> str:
    """The registered name of a task, given its name or a file of problems.

    >>> task_name("my/problems.jsonl"), task_name("word-problems")
    ('problems', 'word-problems')
    """
    return "problems" if spec.endswith((".json", ".jsonl")) else spec
