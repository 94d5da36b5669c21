"""The settings of the study `masked-heads`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import setting

PANELS = ("retrieval", "knowledge-recall", "math", "inference")
FRACTIONS = (16 / 1024, 32 / 1024, 64 / 1024, 128 / 1024)  # of the published model's heads


@dataclass(frozen=True)
class Config:
    """TopK against RandomK masking on cognitive functions.

    The first ranking makes the figure and the claims. A second figure compares it with further
    rankings, for those functions whose items suit them.
    """

    functions: tuple[str, ...] = setting(PANELS, "cognitive functions; all takes all eight")
    rankings: tuple[str, ...] = setting(
        ("attribution",),
        "rankings; all takes all but random, joint ones and learned gates",
        option="ranking",
    )
    counts: tuple[int, ...] | None = setting(
        None, "numbers of heads to mask (the published fractions of all heads)"
    )
    seeds: int = setting(3, "random draws for each count")
    rerankings: int = setting(
        0, "rankings on resampled prompts, whose spread the interval of TopK includes"
    )
    anywhere: int = setting(
        0, "random draws from all heads at one count, among which TopK gets its exact rank"
    )
    n: int = setting(0, "items of each function; 0 takes all")
    scope: str = setting(
        "all", "mask heads at all tokens, or only at new ones", choices=("all", "decode")
    )
    epsilon: float = setting(0.0, "factor by which masked heads are multiplied")
    accuracy: str = setting("exact_match", "first metric: exact_match or published_accuracy")
    similarity: str = setting(
        "auto", "second metric; auto takes comet where its program is found, else similarity"
    )
    task_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.functions or not self.rankings:
            raise HeadcountError("masked-heads needs at least one function and one ranking.")
        if self.rerankings < 0 or self.anywhere < 0 or self.rerankings == 1:
            raise HeadcountError(
                "rerankings is 0 or at least 2 and anywhere 0 or more, not "
                f"{self.rerankings} and {self.anywhere}."
            )


PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"functions": PANELS, "n": 48, "seeds": 3},
    "full": {"functions": ("all",), "n": 0, "seeds": 10, "rerankings": 10, "anywhere": 199},
    # As published, except for a bug: here, TopK heads are kept out of the random draws.
    "paper": {
        "functions": PANELS,
        "n": 0,
        "seeds": 10,
        "anywhere": 199,
        "counts": (16, 32, 64, 128),
        "rankings": ("probe",),
        "epsilon": 0.001,
        "accuracy": "published_accuracy",
    },
}
