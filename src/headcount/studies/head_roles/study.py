"""Study `head-roles`: learned causal gates, and what each head is for.

After "Causal Head Gating" (Nam et al., NeurIPS 2025), Figure 2. For each task: fit gates on its
training part (or take fitted ones); on the validation part ablate more and more heads in the order
of each role's score, and see how the log-probability of the target changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headcount.engine.measure.forecast import all_measured
from headcount.errors import HeadcountError
from headcount.figures.roles import plot_role_maps, plot_roles
from headcount.heads import check_counts
from headcount.models.model import Model
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.report.head_rows import head_rows
from headcount.stats import bootstrap
from headcount.store import Store
from headcount.studies.head_roles.claims import Panel, judge_claims
from headcount.studies.head_roles.gates import Cell, file_name, obtain_gates
from headcount.studies.head_roles.tables import seed_rows, share_rows
from headcount.studies.head_roles.toggling import Base, toggle
from headcount.studies.study import Study
from headcount.tasks import Task, make_task

ROWS = {"syntax": "Syntax", "common-sense": "Common Sense", "arithmetic": "Math"}
FULL = tuple(range(0, 51, 2))
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"counts": (0, 2, 5, 10, 20, 50), "seeds": 2, "n": 16, "plain": False},
    "full": {"counts": FULL, "seeds": 10, "n": 0},
    "paper": {"counts": FULL, "seeds": 10, "n": 0, "plain": False},
}
PUBLISHED = 500  # updates of each stage
METRICS: dict[Base, str] = {"soft": "logprob change", "plain": "logprob change, plain model"}
STARTS: dict[Base, str] = {
    "soft": "from soft gates G⁺, ablated less retained",
    "plain": "from the whole model, ablated less whole",
}
READING = (
    "That heads are toggled cumulatively, that log-probabilities are summed over the target and "
    "that seeds are averaged last is our reading of the published figure."
)


def head_roles(
    models: Sequence[Model],
    *,
    tasks: Sequence[str | Task] = tuple(ROWS),
    counts: Sequence[int] | None = None,
    seeds: int = 10,
    n: int = 0,
    plain: bool = True,
    gates: str = "",
    refit: bool = False,
    updates: int = 500,
    batch: int = 64,
    variant: str = "published",
    compiled: bool = False,
    task_settings: dict[str, Any] | None = None,
    store: Store | None = None,
    progress: bool = True,
    say: Callable[[str], object] = lambda text: None,
) -> Study:
    """Learned causal gates split heads into facilitating, irrelevant and interfering ones.

    Gates come from the folder `gates`, else from those that headcount brings along, else they are
    fitted, as with `refit`; what takes longer than half an hour is fitted with `refit` only. Curves
    are measured on `n` validation prompts, 0 meaning all; with `plain` also from the whole model
    instead of soft gates.
    """
    if not tasks or not models:
        raise HeadcountError("The study needs at least one task and one model.")
    if seeds < 1 or n < 0:
        raise HeadcountError(
            f"The study needs at least 1 seed, and n of 0 or more: not {seeds}, {n}."
        )
    largest = max((model.layout for model in models), key=lambda layout: layout.total)
    wanted = FULL if counts is None else check_counts([0, *counts], largest)
    cells = _cells(models, tasks, task_settings or {})
    fit = {"updates": updates, "batch": batch, "variant": variant, "compiled": compiled}
    found, notes = obtain_gates(
        cells,
        seeds=seeds,
        folder=gates,
        refit=refit,
        options=fit,
        store=store,
        progress=progress,
        say=say,
    )
    bases: tuple[Base, ...] = ("soft", "plain") if plain else ("soft",)
    panels: list[Panel] = []
    for cell, its in zip(cells, found, strict=True):
        chosen = [count for count in wanted if count <= cell.model.layout.total]
        if its.parameters.get("updates", PUBLISHED) < PUBLISHED:
            notes.append(
                f"{cell.label}, {cell.name}: its gates had {its.parameters['updates']} updates a "
                f"stage, and the published ones {PUBLISHED}: roles may not have settled."
            )
        if len(chosen) < len(wanted):
            notes.append(f"{cell.label} has {cell.model.layout.total} heads: its curves end there.")
        for base in bases:
            toggled = toggle(
                cell.model,
                _validation(cell.task, n),
                its,
                chosen,
                base=base,
                store=store,
                progress=progress,
            )
            parameters = sum(weight.numel() for weight in cell.model.module.parameters())
            panels.append(Panel(cell.name, cell.label, toggled, parameters))
    all_measured()
    rows = {id(panel): _rows(panel) for panel in panels}
    figures = {}
    for base in bases:
        some = [panel for panel in panels if panel.toggled.base == base]
        figures["figure" if base == "soft" else "plain"] = plot_roles(
            {(panel.task, panel.model): _lines(rows[id(panel)]) for panel in some},
            note=f"{STARTS[base]} · mean of {_seeds(found)} · bands: 95 % intervals over seeds "
            f"and prompts · n = {_prompts(some)}",
        )
    figures["roles"] = plot_role_maps(
        {(cell.name, cell.label): its.labels() for cell, its in zip(cells, found, strict=True)},
        {cell.label: list(cell.model.layout.counts) for cell in cells},
    )
    return Study(
        name="head-roles",
        title=f"head-roles · {', '.join(dict.fromkeys(cell.label for cell in cells))}",
        rows=[row for panel in panels for row in rows[id(panel)]],
        claims=judge_claims([panel for panel in panels if panel.toggled.base == "soft"]),
        figures=figures,
        settings={
            "tasks": list(dict.fromkeys(cell.key for cell in cells)),
            "counts": list(wanted),
            "seeds": seeds,
            "n": n,
            "plain": plain,
            "gates": gates,
            "refit": refit,
            "fit": {f"{c.label}, {c.key}": g.parameters for c, g in zip(cells, found, strict=True)},
            "task": task_settings or {},
        },
        model={cell.label: cell.model.facts for cell in cells},
        scores=_scores(cells, found),
        heads=_heads(cells, found),
        notes=[*dict.fromkeys(notes), READING],
        tables={
            "Role shares": share_rows(cells, found),
            "Roles over seeds": seed_rows(cells, found),
        },
    )


def _cells(
    models: Sequence[Model], tasks: Sequence[str | Task], settings: dict[str, Any]
) -> list[Cell]:
    """Models × tasks; models that share a name are told apart by a number."""
    cells: list[Cell] = []
    seen: Counter[str] = Counter()
    for model in models:
        seen[model.name] += 1
        times = seen[model.name]
        label = model.name if times == 1 else f"{model.name} ({times})"
        its: dict[str, Cell] = {}
        for spec in tasks:
            key = spec.name if isinstance(spec, Task) else Path(spec).name.removesuffix(".jsonl")
            if key in its:
                raise HeadcountError(f'Two tasks have the name "{key}": rename one of the files.')
            task = make_task(spec, model.tokenizer, **settings)
            its[key] = Cell(model, label, task, key, ROWS.get(key, key))
        cells += its.values()
    return cells


def _seeds(found: Sequence[CausalGates]) -> str:
    """How many there are in each panel."""
    counts = sorted({gates.seeds for gates in found})
    if counts == [1]:
        return "1 seed"
    return f"{' or '.join(map(str, counts))} seeds"


def _validation(task: Task, n: int) -> Task:
    """The task with some of its validation prompts: those that no gate has seen."""
    test = task.part("test")
    return test.subset(n) if n and n < len(test) else test


def _rows(panel: Panel) -> list[dict[str, Any]]:
    found = []
    for (role, count), values in panel.toggled.changes.items():
        interval = bootstrap(values, clusters=panel.toggled.clusters)
        found.append(
            {
                "model": panel.model,
                "task": panel.task,
                "series": role,
                "metric": METRICS[panel.toggled.base],
                "count": count,
                "value": interval.value,
                "low": interval.low,
                "high": interval.high,
                "n": values.shape[1],
                "seeds": values.shape[0],
            }
        )
    return found


def _lines(rows: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, float, float, float]]]:
    return {
        role: [
            (row["count"], row["value"], row["low"], row["high"])
            for row in rows
            if row["series"] == role
        ]
        for role in ROLES
    }


def _scores(cells: Sequence[Cell], found: Sequence[CausalGates]) -> dict[str, Any]:
    """Each role as a ranking, and the gates themselves, where `gates=` finds them again."""
    scores: dict[str, Any] = {}
    for cell, gates in zip(cells, found, strict=True):
        model, task = file_name(cell.label), file_name(cell.key)
        for role in ROLES:
            scores[f"{model}-{task}-{role}"] = gates.ranking(role)
        scores[f"gates/{model}/{task}"] = gates
    return scores


def _heads(cells: Sequence[Cell], found: Sequence[CausalGates]) -> list[dict[str, Any]]:
    """The roles of each head, and its score for each of them."""
    return [
        row
        for cell, gates in zip(cells, found, strict=True)
        for row in head_rows(
            cell.label,
            cell.key,
            {role: gates.ranking(role) for role in ROLES},
            roles=gates.labels(),
        )
    ]


def _prompts(panels: Sequence[Panel]) -> str:
    numbers = [len(panel.toggled.clusters) for panel in panels]
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
