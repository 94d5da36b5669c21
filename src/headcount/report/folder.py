"""The folder that a run leaves behind: figure, tidy table, claims, settings and versions."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headcount import __version__
from headcount.claims import Claim
from headcount.curves import Curve
from headcount.figures.curve import plot_curve, save_figure
from headcount.models.model import Model
from headcount.report import write_page
from headcount.report.head_rows import head_rows
from headcount.system.files import write_csv, write_json
from headcount.tasks import Task


def write_results(
    folder: Path,
    curve: Curve,
    model: Model,
    task: Task,
    settings: Mapping[str, Any],
    claims: Sequence[Claim] = (),
    *,
    command: str = "",
    page: str = "report.html",
) -> list[Path]:
    """Write everything about a curve, its web page too; returns the paths, the picture first."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = save_figure(plot_curve(curve), folder)
    table = folder / "curves.csv"
    curve.to_csv(table)
    scores = folder / "scores.json"
    curve.scores.save(scores)
    known = {curve.scores.method: curve.scores}
    clusters = task.part("ranking").clusters
    heads = write_csv(
        folder / "heads.csv", head_rows(model.name, task.name, known, clusters=clusters)
    )
    run = folder / "run.json"
    facts = run_facts(model, task, settings, curve)
    write_json(run, {"study": "curve", "command": command, **facts})
    paths += [table, scores, heads, run]
    (folder / "claims.json").unlink(missing_ok=True)
    if claims:
        write_json(folder / "claims.json", [asdict(claim) for claim in claims])
        paths.append(folder / "claims.json")
    paths.append(write_page([folder], folder / page))
    return paths


def run_facts(
    model: Model, task: Task, settings: Mapping[str, Any], curve: Curve
) -> dict[str, Any]:
    """Resolved settings, versions and fingerprints: enough to make the same numbers again."""
    chosen = {k: v for k, v in settings.items() if k not in ("command", "json", "quiet")}
    return {
        "settings": chosen,
        "model": {"name": model.name, "heads": list(model.layout.counts), **model.identity},
        "task": {
            "name": task.name,
            "version": task.version,
            "settings": dict(task.parameters),
            "bos": task.bos,
            "chat": task.chat,
            "ranking examples": len(task.part("ranking")),
            "test examples": len(task.part("test")),
        },
        "metric": curve.metric.key,
        "stand_in": curve.stand_in,
        "counts": sorted({point.count for point in curve.points}),
        "left_out": list(curve.left_out),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of everything that may move a number in its last digits."""
    found = {"headcount": __version__, "python": platform.python_version()}
    for package in ("torch", "transformers", "numpy", "tokenizers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
