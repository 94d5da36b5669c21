"""The settings of the study `masked-heads`, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import setting
from headcount.studies.presets import Preset

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
    ranking_settings: Mapping[str, Any] = field(default_factory=dict)  # by name of the ranking

    def __post_init__(self) -> None:
        if not self.functions or not self.rankings:
            raise HeadcountError("masked-heads needs at least one function and one ranking.")
        if self.rerankings < 0 or self.anywhere < 0 or self.rerankings == 1:
            raise HeadcountError(
                "rerankings is 0 or at least 2 and anywhere 0 or more, not "
                f"{self.rerankings} and {self.anywhere}."
            )


# CogQA is in the repository of the paper's code (github.com/sihuo-design/CognitiveMirrors, here as
# of commit ccd969e), and not on the hub.
COGQA = {"path": "balanced_cot_train_data.json", "test": "balanced_cot_test_data.json"}
WHERE = "download dataset/{} from github.com/sihuo-design/CognitiveMirrors, or say --set {}=FILE"

PRESETS: dict[str, Mapping[str, Any] | Preset] = {
    "quick": {"functions": PANELS, "n": 48, "seeds": 3},
    "full": {"functions": ("all",), "n": 0, "seeds": 10, "rerankings": 10, "anywhere": 199},
    # As published, except for a bug: here, TopK heads are kept out of the random draws.
    "paper": Preset(
        settings={
            "functions": PANELS,
            "n": 0,
            "seeds": 10,
            "anywhere": 199,
            "counts": (16, 32, 64, 128),
            "rankings": ("probe",),
            "scope": "decode",
            "epsilon": 0.001,
            "accuracy": "published_accuracy",
            "task_settings": {
                **COGQA,
                "form": "json",
                "context": "retrieval",
                "max_new_tokens": 128,
            },
            "ranking_settings": {"probe": {"tokens": 5, "items": 10_000, "max_new_tokens": 128}},
        },
        models=("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-3B-Instruct"),
        loading={"dtype": "float16"},
        local={path: WHERE.format(path, name) for name, path in COGQA.items()},
        inferred=(
            "The words of the prompt are ours; its parts, the plain text without a chat template, "
            "BOS and the answer as JSON are those of the released code (--set form=FILE.txt takes "
            "other words).",
            "Heads are scaled only while new tokens are written, and only earlier Retrieval steps "
            "are known, as in the released code; the paper does not say so.",
            "The probe reads the five tokens of an answer with the highest surprisal. In the paper "
            "a commercial model chooses five.",
            "Answers are compared by MiniLM, where the released code uses a commercial embedding.",
            "RandomK is ten draws outside TopK; published is one draw.",
        ),
    ),
}
