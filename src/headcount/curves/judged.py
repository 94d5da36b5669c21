"""Whether the best heads of a ranking or a published list matter more than random heads do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headcount.curves.curve import OUTSIDE, CurveRequest
from headcount.errors import HeadcountError
from headcount.heads import HeadScores, check_counts

CONTROLS = {
    "random": "random others",
    "matched": "random others of the same layers",
    "anywhere": "random ones of all",
}


def judged(
    request: CurveRequest, count: int | None
) -> tuple[CurveRequest, tuple[dict[str, Any], ...]]:
    """The request with this count, and the claims on its best heads, as `curve_study` takes them.

    Without a count, a list that names only some heads is judged by all that it names, and nothing
    else is judged. The claims have a margin of 0: the best heads matter more than controls do.
    """
    ranking, settings, layout = request.ranking, request.settings, request.model.layout
    if count is None:
        if not isinstance(ranking, HeadScores) or ranking.listed == layout.total:
            return request, ()
        count = ranking.listed
        if count not in request.counts:  # the counts that were asked for leave the list's end out
            return request, ()
    controls = [name for name in settings.series if name in CONTROLS]
    if not 0 < count < layout.total or "top" not in settings.series or not controls:
        raise HeadcountError(
            "--judge compares the top heads with as many random ones: give a number between 0 and "
            f"{layout.total}, and the series top and one of {', '.join(CONTROLS)}."
        )
    if 2 * count > layout.total and all(name in OUTSIDE for name in controls):
        raise HeadcountError(
            f"There are not as many heads outside the top {count} of {layout.total}: judge fewer "
            "heads, or add --series top anywhere."
        )
    counts = sorted({*request.counts, *check_counts([count], layout)})
    wider = replace(request, settings=replace(settings, counts=counts))
    measured = {name for name, of in wider.points[0] if of == count}
    return wider, tuple(_comparison(wider, count, name) for name in controls if name in measured)


def _comparison(request: CurveRequest, count: int, control: str) -> dict[str, Any]:
    metric, mask = request.metric.key.replace("_", " "), request.settings.mode == "mask"
    ranking = request.ranking
    name = ranking.ranking if isinstance(ranking, HeadScores) else ranking.name
    verb, effect = ("masking", "lowers") if mask else ("keeping only", "leaves")
    words = f"{verb} the top {count} of {name} {effect} {'' if mask else 'a higher '}{metric}"
    sides = {"one": "top", "other": control} if mask else {"one": control, "other": "top"}
    than = f"{' more' if mask else ''} than {verb} {count} {CONTROLS[control]}"
    return {"claim": words + than, **sides, "count": count, "below": 0.0}
