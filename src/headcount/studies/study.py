"""What studies share: the result that they return, and a check of their models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headcount.errors import HeadcountError
from headcount.report.study import Study

if TYPE_CHECKING:
    from headcount.models.model import Model

__all__ = ["Study", "only_model"]


def only_model(models: Sequence[Model], study: str) -> Model:
    """The one model of a study whose figure shows one."""
    if len(models) != 1:
        raise HeadcountError(
            f"{study} takes one model at a time, not {len(models)}: run it once for each."
        )
    return models[0]
