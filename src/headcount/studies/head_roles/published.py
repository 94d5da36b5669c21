"""What was published, beside which our tables stand: Figure 2 of "Causal Head Gating".

The numbers of the figure were read off it. Shares of roles are over four Llama models and 10 seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headcount.claims import Claim
from headcount.studies.head_roles.roles import HeadRoles

Rows = list[dict[str, Any]]

COUNT, SEEDS = 50, 10
# The heads of the published models.
HEADS = {"L3.2-1B": 512, "L3.2-3B": 672, "L3.2-3B-I": 672, "L3.1-8B": 1024}
SHARES = {model: COUNT / heads for model, heads in HEADS.items()}
MATCHED = SHARES["L3.2-3B"]
NEAR = 1.5  # a share of the heads is near the published ones within this factor
END_POINTS = {  # of facilitation, with 50 heads ablated
    "Syntax": (-3.2, -2.2, -2.8, -1.2),
    "Common Sense": (-3.0, -2.0, -2.5, -1.0),
    "Math": (-150.0, -100.0, -150.0, -80.0),
}
PEAKS = {"Common Sense": (0.5, 1.0, 1.5, 1.2)}  # of interference
ROLE_SHARES = {
    ("Syntax", "irrelevance"): 0.630,
    ("Common Sense", "irrelevance"): 0.646,
    ("Math", "irrelevance"): 0.390,
    ("Syntax", "facilitation"): 0.256,
    ("Common Sense", "facilitation"): 0.274,
    ("Math", "facilitation"): 0.526,
}
OVER_SEEDS = {  # shares of heads with the role in all seeds, and in any: from lowest to highest
    ("Syntax", "facilitation"): ((0.007, 0.015), (0.68, 0.73)),
    ("Math", "facilitation"): ((0.18, 0.38), (0.74, 0.81)),
}
FIRST = "facilitation falls, the others stay or rise (the paper)"
SECOND = "facilitation is flat, the others fall (contradicts the paper)"


def shares_text(low: float, high: float) -> str:
    """A range of shares in per cent.

    >>> shares_text(0.007, 0.015), shares_text(0.68, 0.73)
    ('0.7 to 1.5 %', '68 to 73 %')
    """
    return f"{100 * low:.2g} to {100 * high:.2g} %"


def share_rows(model: str, task: str, roles: HeadRoles) -> Rows:
    """The share of heads with each role, and its ratio to the published share."""
    rows = []
    for found in roles.shares():
        known = ROLE_SHARES.get((task, found["role"]))
        names = ("role", "share", "lowest", "highest", "by_mean")
        own = {"model": model, "task": task, **{name: found[name] for name in names}}
        text = "" if known is None else f"{100 * known:.1f} %"
        ratio = "" if known is None else round(found["share"] / known, 3)
        rows.append({**own, "published": text, "ratio to published": ratio})
    return rows


def over_seed_rows(model: str, task: str, roles: HeadRoles) -> Rows:
    """The shares of heads with each role in all seeds and in any, against the published ranges.

    Beside them stand the shares that are expected if each seed gave the role to as many heads, but
    to heads of its own choice.
    """
    rows = []
    for found in roles.shares():
        row = {"model": model, "task": task, "role": found["role"], "seeds": roles.seeds}
        known = OVER_SEEDS.get((task, found["role"]))
        for place, name in enumerate(("always", "any")):
            published = known[place] if known else None
            row[name] = found[name]
            row[f"{name} if seeds were independent"] = found[f"{name}_if_independent"]
            row[f"published {name}"] = shares_text(*published) if published else ""
            row[f"{name} against published"] = against(found[name], published, roles.seeds)
        rows.append(row)
    return rows


def against(share: float, published: tuple[float, float] | None, seeds: int) -> str:
    """Whether a share lies in the published range, and if not, how far from it.

    >>> against(0.26, (0.007, 0.015), 10), against(0.7, (0.68, 0.73), 10)
    ('disagrees: 17 times the highest', 'agrees')
    >>> against(0.26, (0.007, 0.015), 2)
    'not comparable: 2 seeds, and 10 in the paper'
    """
    if published is None:
        return ""
    low, high = published
    if seeds != SEEDS:
        return f"not comparable: {seeds} seeds, and {SEEDS} in the paper"
    if low <= share <= high:
        return "agrees"
    if share > high:
        return f"disagrees: {share / high:.2g} times the highest"
    return f"disagrees: {share / low:.2g} times the lowest"


def description_rows(claims: Sequence[Claim]) -> Rows:
    """The two descriptions of the published figure side by side, and what settles between them.

    They are settled in this order: definition, the paper's text, planted heads, this run.
    """
    verdicts = {claim.published: claim.verdict for claim in claims}
    sides = [
        ("facilitation", "falls in every panel", "flat around 0.5 in every panel"),
        ("irrelevance", "stays near 0", "falls to −2 to −4"),
        ("interference", "near 0, with peaks (on Common Sense up to +1.5)", "falls to −1.5 to −3"),
        ("colours in this order", "green, blue, red", "blue, yellow, red"),
        ("third row of panels", "Math", "Match"),
        ("y axis", "one for each row: −3.5 to 1.5, and −160 to 10", "one for all: −100 to 1"),
        (
            "1. the definition: facilitation is G⁻, the gate that stays open when shutting is "
            "rewarded, so ablating it must lower the log-probability; and Δ(0) = 0",
            "agrees",
            "contradicts: facilitation does not fall, and lines start at 0.2 to 0.5",
        ),
        ("2. the paper's text", "agrees", "contradicts"),
        (
            "3. planted heads of known roles (tests/studies/test_head_roles.py, "
            "test_needed_heads_fall_interfering_ones_rise_and_others_stay)",
            "agrees",
            "contradicts",
        ),
        (
            "4. this run, on other models than the published ones: the verdict of the claim",
            verdicts.get(FIRST, "not tested"),
            verdicts.get(SECOND, "not tested"),
        ),
    ]
    return [{"what": what, "first": first, "second": second} for what, first, second in sides]
