"""Study `head-roles`: learned causal gates, and the role of each head.

After "Causal Head Gating" (Nam et al., NeurIPS 2025), Figure 2. For each task: fit gates on the
ranking split (or take fitted ones); on the test split, ablate more and more heads in the order of
each role's score, and measure how the log-probability of the target changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from headcount.errors import counted
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
from headcount.studies.head_roles.toggling import (
    METRICS,
    ChanceRequest,
    RoleCurves,
    ToggleRequest,
)
from headcount.system.files import checked_path
from headcount.tasks import Task, task_factory

PUBLISHED = RoleSettings.updates  # updates in each stage
READING = (
    "Our reading of the published figure: heads are toggled cumulatively, log-probabilities are "
    "summed over the target, and the mean over seeds is taken last."
)
# The published share of heads with each role, over four Llama models of 1 to 8 billion weights.
SHARES = {
    ("Syntax", "irrelevance"): "63.0 %",
    ("Common Sense", "irrelevance"): "64.6 %",
    ("Math", "irrelevance"): "39.0 %",
    ("Syntax", "facilitation"): "25.6 %",
    ("Common Sense", "facilitation"): "27.4 %",
    ("Math", "facilitation"): "52.6 %",
}
OVER_SEEDS = {  # published shares of heads with the role in all seeds, and in any seed
    ("Syntax", "facilitation"): ("0.7 to 1.5 %", "68 to 73 %"),
    ("Math", "facilitation"): ("18 to 38 %", "74 to 81 %"),
}


def describe(models: Sequence[Model], config: Config) -> Description:
    """Find the gates, and write down what is fitted and measured."""
    largest = max((model.layout for model in models), key=lambda layout: layout.total)
    counts = FULL if config.counts is None else tuple(check_counts([0, *config.counts], largest))
    located: dict[Cell, CausalGates | GateFit] = {}
    notes: list[str] = []
    for cell in make_cells(models, config):
        located[cell], origin = locate_gates(cell, config)
        notes += origin
    fits = {cell: gates for cell, gates in located.items() if isinstance(gates, GateFit)}
    requests: dict[Hashable, StudyRequest] = {(cell, "gates"): fit for cell, fit in fits.items()}
    for cell, gates in located.items():
        own = tuple(count for count in counts if count <= cell.model.layout.total)
        for base in config.bases:
            requests[cell, base] = ToggleRequest(cell, gates, own, base, config.n)
        requests[cell, "chance"] = ChanceRequest(cell, config.n)
    return Description(
        requests,
        _Conclusion(config, counts, located, notes),
        before=partial(announce, fits, config.refit),
    )


def check(config: Config) -> None:
    """Refuse fits that cannot be made, and tasks and counts that do not exist."""
    if config.counts is not None:
        check_counts(config.counts)
    checked_path(config.gates)
    fit_settings(config)
    for spec in config.tasks:
        if not isinstance(spec, Task):
            task_factory(spec, **(config.task_settings or {}))


@dataclass(frozen=True, eq=False)
class _Conclusion:
    """Turns the results into a finished study."""

    config: Config
    counts: tuple[int, ...]
    located: Mapping[Cell, CausalGates | GateFit]
    notes: Sequence[str]

    def __call__(self, results: Results) -> Study:
        gates = {
            cell: marked(results[cell, "gates"], cell) if isinstance(known, GateFit) else known
            for cell, known in self.located.items()
        }
        panels = [
            replace(results[cell, base], at_chance=results[cell, "chance"])
            for cell in gates
            for base in self.config.bases
        ]
        scores, heads = _scores_and_heads(gates)
        more = self._more_notes(gates)
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
                "fit": {f"{cell.label}, {cell.key}": g.parameters for cell, g in gates.items()},
                "task": dict(self.config.task_settings or {}),
            },
            model={cell.label: cell.model.facts for cell in gates},
            scores=scores,
            heads=heads,
            notes=list(dict.fromkeys([*_at_chance(panels), *self.notes, *more, READING])),
            tables=_tables(gates),
            values=[row for panel in panels for row in _values(panel)],
        )

    def _more_notes(self, gates: Mapping[Cell, CausalGates]) -> Iterator[str]:
        for cell, fitted in gates.items():
            if fitted.parameters.get("note"):
                yield f"{cell}: {fitted.parameters['note']}."
        for cell, fitted in gates.items():
            updates, heads = fitted.parameters.get("updates", PUBLISHED), cell.model.layout.total
            if updates < PUBLISHED:
                yield (
                    f"{cell}: the gates had {updates} updates a stage and the published gates "
                    f"{PUBLISHED}, so the roles may not have converged."
                )
            if heads < max(self.counts):
                yield f"{cell.label} has {counted(heads, 'head')}: its curves end there."


def _at_chance(panels: Sequence[RoleCurves]) -> list[str]:
    return [f"{panel.name}: {panel.at_chance}" for panel in panels if panel.at_chance]


def _values(panel: RoleCurves) -> list[dict[str, Any]]:
    """Every value of a panel; the column "draw" is the seed."""
    facts = {"model": panel.model, "task": panel.task, "metric": METRICS[panel.base]}
    return value_rows(panel.changes, panel.clusters, **facts)


def _scores_and_heads(
    gates: Mapping[Cell, CausalGates],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The files of scores and the table of heads.

    Each role is saved as a ranking. The gates are saved in a folder that `gates=` can read.
    """
    scores: dict[str, Any] = {}
    heads = []
    for cell, fitted in gates.items():
        rankings = {role: fitted.ranking(role) for role in ROLES}
        for role, ranking in rankings.items():
            scores[f"{cell.folder}-{cell.file}-{role}"] = ranking
        scores[f"gates/{cell.folder}/{cell.file}"] = fitted
        heads += head_rows(cell.label, cell.key, rankings, roles=fitted.labels())
    return scores, heads


def _tables(gates: Mapping[Cell, CausalGates]) -> dict[str, list[dict[str, Any]]]:
    """The share of heads with each role: the mean over seeds, in all seeds, and in any seed."""
    shares, over_seeds = [], []
    for cell, fitted in gates.items():
        for row in fitted.shares():
            about = {"model": cell.label, "task": cell.name, "role": row["role"]}
            where = cell.name, row["role"]
            ends = {name: row[name] for name in ("share", "lowest", "highest", "by_mean")}
            shares.append({**about, **ends, "published": SHARES.get(where, "")})
            both = {"seeds": fitted.seeds, "always": row["always"], "any": row["any"]}
            in_all, in_any = OVER_SEEDS.get(where, ("", ""))
            published = {"published always": in_all, "published any": in_any}
            over_seeds.append({**about, **both, **published})
    return {"Role shares": shares, "Roles over seeds": over_seeds}


KIND = StudyKind("head-roles", describe, Config, PRESETS, check=check)
