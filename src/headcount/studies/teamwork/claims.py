"""The claims of `teamwork`, judged by intervals.

Margins are fixed here and in `curves.teamwork`, before anything is measured, as shares of the whole
model's metric: 0.05 for a pair (and for what backups repair beyond other heads), 0.1 for a set, and
a quarter of what a head would cost for self-repair. "Some two heads" is judged by intervals that
hold together over all pairs of a task. Backups were found on other prompts than they are judged on.
"""

from __future__ import annotations

from collections.abc import Sequence

from headcount.claims import Claim, Verdict, above_chance, deciding, judge
from headcount.curves.teamwork import MARGIN, RANDOM, total
from headcount.stats import Estimate, Interval, mean_of, simultaneous
from headcount.studies.teamwork.panels import TeamPanel

SET_MARGIN, REPAIRED = 0.1, 0.25
UNIT = "of the metric"
OPPOSITE: dict[Verdict, Verdict] = {"supported": "refuted", "refuted": "supported"}


def judge_claims(panels: Sequence[TeamPanel]) -> list[Claim]:
    """All claims, about the tasks on which the model is better than chance."""
    return above_chance(panels, _claims)


def pair_verdict(together: Interval) -> str:
    """What an interval that holds together with those of all pairs says about a pair.

    >>> pair_verdict(Interval(0.2, 0.1, 0.3, n=40)), pair_verdict(Interval(0.0, -0.01, 0.02, n=40))
    ('backup', 'additive')
    """
    if judge(together, above=MARGIN) == "supported":
        return "backup"
    if judge(together, below=-MARGIN) == "supported":
        return "overlap"
    within = judge(together, within=(-MARGIN, MARGIN)) == "supported"
    return "additive" if within else "undecided"


def _claims(panels: Sequence[TeamPanel]) -> list[Claim]:
    claims = []
    for panel in panels:
        many = f"{panel.name}: some two of the {len(panel.heads)} best heads"
        pairs = panel.interactions
        claims.append(
            _some(
                f"{many} back each other up: together they cost more than the sum of what each "
                f"costs alone, by more than {MARGIN:g} {UNIT}",
                pairs,
            )
        )
        less = {name: found * -1 for name, found in pairs.items()}
        claims.append(
            _some(
                f"{many} overlap: together they cost less than that sum, by more than {MARGIN:g} "
                f"{UNIT}",
                less,
            )
        )
    return [*claims, *_about_sets(panels), *_about_repair(panels)]


def _some(words: str, family: dict[str, Estimate]) -> Claim:
    """A claim that some member lies above the margin: the opposite of "all lie below"."""
    together = dict(zip(family, simultaneous(list(family.values())), strict=True))
    name, none = deciding(together, below=MARGIN)
    found = Claim.of(words, None, together[name], OPPOSITE.get(none, none))
    told = f"Farthest, of {len(family)} intervals that hold together: {name}."
    return found if len(family) == 1 else found.because(told)


def _about_sets(panels: Sequence[TeamPanel]) -> list[Claim]:
    every = tuple(range(len(panels[0].heads)))
    words = f"the {len(every)} best heads together cost more than the sum of what each costs alone"
    top = mean_of([panel.losses.beyond(every) for panel in panels])
    random = mean_of([panel.losses.beyond(every, RANDOM) for panel in panels])
    return [
        _above(f"{words}, by more than {SET_MARGIN:g} {UNIT} (measured: mean over tasks)", top),
        _above(
            f"{words}, by more than {SET_MARGIN:g} {UNIT} more than for as many random heads "
            "(measured: mean over tasks of the difference)",
            top - random,
        ),
    ]


def _above(words: str, found: Estimate, margin: float = SET_MARGIN) -> Claim:
    return Claim.of(words, None, found.interval, judge(found.interval, above=margin))


def _about_repair(panels: Sequence[TeamPanel]) -> list[Claim]:
    share = (
        f"the backups of a head repair more than {REPAIRED:g} of what it would cost without them "
        "(measured: what backups repair over what heads cost with their backups off, summed over "
        "heads with backups, on the mean over tasks)"
    )
    more = (
        f"this is more than as many other best heads would repair, by more than {MARGIN:g} {UNIT} "
        "a head (measured: mean over heads with backups, on the mean over tasks)"
    )
    known = [panel for panel in panels if panel.backups]
    if not known:
        why = "No head has a backup on the prompts on which backups are found."
        return [Claim.not_tested(words, None, why) for words in (share, more)]
    shares = mean_of([panel.repaired().over(panel.without_backups()) for panel in known])
    first = _told(_above(share, shares, REPAIRED), panels, known)
    beyond = [found for panel in known if (found := beyond_others(panel)) is not None]
    if not beyond:
        return [first, Claim.not_tested(more, None, "All best heads are backups of each other.")]
    return [first, _told(_above(more, mean_of(beyond), MARGIN), panels, known)]


def beyond_others(panel: TeamPanel) -> Estimate | None:
    """What backups repair minus what as many other best heads would, on the mean over heads."""
    gaps = [
        panel.losses.repaired(head, backups) - others
        for head, backups in panel.backups.items()
        if (others := panel.by_others(head)) is not None
    ]
    return total(gaps) * (1 / len(gaps)) if gaps else None


def _told(claim: Claim, panels: Sequence[TeamPanel], known: Sequence[TeamPanel]) -> Claim:
    missing = ", ".join(panel.name for panel in panels if panel not in known)
    return claim.because(f"No head has a backup on {missing}.") if missing else claim
