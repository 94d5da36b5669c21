"""The settings of the study `contrast`, and its presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.registry import setting

SKILLS = (
    *("antonym", "capitalise", "country-capital"),
    *("english-french", "present-past", "singular-plural"),
)
FORMS = ("in-context", "instruction")
VARIANTS = ("published", "short")
# How far fits differ is not known from a single one.
LIMITS = {
    "tried": (2, 10**6),
    "shots": (1, 12),
    "updates": (1, 10**5),
    "batch": (1, 10**5),
    "seeds": (2, 1000),
    "random": (1, 1000),
}
SHORT = {"variant": "short", "shots": 3}
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        **SHORT,
        "left_out": ("present-past",),
        "updates": 30,
        "batch": 6,
        "n": 18,
        "tried": 24,
        "random": 1,
    },
    "full": {**SHORT, "updates": 150, "batch": 16},
    "paper": {"updates": 500, "batch": 64, "seeds": 10},
}


@dataclass(frozen=True)
class Config:
    """Gates that keep one form of several skills and forget the other, tested on a further skill.

    One form says a skill by an instruction, the other shows it by solved examples.
    """

    skills: tuple[str, ...] = setting(SKILLS, "skills; a fit uses all but the one that is left out")
    left_out: tuple[str, ...] = setting(
        SKILLS, "skills that are left out of a fit in turn, and tested"
    )
    keep: tuple[str, ...] = setting(
        FORMS, "forms to keep, each in fits of its own; the other form is forgotten", choices=FORMS
    )
    n: int = setting(60, "test prompts of each skill and form; 0 takes all")
    tried: int = setting(
        36, "ranking prompts of each skill and form on which the whole model must beat chance"
    )
    shots: int = setting(5, "solved examples in an in-context prompt")
    updates: int = setting(500, "updates of a fit")
    batch: int = setting(16, "prompts of either form in an update")
    seeds: int = setting(3, "fits of each kept form and left-out skill")
    random: int = setting(3, "random head sets of either kind for each fit")
    variant: str = setting(
        "published",
        "schedule of a fit: as published, or short, from open gates and with larger steps",
        choices=VARIANTS,
    )
    compiled: bool = setting(False, "compile the blocks for the fits, which may help a GPU")

    def __post_init__(self) -> None:
        """Refuse settings that no model can be measured with."""
        for name, chosen, known in (
            ("skill", (*self.skills, *self.left_out), SKILLS),
            ("form", self.keep, FORMS),
            ("variant of contrastive gates", (self.variant,), VARIANTS),
        ):
            for one in chosen:
                if one not in known:
                    raise unknown(name, one, known)
        for name in ("skills", "left_out", "keep"):
            chosen = getattr(self, name)
            if not chosen or len(set(chosen)) < len(chosen):
                raise HeadcountError(f"contrast needs {name} with at least one name, each once.")
        if any(set(self.skills) == {skill} for skill in self.left_out):
            raise HeadcountError(
                "A fit needs a skill besides the one that is left out: name more skills."
            )
        for name, (low, high) in LIMITS.items():
            if not low <= getattr(self, name) <= high:
                raise HeadcountError(
                    f"contrast takes {name} from {low} to {high:,}, not {getattr(self, name):,}."
                )
        if self.n < 0 or self.n == 1:
            raise HeadcountError(f"contrast needs n of at least 2, or 0 for all, not {self.n}.")


def other_form(form: str) -> str:
    """The form that is forgotten where this one is kept.

    >>> other_form("in-context")
    'instruction'
    """
    return FORMS[1 - FORMS.index(form)]
