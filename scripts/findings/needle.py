"""The tables of findings of needle."""

from __future__ import annotations

import re

from findings.tables import claims, found_at_least, interval, judged, markdown, rows, table

NEEDLE = "needle/smollm2-135m-q4-quick"


NEEDLE_CLAIMS = (  # the beginning of each claim, and its name on the page
    ("at every length: masking the best heads costs more than 0.05", "TopK − RandomK, accuracy"),
    ("at every length: masking the best heads costs more than 0.05", "TopK − matched, accuracy"),
    ("at every length: masking the best heads costs more than 0.5", "TopK − RandomK, log p"),
    ("at every length: masking the best heads costs more than 0.5", "TopK − matched, log p"),
    ("at every length: masking the best heads only", "late − 0.75 · whole cost, accuracy"),
    ("at every length: masking the best heads only", "late − 0.75 · whole cost, log p"),
    ("the best heads matter more", "longest − shortest, TopK − matched, log p"),
)


def needle_scores(metric: str) -> str:
    """A score by length: the whole model, and the heads masked everywhere or at the answer."""
    body = []
    for whole in rows(f"{NEEDLE}/curves.csv", metric=metric, count="0"):
        cells = [f"{int(whole['length']):,}", interval(whole)]
        for positions in ("all", "answer"):
            for series in ("top", "random", "matched"):
                wanted = {"positions": positions, "series": series, "task": whole["task"]}
                found = rows(f"{NEEDLE}/curves.csv", metric=metric, **wanted)
                cells += [interval(row) for row in found if row["count"] != "0"]
        body.append(cells)
    header = ("tokens", "all heads", "TopK", "RandomK", "layer-matched")
    late = tuple(f"{name}, at the answer" for name in header[2:])
    return markdown((*header, *late), body)


@table("needle-accuracy")
def needle_accuracy() -> str:
    """Accuracy by length."""
    return needle_scores("accuracy")


@table("needle-logprob")
def needle_logprob() -> str:
    """Log-probability of the answer by length."""
    return needle_scores("logprob")


@table("needle-claims")
def needle_claims() -> str:
    """All claims of needle."""
    body = []
    for claim, (start, name) in zip(claims(NEEDLE), NEEDLE_CLAIMS, strict=True):
        if not claim["claim"].startswith(start):
            raise SystemExit(f"{NEEDLE}: {claim['claim']} is not: {start}")
        where = re.search(r"together: (.*?)\.$", claim["reason"])
        decides = where.group(1) if where else "–"
        body.append([name, judged(claim), decides, found_at_least(claim)])
    header = ("claim", "verdict", "at the length that decides", "would be found")
    return markdown(header, body)


@table("needle-heads")
def needle_heads() -> str:
    """The heads with the highest retrieval score."""
    found = rows(f"{NEEDLE}/heads.csv.gz", score="retrieval-score")
    best = sorted(found, key=lambda row: -float(row["value"]))[:8]
    body = [[f"{row['layer']}.{row['head']}", interval(row)] for row in best]
    return markdown(("head", "retrieval score"), body)
