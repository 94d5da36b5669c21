"""A single curve as a `Study`, so that it gets the same folder and page as a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.claims import Claim
from headcount.curves import Curve
from headcount.models.model import Model
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.tasks import Task


def curve_study(
    curve: Curve,
    model: Model,
    task: Task,
    settings: Mapping[str, Any],
    claims: Sequence[Claim] = (),
) -> Study:
    """Make a `Study` of a curve; the settings the curve was made with override `settings`."""
    scores = {curve.scores.ranking: curve.scores}
    clusters = task.split("ranking").clusters
    return Study(
        name="curve",
        title=f"curve · {task.name} · {model.name}",
        rows=curve.rows,
        claims=claims,
        figures={"figure": curve.figure()},
        settings={
            **settings,
            "task": {
                "name": task.name,
                "version": task.version,
                "settings": dict(task.parameters),
                "bos": task.bos,
                "prefix": model.prefix_of(task),
                "chat": task.chat,
                "ranking examples": len(task.split("ranking")),
                "test examples": len(task.split("test")),
            },
            "metric": curve.metric.key,
            "ablation": curve.ablation,
            "counts": sorted({point.count for point in curve.points}),
        },
        model={model.name: model.facts},
        scores=scores,
        heads=head_rows(model.name, task.name, scores, clusters=clusters),
        notes=curve.notes,
        values=value_rows(curve.raw, curve.clusters),
    )


def value_rows(
    raw: Mapping[tuple[str, int], Float[np.ndarray, "_ examples"]],
    clusters: Int[np.ndarray, "examples"],
    **facts: str,
) -> list[dict[str, Any]]:
    """One row for every value of every example, with the cluster of the example.

    `raw` maps series and count to values; `facts` are columns that are the same in all rows.
    """
    columns = ("series", "count", "draw", "example", "cluster", "value")
    return [
        {**facts, **dict(zip(columns, (series, count, draw, example, cluster, value), strict=True))}
        for (series, count), draws in raw.items()
        for draw, values in enumerate(draws.tolist())
        for example, (cluster, value) in enumerate(zip(clusters, values, strict=True))
    ]
