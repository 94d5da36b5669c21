"""`headcount compare`: rank by several methods, and see whether they agree."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headcount.cli.common import lab_from, model_from, print_json, task_from
from headcount.errors import HeadcountError
from headcount.figures.agreement import plot_agreement
from headcount.figures.style import save_figure
from headcount.heads import HeadScores, check_counts
from headcount.rankings import RANKINGS, rank
from headcount.rankings.agreement import agreement
from headcount.report.study import versions
from headcount.system.files import write_json


def compare(arguments: Namespace) -> int:
    """Rank, print the table of agreement, and leave picture, numbers and scores in a folder."""
    ready = _read(arguments.methods)  # refuses before the model is loaded
    found: dict[str, HeadScores] = {}
    with lab_from(arguments) as lab:
        model = model_from(arguments)
        if arguments.counts is not None:
            check_counts(arguments.counts, model.layout)
        task = task_from(arguments, model)
        for name, scores in ready.items():
            settings = _settings(name, arguments.seeds) if scores is None else {}
            found[name] = rank(model, task, name if scores is None else scores, lab=lab, **settings)
    clusters = task.part("ranking").clusters
    by_example = {
        name: clusters
        for name, scores in found.items()
        if scores.samples is not None and len(scores.samples) == len(clusters)
    }
    result = agreement(found, arguments.counts, clusters=by_example)
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = save_figure(
        plot_agreement(result.to_json(), title=f"{task.name} · {model.name}"), folder
    )
    facts = {"model": model.name, "task": task.name, "task_settings": dict(task.parameters)}
    document = {**facts, **result.to_json(), "versions": versions()}
    write_json(folder / "agreement.json", document)
    for name, scores in found.items():
        scores.save(folder / f"scores-{name}.json")
    if getattr(arguments, "json", False):
        print_json(document)
        return 0
    print(result)
    print(f"\nThe picture: {paths[0]}")
    return 0


def _read(methods: list[str]) -> dict[str, HeadScores | None]:
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


def _settings(method: str, seeds: int | None) -> Mapping[str, Any]:
    """The settings of a method: as many seeds as asked for, where it has seeds."""
    takes = "seeds" in RANKINGS[method].defaults()
    return {"seeds": seeds} if takes and seeds is not None else {}
