"""The studies: each composes tasks, rankings, curves and claims, and leaves one folder behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headcount.engine.measure.forecast import Forecast, foresee
from headcount.errors import HeadcountError, did_you_mean
from headcount.models.model import Model, load_model
from headcount.registry import Registry
from headcount.store import Store
from headcount.studies.head_roles.study import PRESETS as HEAD_ROLES
from headcount.studies.head_roles.study import head_roles
from headcount.studies.heads_kept.study import PRESETS as HEADS_KEPT
from headcount.studies.heads_kept.study import heads_kept
from headcount.studies.masked_heads.study import PRESETS as MASKED_HEADS
from headcount.studies.masked_heads.study import masked_heads
from headcount.studies.study import Study
from headcount.studies.token_insertion.study import PRESETS as TOKEN_INSERTION
from headcount.studies.token_insertion.study import token_insertion

__all__ = ["MODELS", "PRESETS", "STUDIES", "Study", "foresee_study", "run_study"]

STUDIES: Registry[Study] = Registry("study")
STUDIES.register("masked-heads", "TopK against RandomK masking")(masked_heads)
STUDIES.register("heads-kept", "Explained effect of the heads kept")(heads_kept)
STUDIES.register("head-roles", "Facilitation, irrelevance, interference")(head_roles)
STUDIES.register("token-insertion", "Meaningless and meaningful inserts")(token_insertion)
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "masked-heads": MASKED_HEADS,
    "head-roles": HEAD_ROLES,
    "heads-kept": HEADS_KEPT,
    "token-insertion": TOKEN_INSERTION,
}
# What a study runs on unless told otherwise.
MODELS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(PRESETS, ("smollm2-135m",)),
    "heads-kept": ("smollm2-135m", "sparse:smollm2-135m"),
}


def run_study(
    name: str,
    models: Model | str | Sequence[Model | str] | None = None,
    *,
    preset: str = "quick",
    store: Store | None = None,
    progress: bool = True,
    **settings: Any,
) -> Study:
    """Run a study by its name, on one model or several; settings go over those of the preset.

    >>> from headcount import load_model, run_study
    >>> model = load_model("smollm2-135m")
    >>> study = run_study("masked-heads", model, functions=["syntactic"], n=8, counts=[4], seeds=1)
    >>> sorted({row["series"] for row in study.rows})
    ['matched', 'random', 'top']
    >>> study.claims[0].verdict in ("supported", "refuted", "undecided")
    True

    `study.save(folder)` writes figures, tables, claims and report.
    """
    function, loaded, chosen = _prepare(name, models, preset, settings)
    return function(loaded, **chosen, store=store, progress=progress)


def foresee_study(
    name: str,
    models: Model | str | Sequence[Model | str] | None = None,
    *,
    preset: str = "quick",
    store: Store | None = None,
    **settings: Any,
) -> Forecast:
    """What `run_study` with these arguments would measure: nothing is measured to find out."""
    function, loaded, chosen = _prepare(name, models, preset, settings)
    if "say" in chosen:
        chosen["say"] = lambda text: None
    return foresee(lambda kept: function(loaded, **chosen, store=kept, progress=False), store)


def _prepare(
    name: str,
    models: Model | str | Sequence[Model | str] | None,
    preset: str,
    settings: Mapping[str, Any],
) -> tuple[Callable[..., Study], list[Model], dict[str, Any]]:
    """The study, its models and its settings; refuses what there is not."""
    entry = STUDIES[name]
    known = PRESETS[name]
    if preset not in known:
        raise HeadcountError(
            f'There is no preset "{preset}" of {name} (known: {", ".join(known)}).'
            f"{did_you_mean(preset, known)}"
        )
    chosen = entry.bind(**{**known[preset], **settings})
    chosen = {key: value for key, value in chosen.items() if key not in ("store", "progress")}
    several = [models] if isinstance(models, (Model, str)) else models or MODELS[name]
    loaded = [load_model(one) if isinstance(one, str) else one for one in several]
    return entry.function, loaded, chosen
