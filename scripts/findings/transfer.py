"""The tables of findings of transfer."""

from __future__ import annotations

import re

from findings.tables import (
    FUNCTIONS,
    claims,
    found_at_least,
    judged,
    markdown,
    named,
    number,
    rows,
    table,
)

TRANSFER = "transfer/smollm2-135m-q4-quick"


@table("transfer-matrix")
def transfer_matrix() -> str:
    """By how much the best heads of each function cost each function more than random heads."""
    found = {(row["ranked on"], row["tested on"]): row for row in rows(f"{TRANSFER}/transfer.csv")}
    keys = list(dict.fromkeys(one for one, _ in found))
    body = [
        [
            FUNCTIONS[one],
            *(
                f"{number(row['loss'])}; "
                + named(row, "difference", bold=float(row["difference low"]) > 0)
                for other in keys
                for row in [found[one, other]]
            ),
        ]
        for one in keys
    ]
    return markdown(["ranked on ↓, tested on →", *(FUNCTIONS[key] for key in keys)], body)


@table("transfer-specificity")
def transfer_specificity() -> str:
    """Own loss, row and column of each function, and the specificity beyond random heads."""
    body = [
        [
            FUNCTIONS[row["task"]],
            *(number(row[name]) for name in ("own loss", "others, its heads", "it, others' heads")),
            *(named(row, name) for name in ("specificity", "layer-matched", "difference")),
            named(row, "interaction"),
        ]
        for row in rows(f"{TRANSFER}/specificity.csv")
    ]
    header = ["function", "own loss", "others, its heads", "it, others' heads", "specificity"]
    return markdown([*header, "of layer-matched heads", "difference", "interaction"], body)


@table("transfer-shared")
def transfer_shared() -> str:
    """What both functions lose with and without the heads that they share."""
    body = [
        [
            f"{FUNCTIONS[row['ranked on']]} without {FUNCTIONS[row['without']]}",
            row["shared heads"].replace(" ", ", "),
            f"{number(row['loss on the other'])} → {number(row['without shared heads'])}",
            named(row, "spared"),
            f"{number(row['own loss'])} → {number(row['own loss without shared heads'])}",
            named(row, "given up"),
        ]
        for row in rows(f"{TRANSFER}/without-shared-heads.csv")
    ]
    header = ["heads of", "left out", "loss of the other", "spared", "own loss", "given up"]
    return markdown(header, body)


@table("transfer-claims")
def transfer_claims() -> str:
    """All claims of transfer."""
    body = []
    for claim in claims(TRANSFER):
        said = re.sub(r" \(measured.*", "", claim["claim"])
        said = re.sub(r": its best heads .*", ": by its specificity alone, more than 0.1", said)
        body.append([said, judged(claim, 2), found_at_least(claim)])
    return markdown(["claim", "verdict", "would be found"], body)
