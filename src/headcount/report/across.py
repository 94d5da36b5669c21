"""One figure about the results of one study on several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headcount.errors import HeadcountError, unknown
from headcount.figures.across import ModelLine, plot_across
from headcount.figures.style import save_figure
from headcount.report.read import Result, number, read_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, str]


@dataclass(frozen=True)
class Axes:
    """What the axes of a study's figure say, and whether shares have a log axis."""

    x: str
    y: str
    log: bool


STUDIES = {
    "masked-heads": Axes("Masked heads (%)", "Accuracy", log=True),
    "curve": Axes("Heads (%)", "Score", log=True),
    "heads-kept": Axes("Heads kept (%)", "Explained Effect", log=False),
}


def across(folders: Sequence[str | Path]) -> tuple[Figure, str]:
    """The figure, and its caption: each curve by the share of its model's heads."""
    results = [read_result(folder) for folder in folders]
    study = _same_study(results)
    lines: dict[str, list[ModelLine]] = {}
    models: dict[str, int] = {}
    for result in results:
        names = _names(result)
        for model, facts in result.run["model"].items():
            if model in models:
                raise HeadcountError(f"{model} is in two of these folders: give each model once.")
            models[model] = sum(facts.get("heads", []))
            for (task, random), points in _curves(result.rows, model, models[model]).items():
                lines.setdefault(names.get(task, task), []).append(
                    ModelLine(model, points, random=random)
                )
    if len(models) < 2:
        raise HeadcountError("There is one model in these folders: name the results of several.")
    axes = STUDIES[study]
    figure = plot_across(lines, xlabel=axes.x, ylabel=axes.y, log=axes.log)
    named = "; ".join(f"{model}, {total} heads" for model, total in models.items())
    left = " The short lines at the left edge are the whole models." if axes.log else ""
    return figure, (
        f"{study} by the share of each model's heads. Bands are the 95 % intervals of each result, "
        f"each for itself: they say nothing about differences between models.{left} {named}."
    )


def write_across(folders: Sequence[str | Path], out: str | Path) -> tuple[list[Path], str]:
    """Draw the figure and write it into the folder `out`; the caption is returned too."""
    figure, caption = across(folders)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    return save_figure(figure, folder), caption


def _same_study(results: Sequence[Result]) -> str:
    studies = list(dict.fromkeys(result.study for result in results))
    for study in studies:
        if study not in STUDIES:
            raise unknown("figure across models of the study", study, STUDIES)
    if len(studies) != 1:
        raise HeadcountError(
            f"These are results of {' and '.join(studies)}: name folders of one study."
        )
    return studies[0]


def _names(result: Result) -> dict[str, str]:
    """The titles of the tasks, as far as the result knows them."""
    facts = result.run.get("facts")
    known = facts.get("functions") or facts.get("tasks") if isinstance(facts, dict) else None
    return {str(key): str(name) for key, name in known.items()} if isinstance(known, dict) else {}


def _curves(
    rows: Sequence[Row], model: str, total: int
) -> dict[tuple[str, bool], list[tuple[float, float, float, float]]]:
    """TopK and RandomK of the first metric, ranking and ablation, by task."""
    own = [row for row in rows if row.get("model") == model]
    first = {
        column: next((row[column] for row in own if row.get("series") == "top"), "")
        for column in ("metric", "ranking", "ablation")
        if own and column in own[0]
    }
    found: dict[tuple[str, bool], list[tuple[float, float, float, float]]] = {}
    for row in own:
        random = row.get("series") == "random"
        # Random heads may have a ranking of their own name.
        wanted = {name: text for name, text in first.items() if name != "ranking" or not random}
        if row.get("series") not in ("top", "random") or not wanted.items() <= row.items():
            continue
        numbers = [number(row.get(name)) for name in ("count", "value", "low", "high")]
        if None in numbers or not total:
            raise HeadcountError(
                f"The points of {model} have no numbers, or the model no heads: run it again."
            )
        count, value, low, high = (float(part or 0) for part in numbers)
        points = found.setdefault((row["task"], random), [])
        if not any(point[0] == 100 * count / total for point in points):
            points.append((100 * count / total, value, low, high))
    return {key: sorted(points) for key, points in found.items()}
