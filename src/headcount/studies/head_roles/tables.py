"""The tables of the study `head-roles`: how many heads have a role, and in how many seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headcount.rankings.causal_gates.result import CausalGates
from headcount.studies.head_roles.cells import Cell

# What was published, over four Llama models of 1 to 8 billion weights.
SHARES = {
    ("Syntax", "irrelevance"): "63.0 %",
    ("Common Sense", "irrelevance"): "64.6 %",
    ("Math", "irrelevance"): "39.0 %",
    ("Syntax", "facilitation"): "25.6 %",
    ("Common Sense", "facilitation"): "27.4 %",
    ("Math", "facilitation"): "52.6 %",
}
OVER_SEEDS = {  # in all seeds, in any seed
    ("Syntax", "facilitation"): ("0.7 to 1.5 %", "68 to 73 %"),
    ("Math", "facilitation"): ("18 to 38 %", "74 to 81 %"),
}


def role_tables(gates: Mapping[Cell, CausalGates]) -> dict[str, list[dict[str, Any]]]:
    """The share of heads that have each role: on average, and in all seeds or at least one."""
    shares, over_seeds = [], []
    for cell, its in gates.items():
        for row in its.shares():
            about = {"model": cell.label, "task": cell.name, "role": row["role"]}
            where = cell.name, row["role"]
            ends = {name: row[name] for name in ("share", "lowest", "highest", "by_mean")}
            shares.append({**about, **ends, "published": SHARES.get(where, "")})
            always, some = OVER_SEEDS.get(where, ("", ""))
            over_seeds.append(
                {
                    **about,
                    "seeds": its.seeds,
                    "always": row["always"],
                    "any": row["any"],
                    "published always": always,
                    "published any": some,
                }
            )
    return {"Role shares": shares, "Roles over seeds": over_seeds}
