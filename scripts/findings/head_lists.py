"""The tables of findings of head lists."""

from __future__ import annotations

from findings.tables import RESULTS, claims, interval, judged, markdown, one, table

LIST = "head-lists/retrieval-head.json"
TASKS = {  # folder: the task, and what is measured
    "head-lists/needle-smollm2-135m-q4-quick": ("needle", "log-probability"),
    "head-lists/ioi-smollm2-135m-q4-quick": ("IOI", "logit difference"),
}
OF_MODEL = "smollm2-135m-q4"
OTHERS = {  # rankings of the same model, and their names on the page
    f"needle/{OF_MODEL}-quick/scores/needle-retrieval-score.json": "retrieval score (needle)",
    f"heads-kept/{OF_MODEL}/scores/{OF_MODEL}-ioi-attribution.json": "IOI, attribution",
    f"heads-kept/{OF_MODEL}/scores/{OF_MODEL}-ioi-patching.json": "IOI, patching",
}
COUNT = "16"


@table("lists-judged")
def lists_judged() -> str:
    """The list on both tasks: values under each mask, and the verdicts."""
    body = []
    for folder, (task, metric) in TASKS.items():
        path = f"{folder}/curves.csv"
        whole = one(path, series="top", count="0")
        masked = [one(path, series=series, count=COUNT) for series in ("top", "random", "matched")]
        verdicts = [judged(claim) for claim in claims(folder)]
        values = [interval(row) for row in (whole, *masked)]
        body.append([f"{task}, {metric}", *values, *verdicts])
    header = ("task", "all heads", "top 16 masked", "16 random masked", "16 of the same layers")
    return markdown((*header, "top − random", "top − same layers"), body)


@table("lists-compared")
def lists_compared() -> str:
    """How many of the best 16 the list shares with rankings of the same model."""
    from headcount.heads import read_list
    from headcount.rankings.agreement import agreement

    own, body = read_list(RESULTS / LIST), []
    for path, name in OTHERS.items():
        other = read_list(RESULTS / path)
        overlap = agreement({"list": own, "other": other}, [int(COUNT)]).overlaps[0]
        by_chance = f"{overlap.chance * overlap.count:.1f}, p = {overlap.p_value:.2g}"
        alike = f"{overlap.layer_chance * overlap.count:.1f}, p = {overlap.layer_p_value:.2g}"
        body.append([name, str(overlap.common), by_chance, alike])
    header = ("the best 16 of", "in common", "by chance", "by chance in the same layers")
    return markdown(header, body)
