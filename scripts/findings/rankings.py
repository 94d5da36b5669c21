"""The tables of findings about rankings: planted circuits, contests, fewer heads than random."""

from __future__ import annotations

from findings.tables import (
    KEPT_MODELS,
    KEPT_TASKS,
    Row,
    kept,
    markdown,
    rows,
    span,
    table,
)

PLANTED = {
    "usual": "chain of 3, 2 pairs, 1 against",
    "deep": "chain of 4, 1 pair, 1 against",
}
CONTEST = "contest/smollm2-135m-q4"


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


@table("contest-areas")
def contest_areas() -> str:
    """The areas of every ranking on the bundled model, and their cost; clear gains are bold."""
    body = []
    for row in rows(f"{CONTEST}/areas.csv", axis="linear"):
        line = [KEPT_TASKS[row["task"]], f"`{row['ranking']}`", row["made_for"]]
        for area, sign in (("CPR", 1), ("CMD", -1), ("masking area", 1)):
            text = span(row, area)
            gap = f"{area} minus random"
            gained = row[gap] and sign * float(row[f"{gap} {'low' if sign > 0 else 'high'}"]) > 0
            line.append(f"**{text}**" if gained else text)
        body.append([*line, f"{float(row['passes']):,.0f}" if row["passes"] else "–"])
    header = ["task", "ranking", "made for", "CPR", "CMD", "masking area"]
    return markdown([*header, "passes"], body)


@table("contest-choice")
def contest_choice() -> str:
    """For each question the ranking that was best on each task, and those it is not clear of."""
    every = rows(f"{CONTEST}/areas.csv", axis="linear")
    tasks = list(dict.fromkeys(row["task"] for row in every))
    questions = {
        "which heads do what all do, kept alone?": ("CMD", -1),
        "which heads help most, kept alone?": ("CPR", 1),
        "which heads must go?": ("masking area", 1),
    }
    body = []
    for question, (area, sign) in questions.items():
        line = [question, area]
        for task in tasks:
            ranked = [row for row in every if row["task"] == task]
            ranked.sort(key=lambda row: -sign * float(row[area]))
            best, others = ranked[0], ranked[1:]
            near = [row["ranking"] for row in others if _overlap(best, row, area)]
            text = f"`{best['ranking']}` {span(best, area)}"
            line.append(text + (f"; not clear of {', '.join(near)}" if near else ""))
        body.append(line)
    return markdown(["question", "area", *(KEPT_TASKS[task] for task in tasks)], body)


def _overlap(one: Row, other: Row, area: str) -> bool:
    return float(one[f"{area} low"]) <= float(other[f"{area} high"]) and float(
        other[f"{area} low"]
    ) <= float(one[f"{area} high"])
