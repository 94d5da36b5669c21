"""The claims of `teamwork`, judged by intervals.

Margins are fixed here and in `curves.teamwork`, before anything is measured, as shares of the whole
model's metric: 0.05 for a pair (and for what is repaired beyond other heads), 0.1 for a set, and a
quarter of what a head would cost for self-repair. "Some two heads" is judged by intervals that hold
together over all pairs of a task. Which heads work against the answer, and which repair which, was
found on other prompts than they are judged on.
"""

from __future__ import annotations

from collections.abc import Sequence

from headcount.claims import Claim, Verdict, above_chance, deciding, judge
from headcount.curves.teamwork import MARGIN, RANDOM, Places, total
from headcount.stats import Estimate, Interval, mean_of
from headcount.studies.teamwork.panels import TeamPanel

SET_MARGIN, REPAIRED = 0.1, 0.25
UNIT = "of the metric"
OPPOSITE: dict[Verdict, Verdict] = {"supported": "refuted", "refuted": "supported"}


def judge_claims(panels: Sequence[TeamPanel]) -> list[Claim]:
    """All claims, about the tasks on which the model is better than chance."""
    return above_chance(panels, _claims)


def pair_verdict(together: Interval, helping: bool) -> str:
    """What an interval that holds together with those of all pairs says about a pair.

    >>> found = Interval(0.2, 0.1, 0.3, n=40)
    >>> pair_verdict(found, True), pair_verdict(found, False)
    ('backup', 'relief')
    """
    if judge(together, above=MARGIN) == "supported":
        return "backup" if helping else "relief"
    if judge(together, below=-MARGIN) == "supported":
        return "overlap"
    within = judge(together, within=(-MARGIN, MARGIN)) == "supported"
    return "additive" if within else "undecided"


def _claims(panels: Sequence[TeamPanel]) -> list[Claim]:
    claims = []
    for panel in panels:
        best = f"of the {len(panel.heads)} best heads"
        more = "together they cost more than the sum of what each costs alone, by more than"
        less = "together they cost less than that sum, by more than"
        harming = [pair for pair in panel.pairs if not panel.helping(pair)]
        helping = [pair for pair in panel.pairs if panel.helping(pair)]
        claims += [
            _some(f"some two {best} back each other up: {more}", panel, helping),
            _some(f"some two {best} overlap: {less}", panel, panel.pairs, above=False),
            _some(
                f"some one {best} that works against the answer holds back once another one is "
                f"off: {more}",
                *(panel, harming),
            ),
        ]
    return [*claims, *_about_sets(panels), *_about_repair(panels)]


def _some(words: str, panel: TeamPanel, pairs: Sequence[Places], *, above: bool = True) -> Claim:
    """A claim that some of these pairs lies above the margin, or below its negative.

    It is the opposite of "none does". The intervals hold together over all pairs of the task.
    """
    words = f"{panel.name}: {words} {MARGIN:g} {UNIT}"
    if not pairs:
        which = "All heads but one work" if panel.roles.against else "No head works"
        why = f"{which} against the answer on the prompts on which roles are found."
        return Claim.not_tested(words, None, why)
    together = {panel.named(pair): panel.together[pair] for pair in pairs}
    none_below = deciding(together, below=MARGIN)
    name, none = none_below if above else deciding(together, above=-MARGIN)
    found = Claim.of(words, None, together[name], OPPOSITE.get(none, none))
    many = len(panel.pairs)
    told = f"Farthest, of {many} intervals that hold together: {name}."
    return found.because(told) if many > 1 else found


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
        f"other best heads repair more than {REPAIRED:g} of what a head would cost without them "
        "(measured: what its repairers repair over what it costs with these off, summed over heads "
        "with repairers, on the mean over tasks)"
    )
    more = (
        f"this is more than as many other best heads would repair, by more than {MARGIN:g} {UNIT} "
        "a head (measured: mean over heads with repairers, on the mean over tasks)"
    )
    known = [panel for panel in panels if panel.roles.repairers]
    if not known:
        why = "No head has a repairer on the prompts on which roles are found."
        return [Claim.not_tested(words, None, why) for words in (share, more)]
    shares = mean_of([panel.repaired().over(panel.without_repairers()) for panel in known])
    first = _told(_above(share, shares, REPAIRED), panels, known)
    beyond = [found for panel in known if (found := beyond_others(panel)) is not None]
    if not beyond:
        return [first, Claim.not_tested(more, None, "All best heads repair each other.")]
    return [first, _told(_above(more, mean_of(beyond), MARGIN), panels, known)]


def beyond_others(panel: TeamPanel) -> Estimate | None:
    """What is repaired minus what as many other best heads would repair, on the mean over heads."""
    gaps = [
        panel.losses.repaired(head, repairers) - others
        for head, repairers in panel.roles.repairers.items()
        if (others := panel.by_others(head)) is not None
    ]
    return total(gaps) * (1 / len(gaps)) if gaps else None


def _told(claim: Claim, panels: Sequence[TeamPanel], known: Sequence[TeamPanel]) -> Claim:
    missing = ", ".join(panel.name for panel in panels if panel not in known)
    return claim.because(f"No head has a repairer on {missing}.") if missing else claim
