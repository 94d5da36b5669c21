"""The five claims of Figure 3 of "Cognitive Mirrors", judged by intervals, and two of our own.

Margins are fixed here, before anything is measured: TopK is "below" a control by more than 0.05;
RandomK is "flat" if its loss is less than a quarter of TopK's loss; a collapse is the loss of half
of the scaled accuracy. A scaled metric is (value − floor) / (unmasked − floor): 1 without masking,
0 at the floor, which is the metric of answers that were given to other questions, and never below
it.

Rules of comparison, which look at nothing that a claim is about. Published are four panels: claims
are compared only if all four were run, with counts that are the published shares of the heads
within a factor of 1.5. A claim about COMET needs COMET. How flat RandomK is, where the collapse
sets in and which function falls first are compared only if, besides, the unmasked accuracy of each
panel is within 0.1 of the published one: a model that can do less has less to lose, and one that
can do more may lose more before it fails. Where the collapse sets in is tested only if measured
counts bracket the published range: one at its start or before it, one at its end or behind it, both
within a factor of 1.5. The published accuracy also accepts similar texts; where ours is exact
match, each claim says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any

from headcount.claims import Claim, above_chance, all_of, judge
from headcount.errors import counted
from headcount.stats import Estimate, combine, mean_of, simultaneous
from headcount.studies.masked_heads.config import FRACTIONS, PANELS
from headcount.studies.masked_heads.panels import FunctionPanel

MARGIN = 0.05
FLAT = 0.25
ONSET = (32 / 1024, 64 / 1024)  # the published start of the collapse, as shares of all heads
NEAR = 1.5  # a share of the heads is near a published one within this factor
UNMASKED = dict(zip(PANELS, (0.95, 0.80, 0.95, 0.85), strict=True))  # read off the figure
BAND = 0.1
RECALL = "knowledge-recall"


def judge_claims(panels: Sequence[FunctionPanel], facts: Mapping[str, Any]) -> list[Claim]:
    """All claims that can be judged from these panels.

    Panels whose whole model is at chance are left out of claims, or make them not comparable.
    """
    random = [c for c in panels[0].counts("random") if all(p.has("random", c) for p in panels)]
    if not random:
        return []
    published = [panel for panel in panels if panel.key in PANELS]
    claims: list[Claim] = []
    if published:
        elsewhere = other_set_up(published, random, facts["total"])
        (faster,) = above_chance(published, lambda p: [_faster(p, random)])
        if elsewhere:
            faster = faster.because(elsewhere, "not comparable")
        claims += [faster.because(_other_accuracy(published))]
        claims += above_chance(published, lambda p: [_accuracy_first(p)])
        reason = elsewhere or far_unmasked(published)
        for claim in _about_the_shape(published, random, facts["total"]):
            found = claim.because(reason, "not comparable") if reason else claim
            claims.append(found.because(_other_accuracy(published)))
    return claims + above_chance(
        panels, lambda p: [_ours(p, c, random) for c in ("random", "matched")]
    )


def _other_accuracy(panels: Sequence[FunctionPanel]) -> str:
    if panels[0].accuracy == "published_accuracy":
        return ""
    return (
        "Accuracy is exact match here; the published one also accepts similar texts, so it is "
        "higher wherever answers are nearly right."
    )


def other_set_up(panels: Sequence[FunctionPanel], counts: Sequence[int], total: int) -> str:
    """Why no published panel can be compared: panels or counts are missing; empty if they can."""
    missing = [key for key in PANELS if key not in {panel.key for panel in panels}]
    if missing:
        return f"The published panels {', '.join(missing)} were not run."
    far = [s for s in FRACTIONS if not any(1 / NEAR <= c / (s * total) <= NEAR for c in counts)]
    if far:
        return f"No count is near {100 * far[0]:.1f} % of the heads, as published."
    return ""


def far_unmasked(panels: Sequence[FunctionPanel]) -> str:
    """Why claims about the shape of the curves cannot be compared; empty if they can.

    A model with another accuracy has more or less to lose.
    """
    far = [
        f"{panel.name} {value:.2f} (published {UNMASKED[panel.key]:.2f})"
        for panel in panels
        if abs((value := float(panel.table("top", 0).mean())) - UNMASKED[panel.key]) > BAND
    ]
    if far:
        return (
            f"The unmasked accuracy lies more than {BAND:g} from the published one: "
            f"{', '.join(far)}."
        )
    return ""


def bracket(counts: Sequence[int], total: int) -> tuple[int, int] | str:
    """The counts just before and just behind the published onset, or why there are none.

    >>> bracket([8, 16, 32, 64], 512)
    (16, 32)
    >>> bracket([4, 8, 16, 32], 336)
    'No count from 21 to 31 of 336 heads was measured: nothing brackets 3.1 to 6.3 % of them.'
    """
    start, end = (share * total for share in ONSET)
    before = [count for count in counts if start / NEAR <= count <= start]
    behind = [count for count in counts if end <= count <= end * NEAR]
    if before and behind:
        return before[-1], behind[0]
    low, high = (end, end * NEAR) if before else (start / NEAR, start)
    return (
        f"No count from {ceil(low)} to {floor(high)} of {total} heads was measured: nothing "
        "brackets 3.1 to 6.3 % of them."
    )


def _about_the_shape(
    panels: Sequence[FunctionPanel], counts: Sequence[int], total: int
) -> list[Claim]:
    claims = above_chance(panels, lambda p: [_flat(p, counts[-1])], needed=panels)
    claims += above_chance(panels, lambda p: [_onset(p, counts, total)], needed=panels)
    if len(panels) > 1 and any(panel.key == RECALL for panel in panels):
        claims += above_chance(panels, lambda p: [_recall_first(p, counts[0])], needed=panels)
    return claims


def _gaps(
    panels: Sequence[FunctionPanel], control: str, counts: Sequence[int], metric: str = ""
) -> dict[str, Estimate]:
    """TopK minus a control on the mean over counts, by panel."""
    return {
        panel.name: mean_of([panel.difference(control, count, metric) for count in counts])
        for panel in panels
        if all(panel.has(control, count, metric) for count in counts)
    }


def _faster(panels: Sequence[FunctionPanel], counts: Sequence[int]) -> Claim:
    family, published = _gaps(panels, "random", counts), "TopK falls much faster than RandomK"
    both = panels[0].similarity == "comet"
    if both:
        family |= {
            f"{name}, COMET": gap for name, gap in _gaps(panels, "random", counts, "comet").items()
        }
    claim = Claim.of_family(
        f"TopK lies more than {MARGIN:g} below RandomK in every published panel, on the mean over "
        "counts (measured in the panel that decides: mean over counts of TopK − RandomK, accuracy"
        f"{' and COMET' * both})",
        f"{published} on every task and both metrics",
        family,
        below=-MARGIN,
    )
    return claim if both else claim.because("Only accuracy is judged: COMET was not run.")


def _accuracy_first(panels: Sequence[FunctionPanel]) -> Claim:
    first, second = panels[0].accuracy, panels[0].similarity
    name = panels[0].facts["metrics"][-1]["name"]

    def above_floor(panel: FunctionPanel, metric: str, count: int) -> Estimate:
        scaled = panel.scaled(metric, count)
        return combine(lambda value: value.clip(min=0), scaled)

    gaps = [
        above_floor(panel, first, count) - above_floor(panel, second, count)
        for panel in panels
        for count in panel.counts("top")
    ]
    gap = mean_of(gaps).interval
    claim = Claim.of(
        f"under TopK, accuracy falls faster than {name} (measured: mean over panels and counts of "
        "scaled accuracy − scaled similarity, where scaled means max(0, (value − floor) / "
        "(unmasked − floor)))",
        "under TopK, accuracy falls faster than COMET",
        gap,
        judge(gap, below=0),
    )
    if second == "comet":
        return claim
    return claim.because(f"Measured with {name}, and published for COMET.", "not comparable")


def _flat(panels: Sequence[FunctionPanel], count: int) -> Claim:
    excess = {}
    for panel in panels:
        whole = panel.at("top", 0)
        random, top = (whole - panel.at(series, count) for series in ("random", "top"))
        excess[panel.name] = random - top * FLAT
    return Claim.of_family(
        f"RandomK is flat: with {counted(count, 'head')} masked, its loss of accuracy is less than "
        "a quarter of TopK's in every panel (measured in the panel that decides: loss_random − "
        f"{FLAT:g} · loss_top)",
        "RandomK stays nearly flat",
        excess,
        below=0,
    )


def _onset(panels: Sequence[FunctionPanel], measured: Sequence[int], total: int) -> Claim:
    published = "the collapse sets in between 32 and 64 of 1,024 heads (3.1 and 6.3 %)"
    counts = bracket(measured, total)
    if isinstance(counts, str):
        said = "the collapse sets in between 3.1 and 6.3 % of the heads"
        return Claim.not_tested(said, published, counts)
    means = [mean_of([p.scaled(p.accuracy, count) for p in panels]) for count in counts]
    before, behind = simultaneous(means)
    shares = [100 * count / total for count in counts]
    return Claim.of(
        f"the collapse sets in between {counts[0]} and {counts[1]} of {total} heads "
        f"({shares[0]:.1f} and {shares[1]:.1f} %): the mean over panels of scaled TopK accuracy is "
        f"above 0.5 at {counts[0]} (measured), and below 0.5 at {counts[1]} ({behind})",
        published,
        before,
        all_of([judge(before, above=0.5), judge(behind, below=0.5)]),
    )


def _recall_first(panels: Sequence[FunctionPanel], count: int) -> Claim:
    (recall,) = (panel for panel in panels if panel.key == RECALL)
    left = recall.scaled(recall.accuracy, count)
    return Claim.of_family(
        f"{recall.name} falls first: with {counted(count, 'head')} masked, its scaled accuracy is "
        f"the lowest (measured in the panel that decides: scaled accuracy of {recall.name} − "
        "that of the panel)",
        "Knowledge Recall falls first",
        {p.name: left - p.scaled(p.accuracy, count) for p in panels if p is not recall},
        below=0,
    )


def _ours(panels: Sequence[FunctionPanel], control: str, counts: Sequence[int]) -> Claim:
    words = {"random": "random heads", "matched": "random heads of the same layers"}[control]
    return Claim.of_family(
        f"in all {counted(len(panels), 'function')}: masking TopK costs more than {MARGIN:g} "
        f"accuracy more than masking as many {words}, on the mean over counts (measured in the "
        f"function that decides: mean over counts of TopK − {words})",
        None,
        _gaps(panels, control, counts),
        below=-MARGIN,
    )
