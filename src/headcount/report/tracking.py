"""Log a study into the run of an experiment tracker: Weights & Biases, trackio or MLflow.

    wandb.init(project="heads"); study.log_to("wandb")
    trackio.init(project="heads"); study.log_to("trackio")
    with mlflow.start_run(): study.log_to("mlflow")

Each gets the study's tables as its own tables, and the figures as pictures.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError, unknown

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Tables = Mapping[str, "pandas.DataFrame"]
# Whether there is a run; MLflow would start one by itself, which nobody ends.
RUNNING: Mapping[str, Callable[[Any], Any]] = {
    "wandb": lambda module: module.run,
    "trackio": lambda module: module.context_vars.current_run.get(),
    "mlflow": lambda module: module.active_run(),
}
STARTS = {"wandb": "wandb.init()", "trackio": "trackio.init()", "mlflow": "mlflow.start_run()"}


def log_tables(tracker: str, tables: Tables, figures: Mapping[str, Figure]) -> None:
    """Log tables and figures into the run that the tracker has now."""
    if tracker not in STARTS:
        raise unknown("tracker", tracker, STARTS)
    module = sys.modules.get(tracker)  # whoever has started a run has imported it
    if module is None or not RUNNING[tracker](module):
        raise HeadcountError(f"{tracker} has no run to log into: call {STARTS[tracker]} first.")
    if tracker == "mlflow":
        for name, table in tables.items():
            module.log_table(table, f"{name}.json")
        for name, figure in figures.items():
            module.log_figure(figure, f"{name}.png")
        return
    pictures = {name: module.Image(_picture(figure)) for name, figure in figures.items()}
    module.log({n: module.Table(dataframe=table) for n, table in tables.items()} | pictures)


def _picture(figure: Figure) -> Any:
    from PIL import Image  # a dependency of matplotlib

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=200)
    return Image.open(file)
