"""The studies: each composes tasks, rankings, curves and claims, and leaves one folder behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headcount.errors import HeadcountError, did_you_mean
from headcount.models.model import Model, load_model
from headcount.registry import Registry
from headcount.store import Store
from headcount.studies.head_roles import PRESETS as HEAD_ROLES
from headcount.studies.head_roles import head_roles
from headcount.studies.masked_heads import PRESETS as MASKED_HEADS
from headcount.studies.masked_heads import masked_heads
from headcount.studies.study import Study
from headcount.studies.token_insertion import PRESETS as TOKEN_INSERTION
from headcount.studies.token_insertion import token_insertion

__all__ = ["PRESETS", "STUDIES", "Study", "run_study"]

STUDIES: Registry[Study] = Registry("study")
STUDIES.register("masked-heads", "TopK against RandomK masking")(masked_heads)
STUDIES.register("head-roles", "Facilitation, irrelevance, interference")(head_roles)
STUDIES.register("token-insertion", "Meaningless and meaningful inserts")(token_insertion)
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "masked-heads": MASKED_HEADS,
    "head-roles": HEAD_ROLES,
    "token-insertion": TOKEN_INSERTION,
}


def run_study(
    name: str,
    models: Model | str | Sequence[Model | str] = "smollm2-135m",
    *,
    preset: str = "quick",
    store: Store | None = None,
    progress: bool = True,
    **settings: Any,
) -> Study:
    """Run a study by its name, on one model or several; settings go over those of the preset.

    >>> from headcount import run_study
    >>> study = run_study("masked-heads", preset="quick", n=24, seeds=2)  # doctest: +SKIP
    >>> study.save("out/masked-heads")  # doctest: +SKIP
    """
    entry = STUDIES[name]
    known = PRESETS[name]
    if preset not in known:
        raise HeadcountError(
            f'There is no preset "{preset}" of {name} (known: {", ".join(known)}).'
            f"{did_you_mean(preset, known)}"
        )
    chosen = entry.bind(**{**known[preset], **settings})
    chosen |= {"store": store, "progress": progress}
    several = [models] if isinstance(models, (Model, str)) else models
    loaded = [load_model(one) if isinstance(one, str) else one for one in several]
    return entry.function(loaded, **chosen)
