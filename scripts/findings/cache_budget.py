"""The tables of findings of cache budgets."""

from __future__ import annotations

from findings.tables import Row, interval, markdown, rows, table

CACHE = "cache-budget"


CACHE_RANKINGS = {  # folders of one curve on the needle task, by ranking
    "gates": "streaming-gates",
    "ablation": "ablation",
    "attribution": "attribution",
    "retrieval": "retrieval-score",
}


CACHE_FOLDERS = {  # what was measured, by folder
    **{f"smollm2-135m-q4-needle-{end}": f"needle, {r}" for end, r in CACHE_RANKINGS.items()},
    "smollm2-135m-q4-needle-512": "needle of 512 tokens, attribution",
    "smollm2-135m-q4-knowledge-recall": "Knowledge Recall, attribution",
    "smollm2-135m-q4-text": "text, attribution",
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M-needle-160": "1.5B, needle of 160 tokens, attribution",
}


def cache_curve(folder: str, series: str = "top") -> dict[int, Row]:
    """The points of one series of a curve, by the number of heads kept in full."""
    found = rows(f"{CACHE}/{folder}/curves.csv", series=series)
    return {int(row["count"]): row for row in found}


@table("cache-needle")
def cache_needle() -> str:
    """Accuracy on the needle task by heads kept in full, for each ranking."""
    curves = [cache_curve(f"smollm2-135m-q4-needle-{end}") for end in CACHE_RANKINGS]
    curves.append(cache_curve("smollm2-135m-q4-needle-gates", "anywhere"))
    body = [
        [str(count), f"{float(row['cache']):.0%}", *(interval(curve[count]) for curve in curves)]
        for count, row in curves[0].items()
    ]
    return markdown(("heads in full", "cache kept", *CACHE_RANKINGS.values(), "random"), body)


@table("cache-others")
def cache_others() -> str:
    """Another task, text, longer prompts and another model."""
    body = []
    for folder, what in list(CACHE_FOLDERS.items())[len(CACHE_RANKINGS) :]:
        best, drawn = (cache_curve(folder, series) for series in ("top", "anywhere"))
        for count, row in best.items():
            share = f"{float(row['cache']):.0%}"
            body.append([what, str(count), share, interval(row), interval(drawn[count])])
    return markdown(("what", "heads in full", "cache kept", "TopK", "random"), body)


@table("cache-equal")
def cache_equal() -> str:
    """The smallest cache at equal score."""
    body = []
    for folder, what in CACHE_FOLDERS.items():
        for row in rows(f"{CACHE}/{folder}/cache-at-equal-score.csv"):
            lost = interval({**row, "value": row["lost"]})
            smaller = [f"{float(row[name]):.2f}" for name in ("smaller", "long_smaller")]
            name = "TopK" if row["series"] == "top" else "random"
            body.append([what, name, row["count"], lost, *smaller])
    header = ("what", "heads", "in full", "score lost", "smaller", "smaller at 32,768 tokens")
    return markdown(header, body)
