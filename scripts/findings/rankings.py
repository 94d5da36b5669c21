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
QUESTIONS = {
    "which heads do what all do, kept alone?": ("CMD", -1),
    "which heads help most, kept alone?": ("CPR", 1),
    "which heads must go?": ("masking area", 1),
}


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
        for area, sign in QUESTIONS.values():
            text = span(row, area)
            gap = f"{area} minus random"
            end = row[f"{gap} {'low' if sign > 0 else 'high'}"]
            line.append(f"**{text}**" if end and sign * float(end) > 0 else text)
        body.append([*line, f"{float(row['passes']):,.0f}" if row["passes"] else "–"])
    header = ["task", "ranking", "made for", *(area for area, _ in QUESTIONS.values())]
    return markdown([*header, "passes"], body)


@table("contest-choice")
def contest_choice() -> str:
    """For each question the best ranking of each task, and those whose intervals overlap."""
    body = []
    for question, (area, sign) in QUESTIONS.items():
        for task in CONTESTS:
            found = [row for of_task, row in _areas() if of_task == task]
            best, *others = sorted(found, key=lambda row: -sign * float(row[area]))
            near = ", ".join(f"`{row['ranking']}`" for row in others if _overlap(best, row, area))
            text = f"`{best['ranking']}`: {span(best, area)}"
            body.append([question, area, KEPT_TASKS[task], text, near or "none"])
    return markdown(["question", "area", "task", "best", "not told from it"], body)


def _areas() -> list[tuple[str, Row]]:
    return [
        (task, row)
        for task, folder in CONTESTS.items()
        for row in rows(f"{folder}/areas.csv", axis="linear")
    ]


def _overlap(one: Row, other: Row, area: str) -> bool:
    ends = [[float(row[f"{area} {end}"]) for end in ("low", "high")] for row in (one, other)]
    return ends[0][0] <= ends[1][1] and ends[1][0] <= ends[0][1]
