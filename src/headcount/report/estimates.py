"""Estimates: what is concluded from the values of a result, and can be concluded again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headcount.claims import Claim
from headcount.figures.style import Row
from headcount.system.files import to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Models: TypeAlias = Mapping[str, Mapping[str, Any]]  # the facts of each model (`Model.facts`)
Drawn: TypeAlias = "tuple[dict[str, Figure], dict[str, str]]"  # figures and captions, by file name


@dataclass(frozen=True, eq=False)
class Estimates:
    """Points with intervals, judged claims, and further tables: all made from values and facts.

    rows      the tidy table: one row for each point
    claims    the claims, judged
    tables    further tables by title
    notes     sentences that follow from the values, such as that a model is at chance
    """

    rows: Sequence[Row]
    claims: Sequence[Claim] = ()
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    notes: Sequence[str] = ()


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts as they come back from run.json, so that estimates are made from the same."""
    plain: dict[str, Any] = json.loads(to_json(dict(facts)))
    return plain
