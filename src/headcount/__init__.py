"""headcount tells which attention heads a language model needs.

The names below load torch only when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headcount.models.kinds import KINDS, ModelKind

if TYPE_CHECKING:
    from headcount.claims import Claim as Claim
    from headcount.curves import Curve as Curve
    from headcount.curves.curve import curve as curve
    from headcount.decorators import metric as metric
    from headcount.decorators import ranking as ranking
    from headcount.decorators import study as study
    from headcount.decorators import task as task
    from headcount.engine.measure.sweep import Values as Values
    from headcount.engine.read.collect import collect as collect
    from headcount.engine.write.decode import generate as generate
    from headcount.errors import HeadcountError as HeadcountError
    from headcount.explorer.explore import explore as explore
    from headcount.heads import Head as Head
    from headcount.heads import HeadLayout as HeadLayout
    from headcount.heads import HeadScores as HeadScores
    from headcount.heads import HeadSet as HeadSet
    from headcount.lab import Lab as Lab
    from headcount.lab import evaluate as evaluate
    from headcount.models.adapter_folder import export_adapters as export_adapters
    from headcount.models.export import export as export
    from headcount.models.gated import gated as gated
    from headcount.models.model import Model as Model
    from headcount.models.model import load_model as load_model
    from headcount.models.model import wrap as wrap
    from headcount.models.prune import prune as prune
    from headcount.rankings.ranking import rank as rank
    from headcount.report.study import Study as Study
    from headcount.stats import Interval as Interval
    from headcount.store import Store as Store
    from headcount.studies.run import run_study as run_study
    from headcount.tasks import make_task as make_task
    from headcount.tasks.task import Example as Example
    from headcount.tasks.task import Task as Task

__version__ = "0.2.0"

_HOMES = {
    "Claim": "headcount.claims",
    "Study": "headcount.report.study",
    "Interval": "headcount.stats",
    "Values": "headcount.engine.measure.sweep",
    "Model": "headcount.models.model",
    "HeadSet": "headcount.heads",
    "Curve": "headcount.curves",
    "Example": "headcount.tasks.task",
    "Head": "headcount.heads",
    "HeadLayout": "headcount.heads",
    "HeadScores": "headcount.heads",
    "HeadcountError": "headcount.errors",
    "Lab": "headcount.lab",
    "Store": "headcount.store",
    "Task": "headcount.tasks.task",
    "curve": "headcount.curves.curve",
    "evaluate": "headcount.lab",
    "explore": "headcount.explorer.explore",
    "generate": "headcount.engine.write.decode",
    "gated": "headcount.models.gated",
    "export": "headcount.models.export",
    "export_adapters": "headcount.models.adapter_folder",
    "prune": "headcount.models.prune",
    "collect": "headcount.engine.read.collect",
    "load_model": "headcount.models.model",
    "make_task": "headcount.tasks",
    "metric": "headcount.decorators",
    "rank": "headcount.rankings.ranking",
    "ranking": "headcount.decorators",
    "run_study": "headcount.studies.run",
    "study": "headcount.decorators",
    "task": "headcount.decorators",
    "wrap": "headcount.models.model",
}

KINDS.append(ModelKind("sparse:", "sparse.json", module="headcount.sparse.checkpoint"))

__all__ = [
    "__version__",
    *_HOMES,
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headcount' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
