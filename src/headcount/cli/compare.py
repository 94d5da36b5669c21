"""`headcount compare`: rank by several methods, and see whether they agree."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headcount.cli.common import Answer, announce
from headcount.cli.measure import lab_model_and_task
from headcount.errors import HeadcountError
from headcount.figures.agreement import plot_agreement
from headcount.figures.style import save_figure
from headcount.heads import HeadScores, check_counts
from headcount.rankings import RANKINGS, Ranking, fitting
from headcount.rankings.agreement import agreement
from headcount.report.folder import versions
from headcount.system.files import write_json


def compare(arguments: Namespace) -> Answer:
    """Rank, show the table of agreement, and leave picture, numbers and scores in a folder."""
    ready = read_methods(arguments.methods)  # refuses before the model is loaded
    with lab_model_and_task(arguments) as (lab, model, task):
        if arguments.counts is not None:
            check_counts(arguments.counts, model.layout)
        rankings = {
            name: Ranking.of(model, task, name, **seeds_of(name, arguments.seeds))
            for name, scores in ready.items()
            if scores is None
        }
        if forecast := announce(arguments, lab, rankings.values()):
            return forecast
        by_name = {
            name: rankings[name].result(lab) if scores is None else fitting(scores, model)
            for name, scores in ready.items()
        }
    clusters = task.part("ranking").clusters
    by_example = {
        name: clusters
        for name, scores in by_name.items()
        if scores.samples is not None and len(scores.samples) == len(clusters)
    }
    result = agreement(by_name, arguments.counts, clusters=by_example)
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    figure = plot_agreement(result.to_json(), title=f"{task.name} · {model.name}")
    picture = save_figure(figure, folder)[0]
    facts = {"model": model.name, "task": task.name, "task_settings": dict(task.parameters)}
    document = {**facts, **result.to_json(), "versions": versions()}
    write_json(folder / "agreement.json", document)
    for name, scores in by_name.items():
        scores.save(folder / f"scores-{name}.json")
    return Answer(document, f"{result}\n\nThe picture: {picture}")


def read_methods(methods: Sequence[str]) -> dict[str, HeadScores | None]:
    """Each ranking by the name that tables print: a method's, or that of a file of scores."""
    ready: dict[str, HeadScores | None] = {}
    for method in methods:
        is_file = method.endswith(".json")
        name = Path(method).stem.removeprefix("scores-") if is_file else RANKINGS[method].key
        if name in ready:
            raise HeadcountError(f'"{name}" is there twice: give each ranking once.')
        ready[name] = HeadScores.load(method) if is_file else None
    if len(ready) < 2:
        raise HeadcountError(
            f"Give at least two rankings to compare, of {', '.join(e.key for e in RANKINGS)}, or "
            "files of scores."
        )
    return ready


def seeds_of(method: str, seeds: int | None) -> dict[str, Any]:
    """As many seeds as asked for, where the method has seeds."""
    takes = "seeds" in RANKINGS[method].defaults()
    return {"seeds": seeds} if takes and seeds is not None else {}
