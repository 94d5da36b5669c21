"""Which heads have which role in every fit, as a result keeps it for its shares and maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool

from headcount.rankings.causal_gates.result import ROLES, CausalGates, role_shares

LABELS = (*ROLES, "undecided")


@dataclass(frozen=True, eq=False)
class HeadRoles:
    """The roles of all heads of a model on one task.

    has      role → (seeds, heads): whether its score is at least 0.5 in this fit
    mean     role → (heads,): the same by its mean score over fits
    labels   the role of each head by its mean scores, or "undecided"

    In facts, each fit is a text with one digit for each head: 1 for facilitation, 2 for irrelevance
    and 4 for interference, added up; labels are numbers of `LABELS`.
    """

    has: Mapping[str, Bool[np.ndarray, "seeds heads"]]
    mean: Mapping[str, Bool[np.ndarray, "heads"]]
    labels: Sequence[str]

    @classmethod
    def of(cls, gates: CausalGates) -> HeadRoles:
        """The roles that gates show."""
        return cls(
            {role: gates.has_role(role) for role in ROLES},
            {role: gates.has_role_on_average(role) for role in ROLES},
            [str(label) for label in gates.labels()],
        )

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> HeadRoles:
        """Read what `facts` wrote."""
        seeds = np.array([list(map(int, row)) for row in facts["seeds"]])
        mean = np.array(list(map(int, facts["mean"])))
        return cls(
            {role: seeds >> place & 1 == 1 for place, role in enumerate(ROLES)},
            {role: mean >> place & 1 == 1 for place, role in enumerate(ROLES)},
            [LABELS[int(number)] for number in facts["labels"]],
        )

    def facts(self) -> dict[str, Any]:
        """The roles as short texts, for run.json."""
        seeds = sum(self.has[role].astype(int) << place for place, role in enumerate(ROLES))
        mean = sum(self.mean[role].astype(int) << place for place, role in enumerate(ROLES))
        return {
            "seeds": ["".join(map(str, row)) for row in np.asarray(seeds).tolist()],
            "mean": "".join(map(str, np.asarray(mean).tolist())),
            "labels": "".join(str(LABELS.index(label)) for label in self.labels),
        }

    @property
    def seeds(self) -> int:
        """The number of fits."""
        return len(self.has[ROLES[0]])

    @property
    def stable(self) -> Bool[np.ndarray, "heads"]:
        """Which heads have the role of their label in all fits."""
        labels = np.array(self.labels)
        always = [(labels == role) & self.has[role].all(0) for role in ROLES]
        return np.asarray(np.any(always, axis=0))

    def shares(self) -> list[dict[str, Any]]:
        """For each role, the share of heads that have it."""
        return role_shares(self.has, self.mean)
