"""What is estimated from the values of `steering`, and its claims.

Margins are fixed here, before anything is measured: 0.05 of accuracy and 0.1 of log-probability.
They are judged at the largest α, and at its negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from zlib import crc32

from headcount.claims import Claim, above_chance, judge
from headcount.curves.steering import LEARNED, RANDOM_DIRECTION, RANDOM_HEADS, SERIES, WHOLE
from headcount.metrics.chance import Chance
from headcount.report.estimates import Estimates
from headcount.stats import Estimate, Interval, Resampling, mean_of, share_interval
from headcount.studies.description import columns
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "series", "alpha", "metric", "count")
SHARED = ("model", "task")
ACCURACY, LOGPROB = "accuracy", "logprob"
MARGINS = {ACCURACY: 0.05, LOGPROB: 0.1}
NAMES = {ACCURACY: "accuracy", LOGPROB: "log-probability"}
Rows = list[dict[str, Any]]


def alpha_text(alpha: float) -> str:
    """An α as the table of values has it."""
    return f"{alpha:g}"


@dataclass(frozen=True, eq=False)
class SteeringPanel:
    """One task."""

    key: str
    values: ValueTable
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The task's name for readers."""
        return str(self.facts["tasks"][self.key])

    @cached_property
    def items(self) -> Resampling:
        """Resamples of the items; each panel has a seed of its own."""
        clusters = self.values.clusters(model=self.facts["model"], task=self.key)
        return Resampling(clusters, seed=crc32(self.key.encode()))

    def table(self, series: str, alpha: float, metric: str) -> Any:
        """The values of each draw and item; at 0 they are those of the whole model."""
        about = {"series": series, "alpha": alpha_text(alpha), "count": self.facts["top"]}
        if not alpha:
            about |= {"series": WHOLE, "count": 0}
        own = {"model": self.facts["model"], "task": self.key, "metric": metric}
        return self.values.get(**own, **about)

    def interval(self, series: str, alpha: float, metric: str) -> Interval:
        """The mean of one point."""
        found = self.items.estimate(self.table(series, alpha, metric), series)
        return share_interval(found, self.items) if metric == ACCURACY else found.interval

    def change(self, series: str, alpha: float, metric: str) -> Estimate:
        """By how much steering raises the mean."""
        both = self.table(series, alpha, metric), self.table(series, 0, metric)
        return self.items.difference(*both, (series, ""))

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        found = self.interval(WHOLE, 0, ACCURACY)
        return Chance(**self.facts["chance"][self.key]).sentence(found, NAMES[ACCURACY])


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[SteeringPanel]:
    """The panels of a result, in the order of its figure."""
    return [SteeringPanel(key, values, facts) for key in facts["tasks"]]


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, changes and claims."""
    panels = panels_of(values, facts)
    left_out = [f"{p.name} is left out of claims: {p.at_chance}" for p in panels if p.at_chance]
    return Estimates(
        rows=[row for panel in panels for row in point_rows(panel)],
        claims=above_chance(panels, partial(_claims, max(map(abs, facts["alphas"])))),
        tables={"Changes": [row for panel in panels for row in change_rows(panel)]},
        notes=[*left_out, *(f"{panel.name}: {panel.items.words}." for panel in panels)],
    )


def point_rows(panel: SteeringPanel) -> Rows:
    """The mean of every metric, steered and not."""
    rows = []
    for about in panel.values.facts(model=panel.facts["model"], task=panel.key):
        how = about["series"], float(about["alpha"]), about["metric"]
        more = {"n": panel.items.n, "draws": len(panel.table(*how))}
        rows.append({**about, **columns(panel.interval(*how)), **more})
    return rows


def change_rows(panel: SteeringPanel) -> Rows:
    """By how much steering raises the mean, and the learned direction beyond each control."""
    rows = []
    for metric in MARGINS:
        for alpha in panel.facts["alphas"]:
            found = {series: panel.change(series, alpha, metric) for series in SERIES}
            for series in (RANDOM_DIRECTION, RANDOM_HEADS):
                found[f"learned minus {series}"] = found[LEARNED] - found[series]
            about = {"model": panel.facts["model"], "task": panel.key, "metric": metric}
            rows += [
                {**about, "alpha": alpha_text(alpha), "change": name, **columns(change.interval)}
                for name, change in found.items()
            ]
    return rows


def _claims(alpha: float, panels: Sequence[SteeringPanel]) -> list[Claim]:
    return [claim for metric in MARGINS for claim in _about(metric, alpha, panels)]


def _about(metric: str, alpha: float, panels: Sequence[SteeringPanel]) -> list[Claim]:
    """Claims about the mean over tasks of one metric."""
    margin, claims = MARGINS[metric], []
    asked = {sign * alpha for panel in panels[:1] for sign in (1, -1)}
    known = asked & {*panels[0].facts["alphas"]}

    def change(series: str, at: float) -> Estimate:
        return mean_of([panel.change(series, at, metric) for panel in panels])

    def judged(words: str, at: float, minus: str = "", *, lowers: bool = False) -> None:
        text = f"{words} {NAMES[metric]} by more than {margin:g}"
        text += f" (at α = {at:g}, mean over tasks)"
        if at not in known:
            claims.append(Claim.not_tested(text, None, f"No α of {at:g} was run."))
            return
        found = change(LEARNED, at) - change(minus, at) if minus else change(LEARNED, at)
        bound = {"below": -margin} if lowers else {"above": margin}
        interval = found.interval
        claims.append(Claim.of(text, None, interval, judge(interval, **bound)))  # type: ignore[arg-type]

    judged("the direction of right answers at the best heads raises", alpha)
    judged("beyond random directions at these heads, it raises", alpha, RANDOM_DIRECTION)
    judged("beyond the same at random heads of the same layers, it raises", alpha, RANDOM_HEADS)
    judged(
        "against the direction, beyond random directions, it lowers",
        *(-alpha, RANDOM_DIRECTION),
        lowers=True,
    )
    return claims
