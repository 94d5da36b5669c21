"""The tables of findings of teamwork."""

from __future__ import annotations

from findings.tables import (
    KEPT_TASKS,
    claims,
    interval,
    markdown,
    named,
    number,
    one,
    rows,
    table,
    verdict,
)

TEAMWORK = "teamwork/smollm2-135m-q4-quick"


TEAM_CLAIMS = (  # words of each claim in order, and its name on the page
    ("back each other up", "some two back each other up"),
    ("overlap", "some two overlap"),
    ("works against the answer holds back", "some one against the answer holds back"),
)


TEAM_TOGETHER = (
    ("together cost more than the sum", "the ten together cost more than the sum"),
    ("more than for as many random", "… by more than ten random heads do"),
    ("repair more than", "share of a head's cost that is repaired"),
    ("than as many other best heads", "… beyond what as many others would repair"),
)


@table("teamwork-pairs")
def teamwork_pairs() -> str:
    """Every pair that is judged backup, relief or overlap, by intervals that hold together."""
    body = []
    for row in rows(f"{TEAMWORK}/pairs.csv"):
        if row["verdict"] not in ("additive", "undecided"):
            wide = {"value": row["interaction"]}
            wide |= {end: row[f"{end} together"] for end in ("low", "high")}
            losses = [number(row[name]) for name in ("loss of one", "loss of other", "joint loss")]
            pair = f"{row['one']} and {row['other']}"
            body.append([KEPT_TASKS[row["task"]], pair, *losses, interval(wide), row["verdict"]])
    header = ("task", "heads", "loss of one", "of the other", "of both", "interaction", "verdict")
    return markdown(header, sorted(body, key=lambda line: line[-1]))


@table("teamwork-verdicts")
def teamwork_verdicts() -> str:
    """How many pairs of each task have which verdict."""
    found = rows(f"{TEAMWORK}/pairs.csv")
    words = ("backup", "relief", "overlap", "additive", "undecided")
    body = []
    for task in dict.fromkeys(row["task"] for row in found):
        judged_so = [row["verdict"] for row in found if row["task"] == task]
        body.append([KEPT_TASKS[task], *(str(judged_so.count(word)) for word in words)])
    return markdown(("task", *words), body)


@table("teamwork-repair")
def teamwork_repair() -> str:
    """What heads with repairers cost with these on and off."""
    body = [
        [
            row["head"],
            row["repairers"].replace(" ", ", "),
            *(named(row, name) for name in ("loss", "loss without repairers", "share repaired")),
            named(row, "by others"),
        ]
        for row in rows(f"{TEAMWORK}/self-repair.csv", task="ioi")
        if row["repairers"]
    ]
    header = ("head", "repaired by", "loss", "loss with these off", "share repaired")
    return markdown((*header, "as many others would"), body)


@table("teamwork-sets")
def teamwork_sets() -> str:
    """Joint loss and sum of single losses by size of the set."""
    body = []
    for task in ("ioi", "greater-than"):
        for row in rows(f"{TEAMWORK}/sets.csv", task=task, series="top"):
            random = one(f"{TEAMWORK}/sets.csv", task=task, series="random", count=row["count"])
            cells = [named(row, name) for name in ("joint loss", "sum of single losses", "ratio")]
            body.append([KEPT_TASKS[task], row["count"], *cells, named(random, "difference")])
    header = ("task", "heads", "joint loss", "sum of single losses", "ratio")
    return markdown((*header, "random heads: joint − sum"), body)


@table("teamwork-claims")
def teamwork_claims() -> str:
    """All claims of teamwork."""
    tasks = ("IOI", "Greater Than")
    expected = [(w, f"{task}: {name}") for task in tasks for w, name in TEAM_CLAIMS]
    body = []
    for claim, (words, name) in zip(claims(TEAMWORK), [*expected, *TEAM_TOGETHER], strict=True):
        if words not in claim["claim"]:
            raise SystemExit(f"{TEAMWORK}: {claim['claim']} is not about: {words}")
        text = claim["verdict"] if claim["measured"] is None else verdict(claim)
        body.append([name, text])
    return markdown(("claim", "verdict"), body)
