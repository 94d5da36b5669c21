"""The claims of `needle`, judged by intervals.

Margins are fixed here, before anything is measured. Masking the best heads *costs more* than a
control by more than 0.05 accuracy, or 0.5 in log-probability, on the mean over counts. Late gates
*do as much* if they cost at least three quarters of what gates at all positions cost. A claim about
every length is judged by intervals that hold together; lengths at which the whole model is at
chance are left out, and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from headcount.claims import Claim, above_chance, judge
from headcount.stats import Estimate, mean_of
from headcount.studies.needle.panels import CONTROLS, METRICS, POSITIONS, NeedlePanel

MARGINS = {"accuracy": 0.05, "logprob": 0.5}
AS_MUCH = 0.75
WORDS = {"accuracy": "accuracy", "logprob": "log-probability"}
ALL, LATE = POSITIONS
PUBLISHED = (
    "masking the best retrieval heads breaks the needle task, and masking random heads hardly "
    "changes it (four model families of 7B and more)"
)


def judge_claims(panels: Sequence[NeedlePanel]) -> list[Claim]:
    """All claims, the published one first."""
    claims: list[Claim] = []
    for metric in METRICS:
        for control in CONTROLS:
            claims += above_chance(panels, partial(_more, control, metric))
    for metric in METRICS:
        claims += above_chance(panels, partial(_late, metric))
    if len(panels) > 1:
        ends = [panels[0], panels[-1]]
        claims += above_chance(ends, _grows, needed=ends)
    return claims


def gap(panel: NeedlePanel, metric: str, control: str, positions: str = ALL) -> Estimate:
    """The best heads minus a control, on the mean over counts."""
    return mean_of([panel.difference(metric, positions, control, c) for c in panel.counts])


def _more(control: str, metric: str, panels: Sequence[NeedlePanel]) -> list[Claim]:
    margin, words = MARGINS[metric], CONTROLS[control]
    claim = Claim.of_family(
        f"at every length: masking the best heads costs more than {margin:g} {WORDS[metric]} more "
        f"than masking as many {words} (measured at the length that decides: mean over counts of "
        f"{WORDS[metric]} with the best heads masked minus that with {words} masked)",
        PUBLISHED if (control, metric) == ("random", "accuracy") else None,
        {panel.name: gap(panel, metric, control) for panel in panels},
        below=-margin,
    )
    return [claim]


def _late(metric: str, panels: Sequence[NeedlePanel]) -> list[Claim]:
    def beyond(panel: NeedlePanel) -> Estimate:
        whole = panel.whole(metric)
        costs = [
            mean_of([whole - panel.at(metric, positions, "top", c) for c in panel.counts])
            for positions in (LATE, ALL)
        ]
        return costs[0] - costs[1] * AS_MUCH

    claim = Claim.of_family(
        f"at every length: masking the best heads only where the answer is predicted costs at "
        f"least {AS_MUCH:g} of the {WORDS[metric]} that masking them everywhere costs (measured at "
        f"the length that decides: cost of late masks − {AS_MUCH:g} · cost of whole masks)",
        None,
        {panel.name: beyond(panel) for panel in panels},
        above=0,
    )
    return [claim]


def _grows(panels: Sequence[NeedlePanel]) -> list[Claim]:
    short, long = panels[0], panels[-1]
    more = (gap(long, "logprob", "matched") - gap(short, "logprob", "matched")).interval
    claim = Claim.of(
        "the best heads matter more in longer texts: masking them instead of "
        f"{CONTROLS['matched']} costs more log-probability at {long.name} than at {short.name} "
        "(measured: the difference between the two, mean over counts)",
        None,
        more,
        judge(more, below=0),
    )
    return [claim]
