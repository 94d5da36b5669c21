"""One figure about the results of one study on several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError, unknown
from headcount.figures.across import ModelLine, plot_across
from headcount.figures.layout import both_widths
from headcount.figures.style import save_figure
from headcount.models.weights import about_models, by_size, display_names
from headcount.report.read import Result, number, read_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, str]


@dataclass(frozen=True)
class Axes:
    """What the axes of a study's figure say, and whether heads are kept or masked."""

    x: str
    y: str
    kept: bool = False


STUDIES = {
    "masked-heads": Axes("Masked heads (%)", "Accuracy"),
    "curve": Axes("Heads (%)", "Score"),
    "heads-kept": Axes("Heads kept (%)", "Explained Effect", kept=True),
}


def across(folders: Sequence[str | Path]) -> tuple[dict[str, Figure], str]:
    """The figures by file name, and their caption: each curve by the share of its model's heads."""
    results = [read_result(folder) for folder in folders]
    study = _same_study(results)
    models: dict[str, Any] = {}
    for result in results:
        for model, facts in result.run["model"].items():
            if model in models:
                raise HeadcountError(f"{model} is in two of these folders: give each model once.")
            models[model] = facts
    if len(models) < 2:
        raise HeadcountError("There is one model in these folders: name the results of several.")
    names, order = display_names(models), by_size(models)
    lines: dict[str, list[ModelLine]] = {}
    for result in results:
        tasks = _names(result)
        for model, facts in result.run["model"].items():
            curves = _curves(result.rows, model, sum(facts.get("heads", [])))
            for (task, random), points in curves.items():
                lines.setdefault(tasks.get(task, task), []).append(
                    ModelLine(names[model], points, random=random)
                )
    axes = STUDIES[study]
    how: dict[str, Any] = {"models": [names[model] for model in order], "kept": axes.kept}
    how |= {"xlabel": axes.x, "ylabel": axes.y}
    apart = (
        "Upright lines at some points of random orders are theirs, and a triangle at the frame "
        "marks a band that goes beyond it."
        if axes.kept
        else "The squares at 0, behind a break of the axis, are the whole models; models are drawn "
        "a little apart."
    )
    return both_widths("figure", plot_across, lines, **how), (
        f"{study} by the share of each model's heads. Bands and upright lines are the 95 % "
        "intervals of each result, each for itself: they say nothing about differences between "
        f"models. {apart} {about_models(models, order)}."
    )


def write_across(folders: Sequence[str | Path], out: str | Path) -> tuple[list[Path], str]:
    """Draw the figure and write it into the folder `out`; the caption is returned too."""
    figures, caption = across(folders)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    return [p for name, one in figures.items() for p in save_figure(one, folder, name)], caption


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
