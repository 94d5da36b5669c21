"""Heads, their layout in a model, and scores over them. Plain values: no torch."""

from headcount.heads.head import (
    UNITS,
    Head,
    HeadLayout,
    HeadSet,
    Unit,
    as_gates,
    check_counts,
    check_gates,
    gates_by_label,
)
from headcount.heads.scores import GOALS, Goal, HeadScores

__all__ = [
    "GOALS",
    "UNITS",
    "Goal",
    "Head",
    "HeadLayout",
    "HeadScores",
    "HeadSet",
    "Unit",
    "as_gates",
    "check_counts",
    "check_gates",
    "gates_by_label",
]
