"""The tables of findings of head-roles."""

from __future__ import annotations

import json
import re

from findings.tables import (
    RESULTS,
    Row,
    claims,
    fixed,
    interval,
    markdown,
    one,
    rows,
    table,
)

ROLES = "head-roles/smollm2-135m-q4"


PANELS = ("Syntax", "Common Sense", "Math")


ROLE_CLAIMS = (
    ("facilitation falls", "facilitation falls, by more than 0.1"),
    ("irrelevance stays", "irrelevance stays, within a quarter of that fall"),
    ("interference rises", "interference rises at first, by more than 0.05"),
    ("interference does not fall early", "interference does not fall early"),
    ("the first of two", "the first description holds"),
    ("the second description", "the second description holds"),
    ("roles tell more than chance", "facilitation falls further than a random order"),
    ("Math is by far the most sensitive task, in sum", "Math is the most sensitive, in sum"),
    (
        "Math is by far the most sensitive task, by the token",
        "Math is the most sensitive, by token",
    ),
    ("the largest model falls least", "the largest model falls least"),
)


def change(task: str, series: str, count: int, metric: str = "logprob change") -> Row:
    """Δ of a role at a count."""
    wanted = {"task": task, "series": series, "count": str(count), "metric": metric}
    return one(f"{ROLES}/curves.csv", **wanted)


@table("roles-fall")
def roles_fall() -> str:
    """The fall of facilitation, beside a random order and the published end points."""
    body = []
    for task in PANELS:
        wanted = {"task": task, "series": "facilitation"}
        published: dict[str, list[str]] = {}
        for row in rows(f"{ROLES}/end-points.csv", **wanted):
            point = row["published"].removeprefix("end point ").replace("-", "−")
            published.setdefault(row["count"], []).append(f"{point} ({row['published model']})")
        for count in sorted(map(int, published)):
            row = change(task, "facilitation", count)
            random = change(task, "random order", count)
            share = f"{count} ({100 * float(row['share']):.1f} %)"
            beside = ", ".join(published[str(count)])
            body.append([task, share, interval(row), interval(random), beside])
    header = (
        *("task", "heads ablated", "Δ facilitation", "Δ random order"),
        "published Δ facilitation at this share",
    )
    return markdown(header, body)


@table("roles-others")
def roles_others() -> str:
    """Irrelevance and interference, as shares of the fall of facilitation."""
    body = []
    for task in PANELS:
        for role in ("irrelevance", "interference"):
            cells = [task, role, f"{float(change(task, role, 20)['carriers']):.0f}"]
            for count in (20, 50):
                row, fall = change(task, role, count), change(task, "facilitation", count)
                share = float(row["value"]) / abs(float(fall["value"]))
                cells += [interval(row), fixed(share, 2, "+")]
            body.append(cells)
    header = (
        *("task", "role", "heads that carry it", "Δ, 20 heads", "of the fall"),
        *("Δ, 50 heads", "of the fall"),
    )
    return markdown(header, body)


@table("roles-interference")
def roles_interference() -> str:
    """Interference from soft gates and from the whole model."""
    body = []
    for task in PANELS:
        peak = one(f"{ROLES}/peaks-of-interference.csv", task=task)
        ends = [fixed(peak[f"{end} together"]) for end in ("low", "high")]
        cells = [task, f"{float(change(task, 'interference', 2)['carriers']):.0f}"]
        for count in (2, 12, 20):
            cells.append(interval(change(task, "interference", count)))
        whole = "logprob change, plain model"
        plain = [interval(change(task, "interference", count, whole)) for count in (12, 20)]
        body.append([*cells, f"[{', '.join(ends)}]", *plain])
    header = (
        *("task", "heads that interfere", "Δ, 2 heads", "Δ, 12 heads", "Δ, 20 heads"),
        *("the highest Δ, all counts and panels together", "whole model, 12 heads"),
        "whole model, 20 heads",
    )
    return markdown(header, body)


@table("roles-sensitivity")
def roles_sensitivity() -> str:
    """The fall of facilitation in sum and by the token."""
    facts = json.loads((RESULTS / ROLES / "run.json").read_text("utf-8"))["facts"]
    tokens = {panel["task"]: panel["tokens"] for panel in facts["panels"]}
    body = []
    for task in PANELS:
        cells = [task, f"{sum(tokens[task]) / len(tokens[task]):.1f}"]
        for count in (20, 50):
            for metric in ("logprob change", "logprob change per token"):
                cells.append(interval(change(task, "facilitation", count, metric)))
        body.append(cells)
    header = (
        *("task", "tokens of a target", "sum, 20 heads", "by token, 20 heads"),
        *("sum, 50 heads", "by token, 50 heads"),
    )
    return markdown(header, body)


@table("roles-seeds")
def roles_seeds() -> str:
    """Shares of heads that carry a role: in one seed, in all seeds and in any."""

    def percents(*values: str) -> list[str]:
        return [f"{100 * float(value):.1f}" for value in values]

    body = []
    for row in rows(f"{ROLES}/role-shares.csv"):
        over = one(f"{ROLES}/roles-over-seeds.csv", task=row["task"], role=row["role"])
        share, low, high = percents(row["share"], row["lowest"], row["highest"])
        always, by_chance, anyhow = percents(
            over["always"], over["always if seeds were independent"], over["any"]
        )
        body.append(
            [
                *(row["task"], row["role"], f"{share} ({low} to {high})", row["published"] or "–"),
                *(always, by_chance, over["published always"] or "–"),
                *(anyhow, over["published any"] or "–"),
            ]
        )
    header = (
        *("task", "role", "in a seed, % (lowest to highest)", "published", "in all seeds, %"),
        *("in all, if seeds were independent", "published", "in any seed, %", "published"),
    )
    return markdown(header, body)


@table("roles-descriptions")
def roles_descriptions() -> str:
    """The two descriptions of the published figure, side by side."""
    found = rows(f"{ROLES}/two-descriptions.csv")
    body = [[row["what"].partition(" (tests/")[0], row["first"], row["second"]] for row in found]
    return markdown(("", "the first", "the second"), body)


@table("roles-claims")
def roles_claims() -> str:
    """All claims of head-roles."""
    body = []
    for number, (claim, (start, name)) in enumerate(
        zip(claims(ROLES), ROLE_CLAIMS, strict=True), start=1
    ):
        if not claim["claim"].startswith(start):
            raise SystemExit(f"{ROLES}: {claim['claim']} is not: {start}")
        places = re.search(r"(?:Farthest from .*?: )(.*?)(?: \(smollm2-135m-q4\))", claim["reason"])
        ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
        measured = "–" if claim["measured"] is None else interval(ends)
        where = places.group(1) if places else "–"
        body.append([str(number), name, claim["verdict"], measured, where])
    return markdown(("", "claim", "verdict", "measured", "in the panel that decides"), body)
