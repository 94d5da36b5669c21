"""What `masked-heads` scores answers by, and the names that a config may hold."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.errors import HeadcountError, unknown
from headcount.metrics import TextMetric, get_metric
from headcount.metrics.comet import find_program
from headcount.rankings import RANKINGS
from headcount.rankings.causal_gates import ROLES
from headcount.tasks import FUNCTIONS


def text_metric(name: str) -> TextMetric:
    """A metric of written answers; refuses those that are read off logits."""
    metric = get_metric(name)
    if not isinstance(metric, TextMetric):
        raise HeadcountError(
            f"{name} is read off logits, and this study scores written answers: choose "
            "exact_match or published_accuracy."
        )
    return metric


def second_metric(name: str) -> TextMetric:
    """The metric beside accuracy; "auto" is COMET where its program is found."""
    if name != "auto":
        return text_metric(name)
    try:
        find_program()
    except HeadcountError:
        return text_metric("similarity")
    return text_metric("comet")


def check_functions(names: Sequence[str]) -> tuple[str, ...]:
    """The functions of these names; "all" stands for every one."""
    if list(names) == ["all"]:
        return tuple(FUNCTIONS)
    for name in names:
        if name not in FUNCTIONS:
            raise unknown("cognitive function", name, FUNCTIONS)
    return tuple(names)


def check_rankings(names: Sequence[str]) -> tuple[str, ...]:
    """The rankings of these names; "all" stands for every one but the learned gates."""
    if list(names) == ["all"]:
        every = [entry.key for entry in RANKINGS if entry.key not in (*ROLES, "random")]
        return tuple(sorted(every, key="attribution".__ne__))  # it makes the figure
    return tuple(RANKINGS[name].key for name in names)
