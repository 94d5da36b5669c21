"""The tables of findings about rankings: planted circuits, contests, fewer heads than random."""

from __future__ import annotations

from statistics import fmean

from findings.tables import (
    KEPT_MODELS,
    KEPT_TASKS,
    Row,
    kept,
    markdown,
    number,
    rows,
    span,
    table,
)

PLANTED = {
    "usual": "chain of 3, 2 pairs, 1 against",
    "deep": "chain of 4, 1 pair, 1 against",
}
CONTESTS = {"ioi": "contest/smollm2-135m-q4-ioi"}  # the folder of each task
AREAS = {"CPR": 1, "CMD": -1, "masking area": 1}  # whether more is better


@table("kept-fewer")
def kept_fewer() -> str:
    """Heads needed two-sidedly in the best order, over those of random order."""
    body, clear = [], 0
    for task, title in KEPT_TASKS.items():
        for model, (_, name) in KEPT_MODELS.items():
            (row,) = kept(model, "best-order", task=task)
            fewer = float(row["two-sided over random high"]) < 1
            clear += fewer
            counts = [f"{float(row[n]):.0f}" for n in ("two-sided", "two-sided, random", "of")]
            ratio = span(row, "two-sided over random", digits=3)
            body.append([title, name, row["order"], *counts, ratio, "yes" if fewer else "no"])
    body.append(["all", "", "", "", "", "", "", f"{clear} of {len(body)}"])
    header = ["task", "model", "best order", "heads", "in random order", "of", "ratio"]
    return markdown([*header, "clearly fewer"], body)


@table("planted-recovery")
def planted_recovery() -> str:
    """Which rankings find the heads of planted circuits, to keep and to mask."""
    found = {name: rows(f"contest/planted-{name}/recovery.csv") for name in PLANTED}
    rankings = list(dict.fromkeys(row["ranking"] for row in found["usual"]))
    body = []
    for ranking in sorted(rankings, key=lambda one: -_times_exact(found, one)):
        line = [f"`{ranking}`"]
        for goal in ("keep", "mask"):
            for name in PLANTED:
                row = _row(found[name], ranking, goal)
                exact = "**yes**" if row["exact"] == "True" else "no"
                line.append(f"{exact} {float(row['AUROC']):.2f}")
        body.append(line)
    header = [f"{goal}: {name}" for goal in ("keep", "mask") for name in PLANTED.values()]
    return markdown(["ranking", *header], body)


def _row(found: list[Row], ranking: str, goal: str) -> Row:
    (row,) = (row for row in found if row["ranking"] == ranking and row["goal"] == goal)
    return row


def _times_exact(found: dict[str, list[Row]], ranking: str) -> int:
    every = [row for some in found.values() for row in some if row["ranking"] == ranking]
    return sum(row["exact"] == "True" for row in every)


@table("rankings-kept")
def rankings_kept() -> str:
    """The orders of heads-kept over all tasks and models: how often each is best, and how good."""
    found = {
        (task, model): kept(model, "areas", task=task, ablation="mean", axis="linear")
        for task in KEPT_TASKS
        for model in KEPT_MODELS
    }
    orders = [row["order"] for row in next(iter(found.values()))]
    cmd = {
        order: [
            next(float(row["CMD"]) for row in some if row["order"] == order)
            for some in found.values()
        ]
        for order in orders
    }
    least = [min(case) for case in zip(*cmd.values(), strict=True)]
    body = []
    for order in sorted(orders, key=lambda order: fmean(cmd[order])):
        best = sum(value == low for value, low in zip(cmd[order], least, strict=True))
        below = sum(value < by for value, by in zip(cmd[order], cmd["random"], strict=True))
        cells = [number(fmean(cmd[order])), number(max(cmd[order])), f"{best} of {len(least)}"]
        body.append([order, *cells, "" if order == "random" else f"{below} of {len(least)}"])
    header = ["order of heads", "mean CMD", "largest CMD", "smallest of all in"]
    return markdown([*header, "smaller than in random order in"], body)


@table("contest-areas")
def contest_areas() -> str:
    """The areas of every ranking on the bundled model, and their cost; clear gains are bold."""
    body = []
    for task, row in _areas():
        line = [KEPT_TASKS[task], f"`{row['ranking']}`", row["made_for"]]
        for area, sign in AREAS.items():
            end = row[f"{area} minus random {'low' if sign > 0 else 'high'}"] or "nan"
            clear = sign * float(end) > 0
            line.append(f"**{span(row, area)}**" if clear else span(row, area))
        measured = row["passes"] not in ("", "nan")
        body.append([*line, f"{float(row['passes']):,.0f}" if measured else "–"])
    header = ["task", "ranking", "made for", *AREAS]
    return markdown([*header, "passes"], body)


def _areas() -> list[tuple[str, Row]]:
    return [
        (task, row)
        for task, folder in CONTESTS.items()
        for row in rows(f"{folder}/areas.csv", axis="linear")
    ]
