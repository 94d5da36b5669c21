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
from headcount.heads.lists import (
    SHIPPED,
    HeadList,
    check_listed,
    check_query_heads,
    is_list,
    list_name,
    listed_counts,
    read_list,
    same_name,
    write_retrieval_head,
)
from headcount.heads.scores import GOALS, Goal, HeadScores

__all__ = [
    "GOALS",
    "SHIPPED",
    "UNITS",
    "Goal",
    "Head",
    "HeadLayout",
    "HeadList",
    "HeadScores",
    "HeadSet",
    "Unit",
    "as_gates",
    "check_counts",
    "check_gates",
    "check_listed",
    "check_query_heads",
    "gates_by_label",
    "is_list",
    "list_name",
    "listed_counts",
    "read_list",
    "same_name",
    "write_retrieval_head",
]
