"""Fitted causal gates, and the role of each head that they show; imports no torch.

    facilitation   G⁻              open although shutting is rewarded: the task needs the head
    interference   1 − G⁺          shut although opening is rewarded: the head harms the task
    irrelevance    G⁺ · (1 − G⁻)   goes where it is pushed: the head does not matter

A head has a role if its score is at least 0.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from headcount.errors import HeadcountError, unknown, wrong
from headcount.heads import HeadLayout, HeadScores
from headcount.system.files import read_json, write_json_rows

ROLES = ("facilitation", "irrelevance", "interference")
THRESHOLD = 0.5
DIGITS = 9  # digits of a gate in a file, enough to keep the order of gates near 0 and 1


@dataclass(frozen=True, eq=False)
class CausalGates:
    """Gates that were pushed open (G⁺) and shut (G⁻): one row per seed, one column per head.

    >>> gates = CausalGates(HeadLayout((3,)), np.array([[1.0, 0.9, 0.1]]), np.array([[1, 0.1, 0]]))
    >>> [str(label) for label in gates.labels()]
    ['facilitation', 'irrelevance', 'interference']
    """

    layout: HeadLayout
    plus: Float[np.ndarray, "seeds heads"]
    minus: Float[np.ndarray, "seeds heads"]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for gates in (self.plus, self.minus):
            if gates.shape != (len(self.plus), self.layout.total) or not len(gates):
                raise HeadcountError(
                    f"Causal gates need shape (seeds, {self.layout.total}) for either sign, not "
                    f"{self.plus.shape} and {self.minus.shape}."
                )
            if not ((gates >= 0) & (gates <= 1)).all():  # NaN is refused as well
                raise HeadcountError("Causal gates must lie between 0 and 1: some of these do not.")

    @property
    def seeds(self) -> int:
        """The number of fits."""
        return len(self.plus)

    def first(self, seeds: int) -> CausalGates:
        """The gates of the first `seeds` fits."""
        return replace(self, plus=self.plus[:seeds], minus=self.minus[:seeds])

    def score(self, role: str) -> Float[np.ndarray, "seeds heads"]:
        """The score of one role, for every seed and head."""
        scores: dict[str, np.ndarray] = {
            "facilitation": self.minus,
            "irrelevance": self.plus * (1 - self.minus),
            "interference": 1 - self.plus,
        }
        if role not in scores:
            raise unknown("role of a head", role, scores)
        return scores[role]

    def ranking(self, role: str) -> HeadScores:
        """The score of one role as a ranking: the mean over seeds, with one sample per seed."""
        return HeadScores.averaged(self.layout, self.score(role), role, self.parameters)

    def has_role(self, role: str) -> Bool[np.ndarray, "seeds heads"]:
        """Which heads have the role, in each seed."""
        return np.asarray(self.score(role) >= THRESHOLD)

    def has_role_on_average(self, role: str) -> Bool[np.ndarray, "heads"]:
        """Which heads have the role by their mean score over seeds."""
        return np.asarray(self.score(role).mean(0) >= THRESHOLD)

    def labels(self, seed: int | None = None) -> np.ndarray:
        """The role of each head, in one fit or by its mean scores; "undecided" if it has none.

        If a head has more than one role, its highest score decides.
        """
        scores = np.stack([self.score(role) for role in ROLES])  # (roles, seeds, heads)
        chosen = scores.mean(1) if seed is None else scores[:, seed]
        names = np.array([*ROLES, "undecided"])
        return names[np.where(chosen.max(0) >= THRESHOLD, chosen.argmax(0), len(ROLES))]

    def shares(self) -> list[dict[str, Any]]:
        """For each role, the share of heads that have it: see `role_shares`."""
        return role_shares(
            {role: self.has_role(role) for role in ROLES},
            {role: self.has_role_on_average(role) for role in ROLES},
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back, to nine digits."""
        return {
            "format": "headcount causal gates 1",
            "parameters": dict(self.parameters),
            "heads_per_layer": list(self.layout.counts),
            "plus": np.round(self.plus, DIGITS).tolist(),
            "minus": np.round(self.minus, DIGITS).tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CausalGates:
        """Read what `to_json` wrote."""
        try:
            return cls(
                HeadLayout(tuple(data["heads_per_layer"])),
                np.asarray(data["plus"], dtype=np.float64),
                np.asarray(data["minus"], dtype=np.float64),
                dict(data["parameters"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise HeadcountError(f"This is not a file of causal gates: {wrong(error)}.") from error

    def save(self, path: str | Path) -> None:
        """Write the gates as JSON, one line per seed."""
        write_json_rows(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> CausalGates:
        """Read gates that `save` wrote."""
        return cls.from_json(read_json(path, "causal gates"))


def role_shares(
    has_role: Mapping[str, Bool[np.ndarray, "seeds heads"]],
    on_average: Mapping[str, Bool[np.ndarray, "heads"]],
) -> list[dict[str, Any]]:
    """For each role, the share of heads that have it.

    `share` is the mean over seeds, `lowest` and `highest` are its range; `by_mean` uses the mean
    scores; `always` and `any` are the shares of heads that have the role in all seeds or in at
    least one, and `…_if_independent` what they would be if each seed chose its heads on its own.
    The last row is for heads that facilitate or interfere.
    """
    rows = []
    for roles in (*([role] for role in ROLES), ["facilitation", "interference"]):
        has = np.any([has_role[role] for role in roles], axis=0)  # (seeds, heads)
        row = {
            "share": has.mean(),
            "lowest": has.mean(1).min(),
            "highest": has.mean(1).max(),
            "by_mean": np.any([on_average[role] for role in roles], axis=0).mean(),
            "always": has.all(0).mean(),
            "any": has.any(0).mean(),
            "always_if_independent": has.mean(1).prod(),
            "any_if_independent": 1 - (1 - has.mean(1)).prod(),
        }
        numbers = {name: float(value) for name, value in row.items()}
        rows.append({"role": " or ".join(roles), **numbers})
    return rows
