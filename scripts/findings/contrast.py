"""The tables of findings of contrast."""

from __future__ import annotations

import re

from findings.tables import (
    claims,
    found_at_least,
    interval,
    judged,
    markdown,
    number,
    rows,
    table,
)

CONTRAST = "contrast/smollm2-135m-q4-quick"


FORMS = ("in-context", "instruction")


SERIES_OF_GATES = {
    "gates": "gates",
    "heads": "heads",
    "random heads": "random heads",
    "layer-matched heads": "layer-matched",
}


def skill_name(key: str) -> str:
    """The name of a small skill: Present-Past."""
    return "-".join(word.capitalize() for word in key.split("-"))


# What each claim about one kept form says, in the order of claims.json; and its name on the page.
CONTRAST_CLAIMS = (
    ("gates, .* in this form falls by less", "gates: the kept form stays, above −0.5"),
    ("gates, .* falls further than with", "gates: the other falls further than by random, by 0.5"),
    ("gates are selective", "gates: it falls further than the kept one, by 0.5 beyond random"),
    ("off, .* in this form falls by less", "heads: the kept form stays, above −0.5"),
    ("off, .* falls further than with", "heads: the other falls further than by random, by 0.5"),
    ("shut are selective", "heads: it falls further than the kept one, by 0.5 beyond random"),
    ("off, accuracy in this form", "heads: accuracy in the kept form, within 0.1"),
)


@table("contrast-whole")
def contrast_whole() -> str:
    """What the whole model can do, in both forms."""
    found = rows(f"{CONTRAST}/whole-model.csv")
    body = []
    for skill in dict.fromkeys(row["task"] for row in found):
        own = {row["form"]: row for row in found if row["task"] == skill}
        cells = [
            cell
            for form in FORMS
            for cell in (number(own[form]["accuracy to rank"]), interval(own[form]))
        ]
        able = all(own[form]["above chance"] == "yes" for form in FORMS)
        body.append([skill_name(skill), *cells, "yes" if able else "no"])
    header = [f"{form}, {split}" for form in FORMS for split in ("to rank", "test")]
    return markdown(["skill", *header, "in fits"], body)


@table("contrast-changes")
def contrast_changes() -> str:
    """The change of both forms under the gates, their heads, and random heads."""
    body = []
    found = rows(f"{CONTRAST}/curves.csv")
    for metric, name in (("logprob_per_token", "log p per token"), ("accuracy", "accuracy")):
        for skill, kept in dict.fromkeys((row["task"], row["kept"]) for row in found):
            for form in FORMS:
                own = {"metric": metric, "task": skill, "kept": kept, "form": form}
                here = {row["series"]: row for row in found if own.items() <= row.items()}
                role = "kept" if form == kept else "forgotten"
                cells = [interval(here[series]) for series in SERIES_OF_GATES]
                body.append([skill_name(skill), f"{form}, {role}", name, *cells])
    return markdown(["skill left out", "form", "change of", *SERIES_OF_GATES.values()], body)


@table("contrast-gates")
def contrast_gates() -> str:
    """How many heads the gates shut, and how far fits agree."""
    body = [
        [
            skill_name(row["task"]),
            row["kept"],
            ", ".join(map(skill_name, row["fitted to"].split(", "))),
            f"{number(row['heads shut'], 0)} ({row['fewest']} to {row['most']})",
            number(row["shared by two fits"]),
            number(row["by chance"]),
            number(row["undecided"]),
        ]
        for row in rows(f"{CONTRAST}/gates.csv")
    ]
    header = ["skill left out", "form kept", "fitted to", "heads shut", "shared by two fits"]
    return markdown([*header, "by chance", "share of gates undecided"], body)


@table("contrast-claims")
def contrast_claims() -> str:
    """The verdicts: a row for each claim, and the kept forms beside each other."""
    found = claims(CONTRAST)
    if len(found) != len(FORMS) * len(CONTRAST_CLAIMS):
        raise SystemExit(f"{CONTRAST} has {len(found)} claims.")
    body = []
    for place, (said, name) in enumerate(CONTRAST_CLAIMS):
        cells = []
        for form, claim in zip(FORMS, found[place :: len(CONTRAST_CLAIMS)], strict=True):
            if not re.match(f"keeping {form}: .*{said}", claim["claim"]):
                raise SystemExit(f"{CONTRAST}: {claim['claim']} is not: {said}")
            cells += [judged(claim, 2), found_at_least(claim)]
        body.append([name, *cells])
    header = [cell for form in FORMS for cell in (f"{form} kept", "would be found")]
    return markdown(["claim", *header], body)
