"""The bundled model, loaded once for all real tests: ten seconds each time would add up."""

from __future__ import annotations

from functools import cache

from headcount import load_model
from headcount.models.model import Model


@cache
def bundled(name: str = "smollm2-135m-q4") -> Model:
    return load_model(name)
