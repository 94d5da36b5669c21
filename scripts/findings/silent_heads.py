"""The tables of findings of silent-heads."""

from __future__ import annotations

import re

from findings.tables import claims, found_at_least, interval, markdown, one, span, table

SILENT, EVERY = "silent-heads/smollm2-135m-q4-quick", "mean over tasks"


ACTIVITY = {  # scores of activity, as the page names them
    "relative-norm": "layer-relative norm (published best)",
    "output-norm": "output norm",
    "first-token": "first-token attention",
    "value-norm": "first-token value",
    "entropy": "attention entropy",
    "written": "write share (ours)",
}


RANDOM_HEADS = {"random": "random heads †", "matched": "random heads by layer †"}


# What a claim of silent-heads starts with, in the order of claims.json; with its margin.
SILENT_CLAIMS = (
    (
        "at least 12%",
        "12 % of the heads at less than 1 % loss of accuracy, as published",
        "below 0.01",
    ),
    ("at least 12%", "the same, on these tasks", "below 0.01"),
    ("the layer-relative norm is the best", "the published best is best, as published", "above 0"),
    ("the layer-relative norm is the best", "the same, on these tasks, by accuracy", "above 0"),
    ("the layer-relative norm is the best", "the same, by margin", "above 0"),
    ("heads chosen for each input", "per input beats constant, by accuracy", "above 0"),
    ("heads chosen for each input", "per input beats constant, by margin", "above 0"),
    ("heads chosen for each input", "per input beats random heads, by accuracy", "above 0"),
    ("heads chosen for each input", "per input beats random heads, by margin", "above 0"),
)


def silent_rows() -> list[tuple[str, str, str]]:
    """Name, series and score of each line of the tables."""
    scores = [(name, "per-input", score) for score, name in ACTIVITY.items()]
    return scores + [(name, series, next(iter(ACTIVITY))) for series, name in RANDOM_HEADS.items()]


@table("silent-loss")
def silent_loss() -> str:
    """What zeroing at least 12 % of the heads costs, by score."""
    body = []
    for name, series, score in silent_rows():
        row = one(f"{SILENT}/loss.csv", task=EVERY, series=series, score=score)
        parts = ("zeroed", "loss", "loss of margin")
        body.append([name, *(span(row, part, digits=1, scale=100) for part in parts)])
    return markdown(
        ("heads chosen by", "heads zeroed, %", "loss of accuracy, %", "loss of margin, %"), body
    )


@table("silent-areas")
def silent_areas() -> str:
    """The area under each curve, per input and with constant heads."""
    body = []
    for name, series, score in silent_rows():
        cells = [name]
        for metric in ("accuracy", "margin"):
            for form in (series, "constant") if series == "per-input" else (series,):
                about = {"task": EVERY, "series": form, "score": score, "metric": metric}
                cells.append(span(one(f"{SILENT}/areas.csv", **about)))
            cells += ["–"] * (series != "per-input")
        body.append(cells)
    header = ("accuracy, per input", "accuracy, constant", "margin, per input", "margin, constant")
    return markdown(("heads chosen by", *header), body)


@table("silent-claims")
def silent_claims() -> str:
    """Every claim with its verdict."""
    body = []
    for claim, (start, name, margin) in zip(claims(SILENT), SILENT_CLAIMS, strict=True):
        if not claim["claim"].startswith(start):
            raise SystemExit(f"{SILENT}: {claim['claim']} is not: {start}")
        ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
        decides = re.search(r"hold together: (.*?)\.", claim["reason"])
        where = decides.group(1) if decides else "–"
        seen = found_at_least(claim)
        body.append([name, margin, interval(ends), claim["verdict"], where, seen])
    header = ("claim", "margin", "measured", "verdict", "what decides", "would be found")
    return markdown(header, body)
