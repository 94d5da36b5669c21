"""Standard benchmarks of lm-eval under head sets. It needs the extra `lm-eval`.

Importing `HeadcountLM` registers the model `headcount` with lm-eval. From a terminal,
`python -m headcount.integrations.lm_eval` does so and then is `lm_eval`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from headcount.integrations.lm_eval.model import HeadcountLM as HeadcountLM
    from headcount.integrations.lm_eval.request import benchmarks as benchmarks

_HOMES = {"benchmarks": "request", "HeadcountLM": "model"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from headcount.tasks.lm_eval_docs import MISSING

        raise HeadcountError(MISSING) from error
