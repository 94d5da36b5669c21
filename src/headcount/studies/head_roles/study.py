"""Study `head-roles`: learned causal gates, and what each head is for.

After "Causal Head Gating" (Nam et al., NeurIPS 2025), Figure 2. For each task: fit gates on its
training part (or take fitted ones); on the validation part ablate more and more heads in the order
of each role's score, and see how the log-probability of the target changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from headcount.errors import HeadcountError
from headcount.heads import check_counts
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import GateFit, RoleSettings
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies.description import Description, Results, StudyKind, StudyRequest
from headcount.studies.head_roles.cells import Cell, make_cells
from headcount.studies.head_roles.claims import judge_claims
from headcount.studies.head_roles.config import FULL, PRESETS, Config
from headcount.studies.head_roles.figure import draw
from headcount.studies.head_roles.gates import announce, locate_gates, marked
from headcount.studies.head_roles.panel import Panel
from headcount.studies.head_roles.tables import role_tables
from headcount.studies.head_roles.toggling import ToggleRequest

PUBLISHED = RoleSettings.updates  # of each stage
READING = (
    "That heads are toggled cumulatively, that log-probabilities are summed over the target and "
    "that seeds are averaged last is our reading of the published figure."
)


def describe(models: Sequence[Model], config: Config) -> Description:
    """Find the gates, and write down what is fitted and measured."""
    if not models:
        raise HeadcountError("The study needs at least one model.")
    largest = max((model.layout for model in models), key=lambda layout: layout.total)
    counts = FULL if config.counts is None else tuple(check_counts([0, *config.counts], largest))
    located: dict[Cell, CausalGates | GateFit] = {}
    notes: list[str] = []
    for cell in make_cells(models, config):
        located[cell], its = locate_gates(cell, config)
        notes += its
    fits = {cell: gates for cell, gates in located.items() if isinstance(gates, GateFit)}
    requests: dict[Hashable, StudyRequest] = {(cell, "gates"): fit for cell, fit in fits.items()}
    for cell, gates in located.items():
        task, heads = cell.validation(config.n), cell.model.layout.total
        own = tuple(count for count in counts if count <= heads)
        for base in config.bases:
            requests[cell, base] = ToggleRequest(cell.model, task, gates, own, base)
    return Description(
        requests,
        _Conclusion(config, counts, located, notes),
        before=partial(announce, fits, config.refit),
    )


@dataclass(frozen=True, eq=False)
class _Conclusion:
    """What is made of the results."""

    config: Config
    counts: tuple[int, ...]
    located: Mapping[Cell, CausalGates | GateFit]
    notes: Sequence[str]

    def __call__(self, results: Results) -> Study:
        gates = {
            cell: marked(results[cell, "gates"], cell) if isinstance(its, GateFit) else its
            for cell, its in self.located.items()
        }
        panels = []
        for cell in gates:
            parameters = sum(weight.numel() for weight in cell.model.module.parameters())
            for base in self.config.bases:
                panels.append(Panel(cell.name, cell.label, results[cell, base], parameters))
        notes = [*self.notes, *self._notes(gates), READING]
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {', '.join(dict.fromkeys(cell.label for cell in gates))}",
            rows=[row for panel in panels for row in panel.rows],
            claims=judge_claims([panel for panel in panels if panel.toggled.base == "soft"]),
            figures=draw(panels, gates),
            settings=self._settings(gates),
            model={cell.label: cell.model.facts for cell in gates},
            scores=_scores(gates),
            heads=_heads(gates),
            notes=list(dict.fromkeys(notes)),
            tables=role_tables(gates),
        )

    def _settings(self, gates: Mapping[Cell, CausalGates]) -> dict[str, Any]:
        return {
            **{field.name: getattr(self.config, field.name) for field in fields(self.config)},
            "tasks": list(dict.fromkeys(cell.key for cell in gates)),
            "counts": list(self.counts),
            "fit": {f"{cell.label}, {cell.key}": its.parameters for cell, its in gates.items()},
            "task": dict(self.config.task_settings or {}),
        }

    def _notes(self, gates: Mapping[Cell, CausalGates]) -> Iterator[str]:
        for cell, its in gates.items():
            if its.parameters.get("note"):
                yield f"{cell}: {its.parameters['note']}."
        for cell, its in gates.items():
            if its.parameters.get("updates", PUBLISHED) < PUBLISHED:
                yield (
                    f"{cell}: its gates had {its.parameters['updates']} updates a stage, and the "
                    f"published ones {PUBLISHED}: roles may not have settled."
                )
            if cell.model.layout.total < max(self.counts):
                yield f"{cell.label} has {cell.model.layout.total} heads: its curves end there."


def _scores(gates: Mapping[Cell, CausalGates]) -> dict[str, Any]:
    """Each role as a ranking, and the gates themselves, where `gates=` finds them again."""
    scores: dict[str, Any] = {}
    for cell, its in gates.items():
        for role in ROLES:
            scores[f"{cell.folder}-{cell.file}-{role}"] = its.ranking(role)
        scores[f"gates/{cell.folder}/{cell.file}"] = its
    return scores


def _heads(gates: Mapping[Cell, CausalGates]) -> list[dict[str, Any]]:
    """The roles of each head, and its score for each of them."""
    rows = []
    for cell, its in gates.items():
        scores = {role: its.ranking(role) for role in ROLES}
        rows += head_rows(cell.label, cell.key, scores, roles=its.labels())
    return rows


KIND = StudyKind(
    key="head-roles",
    config=Config,
    presets=PRESETS,
    models=("smollm2-135m",),
    describe=describe,
)
