"""Study `head-roles`: learned causal gates, and the role of each head.

After "Causal Head Gating" (Nam et al., NeurIPS 2025), Figure 2. For each task: fit gates on the
ranking split (or take fitted ones); on the test split, ablate more and more heads in the order of
each role's score, and measure how the log-probability of the target changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from headcount.errors import counted
from headcount.heads import check_counts
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import GateFit, RoleSettings
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.registry import settings_of
from headcount.report.estimates import plain_facts
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest
from headcount.studies.head_roles.config import FULL, PRESETS, Config
from headcount.studies.head_roles.estimates import estimate
from headcount.studies.head_roles.figure import draw
from headcount.studies.head_roles.gates import (
    Cell,
    announce,
    fit_settings,
    locate_gates,
    make_cells,
    marked,
)
from headcount.studies.head_roles.panels import COLUMNS, SHARED, WHOLE
from headcount.studies.head_roles.roles import HeadRoles
from headcount.studies.head_roles.toggling import ChanceRequest, ToggleRequest
from headcount.system.files import checked_path
from headcount.tasks import Task, task_factory
from headcount.value_table import ValueTable

PUBLISHED = RoleSettings.updates  # updates in each stage
READING = (
    "Our reading of the published figure: heads are toggled cumulatively, log-probabilities are "
    "summed over the target, and the mean over seeds is taken last."
)
FIXED = (
    "Intervals are over validation prompts and over seeds of the fit. The prompts on which gates "
    "are fitted are the same in all fits and are held fixed: other ones could give other gates."
)


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
            task_factory(spec, **settings_of(config.task_settings, spec))


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
        values, facts = self._values(results, gates)
        found = estimate(values, facts)
        models = {cell.label: cell.model.facts for cell in gates}
        figures, captions = draw(values, facts, found, models)
        scores, heads = _scores_and_heads(gates)
        more = self._more_notes(gates)
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {', '.join(dict.fromkeys(cell.label for cell in gates))}",
            rows=found.rows,
            claims=found.claims,
            figures=figures,
            captions=captions,
            settings={
                **{field.name: getattr(self.config, field.name) for field in fields(self.config)},
                "tasks": list(dict.fromkeys(cell.key for cell in gates)),
                "counts": list(self.counts),
                "fit": {f"{cell.label}, {cell.key}": g.parameters for cell, g in gates.items()},
                "task": dict(self.config.task_settings or {}),
            },
            model=models,
            scores=scores,
            heads=heads,
            notes=list(dict.fromkeys([*found.notes, *self.notes, *more, FIXED, READING])),
            tables=found.tables,
            values=values,
            facts=facts,
        )

    def _values(
        self, results: Results, gates: Mapping[Cell, CausalGates]
    ) -> tuple[ValueTable, dict[str, Any]]:
        """Δ of every prompt, seed, role and count, and what estimates need besides."""
        values, panels = ValueTable(COLUMNS, SHARED), []
        for cell, fitted in gates.items():
            own = {"model": cell.label, "task": cell.name}
            prompts = cell.model.encode(cell.validation(self.config.n))
            names = [(prompt.example.id, *prompt.example.cluster) for prompt in prompts]
            values.name_examples(names, **own)
            right, chance = results[cell, "chance"]
            values.put(right, **own, **WHOLE)
            for base in self.config.bases:
                for (role, count), changes in results[cell, base].items():
                    values.put(changes, **own, base=base, series=role, count=count)
            carriers = {role: float(fitted.has_role(role).sum(1).mean()) for role in ROLES}
            weights = cell.model.module.parameters()
            panels.append(
                {
                    **own,
                    "heads": cell.model.layout.total,
                    "parameters": sum(weight.numel() for weight in weights),
                    "tokens": [len(prompt.target) for prompt in prompts],
                    "carriers": carriers,
                    "roles": HeadRoles.of(fitted).facts(),
                    "chance": asdict(chance) if chance else None,
                }
            )
        return values, plain_facts({"bases": list(self.config.bases), "panels": panels})

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


KIND = StudyKind("head-roles", describe, Config, PRESETS, check=check, estimate=estimate, draw=draw)
