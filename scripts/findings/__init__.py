"""The tables of findings: one module for each study, each table a function."""

from findings import (
    cache_budget,
    contrast,
    head_roles,
    heads_kept,
    lm_eval,
    masked_heads,
    needle,
    pruned,
    silent_heads,
    steering,
    teamwork,
    token_insertion,
    transfer,
)
from findings.tables import TABLES

__all__ = [
    "TABLES",
    "cache_budget",
    "contrast",
    "head_roles",
    "heads_kept",
    "lm_eval",
    "masked_heads",
    "needle",
    "pruned",
    "silent_heads",
    "steering",
    "teamwork",
    "token_insertion",
    "transfer",
]
