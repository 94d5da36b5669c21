"""The tables of findings of steering."""

from __future__ import annotations

from findings.tables import FUNCTIONS, claims, found_at_least, interval, markdown, one, table

STEERING = "steering/smollm2-135m-q4-quick"
CHANGES = {
    "learned": "right minus wrong, best heads",
    "random-direction": "random directions, best heads",
    "random-heads": "right minus wrong, random heads",
}
TASKS, STRENGTHS = ("math", "inference"), ("-5", "-2", "2", "5")


@table("steering-changes")
def steering_changes() -> str:
    """How much the log-probability of the right answer changes."""
    body = []
    for task in TASKS:
        for change, name in CHANGES.items():
            about = {"task": task, "metric": "logprob", "change": change}
            found = [one(f"{STEERING}/changes.csv", **about, alpha=alpha) for alpha in STRENGTHS]
            body.append([FUNCTIONS[task], name, *(interval(row, sign="+") for row in found)])
    header = ("task", "what is added", *(f"α = {a}".replace("-", "−") for a in STRENGTHS))
    return markdown(header, body)


@table("steering-claims")
def steering_claims() -> str:
    """All claims of steering."""
    body = []
    for claim in claims(STEERING):
        words = claim["claim"].replace(", mean over tasks)", ")")
        ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
        body.append([words, interval(ends), claim["verdict"], found_at_least(claim)])
    return markdown(("claim, mean over tasks", "measured", "verdict", "would be found"), body)
