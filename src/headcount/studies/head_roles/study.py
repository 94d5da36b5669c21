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

from headcount.heads import check_counts
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import GateFit, RoleSettings
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.report.curve_study import value_rows
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest
from headcount.studies.head_roles.claims import judge_claims
from headcount.studies.head_roles.config import FULL, PRESETS, Config
from headcount.studies.head_roles.figure import draw
from headcount.studies.head_roles.gates import (
    Cell,
    announce,
    fit_settings,
    locate_gates,
    make_cells,
    marked,
)
from headcount.studies.head_roles.toggling import METRICS, RoleCurves, ToggleRequest

PUBLISHED = RoleSettings.updates  # of each stage
READING = (
    "That heads are toggled cumulatively, that log-probabilities are summed over the target and "
    "that seeds are averaged last is our reading of the published figure."
)
# The published share of heads that have a role, over four Llama models of 1 to 8 billion weights.
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


def describe(models: Sequence[Model], config: Config) -> Description:
    """Find the gates, and write down what is fitted and measured."""
    fit_settings(config)  # refuses what is none
    largest = max((model.layout for model in models), key=lambda layout: layout.total)
    counts = FULL if config.counts is None else tuple(check_counts([0, *config.counts], largest))
    located: dict[Cell, CausalGates | GateFit] = {}
    notes: list[str] = []
    for cell in make_cells(models, config):
        located[cell], its_notes = locate_gates(cell, config)
        notes += its_notes
    fits = {cell: gates for cell, gates in located.items() if isinstance(gates, GateFit)}
    requests: dict[Hashable, StudyRequest] = {(cell, "gates"): fit for cell, fit in fits.items()}
    for cell, gates in located.items():
        own = tuple(count for count in counts if count <= cell.model.layout.total)
        for base in config.bases:
            requests[cell, base] = ToggleRequest(cell, gates, own, base, config.n)
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
        panels = [results[cell, base] for cell in gates for base in self.config.bases]
        scores, heads = _scores_and_heads(gates)
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {', '.join(dict.fromkeys(cell.label for cell in gates))}",
            rows=[row for panel in panels for row in panel.rows],
            claims=judge_claims([panel for panel in panels if panel.base == "soft"]),
            figures=draw(panels, gates),
            settings={
                **{field.name: getattr(self.config, field.name) for field in fields(self.config)},
                "tasks": list(dict.fromkeys(cell.key for cell in gates)),
                "counts": list(self.counts),
                "fit": {f"{cell.label}, {cell.key}": its.parameters for cell, its in gates.items()},
                "task": dict(self.config.task_settings or {}),
            },
            model={cell.label: cell.model.facts for cell in gates},
            scores=scores,
            heads=heads,
            notes=list(dict.fromkeys([*self.notes, *self._more_notes(gates), READING])),
            tables=_tables(gates),
            values=[row for panel in panels for row in _values(panel)],
        )

    def _more_notes(self, gates: Mapping[Cell, CausalGates]) -> Iterator[str]:
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


def _values(panel: RoleCurves) -> list[dict[str, Any]]:
    """Every value behind a panel; a seed is a draw."""
    facts = {"model": panel.model, "task": panel.task, "metric": METRICS[panel.base]}
    return value_rows(panel.changes, panel.clusters, **facts)


def _scores_and_heads(
    gates: Mapping[Cell, CausalGates],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Each role as a ranking and the gates, where `gates=` finds them again; and rows of heads."""
    scores: dict[str, Any] = {}
    heads = []
    for cell, its in gates.items():
        rankings = {role: its.ranking(role) for role in ROLES}
        for role, ranking in rankings.items():
            scores[f"{cell.folder}-{cell.file}-{role}"] = ranking
        scores[f"gates/{cell.folder}/{cell.file}"] = its
        heads += head_rows(cell.label, cell.key, rankings, roles=its.labels())
    return scores, heads


def _tables(gates: Mapping[Cell, CausalGates]) -> dict[str, list[dict[str, Any]]]:
    """The share of heads that have each role: on average, and in all seeds or at least one."""
    shares, over_seeds = [], []
    for cell, its in gates.items():
        for row in its.shares():
            about = {"model": cell.label, "task": cell.name, "role": row["role"]}
            where = cell.name, row["role"]
            ends = {name: row[name] for name in ("share", "lowest", "highest", "by_mean")}
            shares.append({**about, **ends, "published": SHARES.get(where, "")})
            both = {"seeds": its.seeds, "always": row["always"], "any": row["any"]}
            always, some = OVER_SEEDS.get(where, ("", ""))
            published = {"published always": always, "published any": some}
            over_seeds.append({**about, **both, **published})
    return {"Role shares": shares, "Roles over seeds": over_seeds}


KIND = StudyKind("head-roles", describe, Config, PRESETS)
