"""The claims of `transfer`, judged by intervals.

Margins are fixed here, before anything is measured: a tenth of what can be lost and, where two
means over pairs are compared, a twentieth. The specificity
of a task is the loss by its own best heads minus the mean of its row (other tasks, its heads) and
its column (this task, other heads). Random heads of the same layers have a specificity too, because
some tasks suffer from any heads and some layers hurt all tasks: it is subtracted. Claims about
single tasks are judged by intervals that hold together.

Tasks at chance have nothing to lose. They are left out of means and families by name, and claims
about them are not comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from headcount.claims import Claim, judge
from headcount.errors import counted, span_text
from headcount.stats import Estimate, mean_of, simultaneous
from headcount.studies.transfer.panels import Transfer, specificity

MARGIN, MORE = 0.1, 0.05
UNIT = "of what can be lost"
LEVELS = "low-level functions feed high-level ones"  # published


def judge_claims(transfer: Transfer) -> list[Claim]:
    """All claims that can be judged from this matrix."""
    claims = [
        _over_all(transfer),
        *_of_each(transfer),
        *_about_levels(transfer),
        *_about_shared_heads(transfer),
    ]
    lost = [task.name for task in transfer.tasks.values() if task.at_chance]
    if not lost or len(transfer.usable) < 2:
        return claims
    left_out = f"With all heads, the model is at chance on {', '.join(lost)}, which is left out."
    aside = ("not comparable", "not tested")
    return [claim if claim.verdict in aside else claim.because(left_out) for claim in claims]


def beyond_matched(transfer: Transfer) -> dict[str, Estimate]:
    """The specificity of each usable task's best heads, minus that of layer-matched heads."""
    keys = transfer.usable
    if len(keys) < 2:
        return {}
    return {key: specificity(transfer.beyond, key, _others(keys, key)) for key in keys}


def _others(keys: Sequence[str], key: str) -> list[str]:
    return [other for other in keys if other != key]


def _refused(claim: str, why: str) -> Claim:
    """A claim about tasks that cannot be compared."""
    return Claim(claim, None, math.nan, math.nan, math.nan, "not comparable", why)


def _too_few(transfer: Transfer) -> str:
    lost = ", ".join(task.name for task in transfer.tasks.values() if task.at_chance)
    return f"With all heads, the model is at chance on {lost}: no two tasks are left."


def _over_all(transfer: Transfer) -> Claim:
    words = (
        f"masking the {_heads(transfer)} of a task costs this task more than the others, by more "
        f"than {MARGIN:g} {UNIT}, beyond random heads of the same layers (measured: mean over "
        "tasks of the specificity of TopK − that of layer-matched heads)"
    )
    found = beyond_matched(transfer)
    if not found:
        return _refused(words, _too_few(transfer))
    mean = mean_of(list(found.values())).interval
    return Claim.of(words, None, mean, judge(mean, above=MARGIN))


def _of_each(transfer: Transfer) -> list[Claim]:
    found = beyond_matched(transfer)
    together = dict(zip(found, simultaneous(list(found.values())), strict=True)) if found else {}
    claims = []
    for key, task in transfer.tasks.items():
        words = (
            f"{task.name}: its best heads cost it more than they cost the others and than the "
            f"others' heads cost it, by more than {MARGIN:g} {UNIT} (measured: specificity of TopK "
            "− that of layer-matched heads)"
        )
        if key in together:
            claim = Claim.of(words, None, together[key], judge(together[key], above=MARGIN))
            claims.append(claim.because(_of_several(len(together))))
        else:
            claims.append(_refused(words, task.at_chance or _too_few(transfer)))
    return claims


def _of_several(many: int) -> str:
    return f"One of {many} intervals that hold together."


def _about_levels(transfer: Transfer) -> list[Claim]:
    """Do heads of low-level functions matter for high-level ones, and more than the reverse?"""
    levels: Mapping[str, str] = transfer.facts["levels"]
    low, high = (
        [key for key in transfer.usable if levels.get(key) == level] for level in ("low", "high")
    )
    cost = (
        "masking the best heads of low-level functions costs high-level ones more than "
        f"{MARGIN:g} {UNIT} more than random heads of the same layers (measured: mean over pairs)"
    )
    direction = (
        "this is more than heads of high-level functions cost low-level ones, by more than "
        f"{MORE:g} {UNIT} (measured: mean over pairs low → high − mean over pairs high → low, each "
        "beyond layer-matched heads)"
    )
    if not low or not high:
        why = "It takes a low-level and a high-level function on which the model beats chance."
        return [Claim.not_tested(words, LEVELS, why) for words in (cost, direction)]
    up = mean_of([transfer.beyond(one, other) for one in low for other in high])
    down = mean_of([transfer.beyond(one, other) for one in high for other in low])
    more = (up - down).interval
    return [
        Claim.of(cost, LEVELS, up.interval, judge(up.interval, above=MARGIN)),
        Claim.of(direction, LEVELS, more, judge(more, above=MORE)),
    ]


def _about_shared_heads(transfer: Transfer) -> list[Claim]:
    """Is the loss elsewhere due to heads that are high on both tasks?"""
    pairs = transfer.sharing(transfer.usable)
    spared = (
        "where two tasks share best heads, masking the best of one without those of the other "
        f"costs the other less, by more than {MARGIN:g} {UNIT} (measured: mean over such pairs)"
    )
    more = (
        f"this spares the other task more than the first one, by more than {MORE:g} {UNIT} "
        "(measured: mean over such pairs of loss spared on the other − loss spared on the first)"
    )
    if not pairs:
        why = "No two tasks on which the model beats chance share any of their best heads."
        return [Claim.not_tested(words, None, why) for words in (spared, more)]
    by_pair: Callable[..., Sequence[Estimate]] = lambda of: [of(*pair) for pair in pairs]  # noqa: E731
    other = mean_of(by_pair(transfer.spared))
    both = (other - mean_of(by_pair(transfer.given_up))).interval
    told = f"{counted(len(pairs), 'ordered pair')} share heads."
    return [
        Claim.of(spared, None, other.interval, judge(other.interval, above=MARGIN)).because(told),
        Claim.of(more, None, both, judge(both, above=MORE)).because(told),
    ]


def _heads(transfer: Transfer) -> str:
    counts = transfer.counts
    return f"{span_text(counts)} best heads" if counts != [1] else "best head"
