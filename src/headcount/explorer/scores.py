"""The scores and roles that an explorer colours its map by: from files, or computed on request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, HeadScores
from headcount.models.model import Model
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.studies.head_roles.gates import shipped_gates
from headcount.system.files import read_json
from headcount.tasks import Task


@dataclass
class Scores:
    """Scores by name, and the learned gates from which roles are read."""

    known: dict[str, HeadScores] = field(default_factory=dict)
    gates: dict[str, CausalGates] = field(default_factory=dict)
    _json: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, paths: Iterable[str | Path], name: str, layout: HeadLayout) -> Scores:
        """Read files of scores or of learned gates; refuses those of another model by name."""
        scores = cls()
        for path in paths:
            document = read_json(path, "head scores")
            is_gates = isinstance(document, dict) and "plus" in document
            found = CausalGates.from_json(document) if is_gates else HeadScores.load(path)
            own = str(found.parameters.get("model", name))
            if own != name or found.layout != layout:
                raise HeadcountError(
                    f'{path} has scores of another model: of "{own}", with {found.layout}, and '
                    f'this is "{name}", with {layout}.'
                )
            label = str(found.parameters.get("task", Path(path).stem))
            if isinstance(found, CausalGates):
                scores.gates[label] = found
                for role in ROLES:
                    scores.add(role, found.ranking(role))
            else:
                scores.add(found.ranking, found)
        return scores

    def add(self, name: str, found: HeadScores) -> None:
        """Add scores; scores from several files of one ranking get numbers."""
        taken = self.known.get(name)
        if taken is not None and taken.parameters.get("task") != found.parameters.get("task"):
            name = f"{name} ({found.parameters.get('task', len(self.known))})"
        self.known[name] = found
        self._json.pop(name, None)

    def roles(self, model: Model) -> dict[str, list[str]]:
        """The role of each head, by task: from files, from rankings, or fitted to these weights."""
        found = {
            task: gates.labels() for task, gates in (self._shipped(model) | self.gates).items()
        }
        if all(role in self.known for role in ROLES) and not self.gates:
            values = np.stack([self.known[role].values for role in ROLES])  # (roles, heads)
            names = np.array([*ROLES, "undecided"])
            found["this task"] = names[np.where(values.max(0) >= 0.5, values.argmax(0), len(ROLES))]
        return {f"role: {task}": [str(label) for label in labels] for task, labels in found.items()}

    def _shipped(self, model: Model) -> dict[str, CausalGates]:
        found = {}
        for path in sorted(shipped_gates().glob("*/*.json")):
            gates = CausalGates.load(path)
            same = gates.layout == model.layout
            if same and gates.parameters.get("weights") == model.identity["weights"]:
                found[str(gates.parameters.get("task", path.stem))] = gates
        return found

    def to_json(self, task: Task | None, only: str | None = None) -> dict[str, Any]:
        """Values and ends of intervals by name, as pages read them."""
        clusters = None if task is None or not self.known else task.split("ranking").clusters
        for name, scores in self.known.items():
            if name not in self._json:
                rows = -1 if scores.samples is None else len(scores.samples)
                fits = clusters is not None and rows == len(clusters)
                ends = scores.intervals(clusters if fits else None)  # (heads, 2)
                self._json[name] = {"values": _numbers(scores.values)}
                if np.isfinite(ends).all():
                    low, high = ends.T
                    self._json[name] |= {"low": _numbers(low), "high": _numbers(high)}
        return {name: self._json[name] for name in self.known if only in (None, name)}


def _numbers(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
