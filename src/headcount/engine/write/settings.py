"""Settings of decoding: how tokens are drawn, which passes are gated, and where a text ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from headcount.errors import HeadcountError, unknown
from headcount.models.model import Model
from headcount.models.sites import plain
from headcount.tasks.answer_endings import check_ending

Scope = Literal["all", "decode"]


def check_scope(scope: str) -> None:
    """Refuse an unknown scope."""
    if scope not in get_args(Scope):
        raise unknown("scope", scope, get_args(Scope))


@dataclass(frozen=True)
class Sampled:
    """How tokens are drawn; temperature 0 is greedy: it takes the most likely token."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    @property
    def identity(self) -> dict[str, float]:
        """The settings that determine a text; none for greedy decoding, which draws nothing."""
        if not self.temperature:
            return {}
        return {"temperature": self.temperature, "top_p": self.top_p, "seed": self.seed}


# Settings of a model by which we do not decode, and their values where they change nothing.
NOT_OURS = {"top_k": (None, 0), "min_p": (None, 0.0), "typical_p": (None, 1.0)}
NOT_OURS |= {"repetition_penalty": (None, 1.0), "num_beams": (None, 1)}


def own_sampling(model: Model) -> tuple[Sampled, list[str]]:
    """How a model's own generation settings draw tokens, and settings among them that we lack.

    Without `do_sample` it is greedy, as in transformers.
    """
    config = getattr(plain(model.module), "generation_config", None)
    if not getattr(config, "do_sample", None):
        return Sampled(), []
    lacking = [name for name, same in NOT_OURS.items() if getattr(config, name, None) not in same]
    temperature, top_p = (getattr(config, name, None) for name in ("temperature", "top_p"))
    own = Sampled(*(1.0 if v is None else float(v) for v in (temperature, top_p)))  # type: ignore[arg-type]
    return own, lacking


@dataclass(frozen=True)
class Decoding(Sampled):
    """The settings of `generate` that hold for every text."""

    max_new_tokens: int = 128
    scope: Scope = "all"
    stop: str | Sequence[str] = ()  # always a tuple after __init__
    until: str = ""

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        object.__setattr__(self, "stop", stop)
        check_scope(self.scope)
        check_ending(self.until)
        if self.max_new_tokens < 1:
            raise HeadcountError(f"Ask for at least one new token, not {self.max_new_tokens}.")
        if not (self.temperature >= 0 and 0 < self.top_p <= 1):
            raise HeadcountError(
                "The temperature must be at least 0, and top_p above 0 and at most 1."
            )
        if not all(stop):
            raise HeadcountError("A stop string is empty and would end every text: leave it out.")

    @property
    def stops(self) -> bool:
        """Whether the content of a text may end it: a stop string or the rule `until`."""
        return bool(self.stop or self.until)

    def check(self, model: Model) -> None:
        """Refuse a model that cannot decode with these settings."""
        if self.stops and model.tokenizer is None:
            raise HeadcountError("Stop strings need a tokenizer: load or wrap the model with one.")
        if not hasattr(plain(model.module), "generate"):
            raise HeadcountError(
                f"{model.name} cannot decode: it has no `generate`, as Hugging Face models do."
            )
