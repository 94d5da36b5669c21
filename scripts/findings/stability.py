"""The tables of findings of stability by cause."""

from __future__ import annotations

import json

from findings.tables import RESULTS, interval, markdown, number, table

SEED = "attention-induction-ioi"
SHOTS = "attribution-present-past-in-context"


def stability(name: str) -> str:
    """The variance table of a ranking on a task."""
    found = json.loads((RESULTS / "stability" / f"{name}.json").read_text("utf-8"))
    body = [
        [
            part["cause"],
            ", ".join(part["levels"]),
            interval(part["share"], 3),
            interval(part["together"], 3) if part["together"] else "–",
            *(number(part[one]) for one in ("correlation", "overlap")),
        ]
        for part in found["parts"]
    ]
    body.append(
        ["heads", "", interval(found["heads"], 3), "", "", f"by chance {number(found['chance'])}"]
    )
    last = f"best {found['top']} in common"
    header = ["cause", "levels", "share of variance", "with prompts", "rank correlation", last]
    return markdown(header, body)


@table("stability-ioi")
def stability_ioi() -> str:
    """Attribution on IOI."""
    return stability("attribution-ioi")


@table("stability-shots")
def stability_shots() -> str:
    """Attribution on a task with solved examples."""
    return stability(SHOTS)


@table("stability-seed")
def stability_seed() -> str:
    """A ranking that draws at random."""
    return stability(SEED)
