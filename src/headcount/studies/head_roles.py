"""Study `head-roles`: learned causal gates, and what each head is for.

After "Causal Head Gating" (Nam et al., NeurIPS 2025), Figure 2. For each task: fit gates on its
training part (or take the committed ones of the bundled model); on the validation part ablate more
and more heads in the order of each role's score, and see how the log-probability of the target
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from headcount.errors import HeadcountError, did_you_mean
from headcount.figures.roles import plot_role_maps, plot_roles
from headcount.heads import check_counts
from headcount.models.model import Model
from headcount.rankings.causal_gates import ROLES, CausalGates
from headcount.rankings.gating_fit import fit_gates, fit_time
from headcount.stats import bootstrap
from headcount.store import Store
from headcount.studies.head_roles_claims import Panel, judge_claims
from headcount.studies.study import Study
from headcount.studies.toggling import toggle
from headcount.tasks import TASKS, Task, make_task

ROWS = {"syntax": "Syntax", "common-sense": "Common Sense", "arithmetic": "Math"}
FULL = tuple(range(0, 51, 2))
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"counts": (0, 2, 5, 10, 20, 50), "seeds": 2, "n": 12, "plain": False},
    "full": {"counts": FULL, "seeds": 10, "n": 0},
    "paper": {"counts": FULL, "seeds": 10, "n": 0, "plain": False},
}


def head_roles(
    models: Sequence[Model],
    *,
    tasks: Sequence[str] = tuple(ROWS),
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
    say: Callable[[str], None] = lambda text: None,
) -> Study:
    """Learned causal gates split heads into facilitating, irrelevant and interfering ones.

    Gates come from the folder `gates`, else from those committed for the bundled model, else they
    are fitted, as with `refit`. Curves are measured on `n` validation prompts, 0 meaning all; with
    `plain` also from the whole model instead of soft gates.
    """
    for name in tasks:
        if name not in TASKS.entries:
            raise HeadcountError(
                f'There is no task "{name}" (known: {", ".join(TASKS.entries)}).'
                f"{did_you_mean(name, TASKS.entries)}"
            )
    if not tasks or not models:
        raise HeadcountError("The study needs at least one task and one model.")
    panels: list[Panel] = []
    rows: list[dict[str, Any]] = []
    maps: dict[tuple[str, str], np.ndarray] = {}
    shares: list[dict[str, Any]] = []
    scores: dict[str, Any] = {}
    notes: list[str] = []
    for model in models:
        chosen = check_counts([c for c in counts or FULL if c <= model.layout.total], model.layout)
        for key in tasks:
            task = make_task(key, model.tokenizer, **(task_settings or {}))
            name = ROWS.get(key, key)
            fitted = None if refit else _given(gates, model, key, seeds, notes)
            if fitted is None:
                options: dict[str, Any] = {
                    "updates": updates,
                    "batch": batch,
                    "seeds": seeds,
                    "variant": variant,
                    "compiled": compiled,
                    "store": store,
                }
                left = fit_time(model, task, **options)
                if left:
                    say(f"{model.name}, {name}: fitting gates takes about {_duration(left)} here")
                fitted = fit_gates(model, task, progress=progress, **options)
                fitted.parameters["weights"] = model.identity["weights"]  # type: ignore[index]
            held = _validation(task, n)
            for base in ("soft", "plain") if plain else ("soft",):
                toggled = toggle(
                    model,
                    held,
                    fitted,
                    chosen,
                    base=base,
                    store=store,
                    progress=progress,
                )
                panel = Panel(name, model.name, toggled)
                panels.append(panel)
                rows += _rows(panel, key)
            maps[name, model.name] = fitted.labels()
            for share in fitted.shares():
                shares.append({"model": model.name, "task": name, **share})
            for role in ROLES:
                scores[f"{_file(model.name)}-{key}-{role}"] = fitted.ranking(role)
            scores[f"{_file(model.name)}-{key}-gates"] = fitted
    columns = list(dict.fromkeys(panel.model for panel in panels))
    names = list(dict.fromkeys(panel.task for panel in panels))
    figures = {}
    for base, file in (("soft", "figure"), ("plain", "plain")):
        lines = {(p.task, p.model): _lines(p) for p in panels if p.toggled.base == base}
        if lines:
            n_found = _span([p.toggled.clusters.shape[0] for p in panels])
            start = "soft G⁺, ablated less retained" if base == "soft" else "the whole model"
            note = f"from {start} · bands: 95 % intervals over seeds and prompts · n = {n_found}"
            figures[file] = plot_roles(lines, names, columns, note=note)
    layouts = {model.name: list(model.layout.counts) for model in models}
    figures["roles"] = plot_role_maps(maps, layouts)
    return Study(
        name="head-roles",
        title=f"head-roles · {', '.join(columns)}",
        rows=rows,
        claims=judge_claims([p for p in panels if p.toggled.base == "soft"]),
        figures=figures,
        settings={
            "tasks": list(tasks),
            "counts": list(counts or FULL),
            "seeds": seeds,
            "n": n,
            "updates": updates,
            "batch": batch,
            "variant": variant,
            "refit": refit,
            "task": task_settings or {},
        },
        model={m.name: {"heads": list(m.layout.counts), **m.identity} for m in models},
        scores=scores,
        notes=list(dict.fromkeys(notes)),
        tables={"Shares of heads that have a role": shares},
    )


def committed(model: Model, task: str) -> Path | None:
    """The gates that come with headcount for this model and task, if there are any."""
    folder = files("headcount.studies") / "gates" / _file(model.name)
    path = Path(str(folder / f"{task}.json"))
    return path if path.exists() else None


def _given(
    folder: str, model: Model, task: str, seeds: int, notes: list[str]
) -> CausalGates | None:
    """Gates from a file, of as many seeds as asked for; None where they must be fitted."""
    path = Path(folder) / f"{task}.json" if folder else committed(model, task)
    if path is None:
        return None
    found = CausalGates.load(path)
    if found.layout != model.layout:
        raise HeadcountError(
            f"The gates in {path} are of another model: fit your own with --refit."
        )
    weights = found.parameters.get("weights")
    if weights is not None and weights != model.identity["weights"]:
        notes.append(f"The gates in {path.name} were fitted to other weights of {model.name}.")
    if seeds > found.seeds:
        raise HeadcountError(
            f"The gates in {path} have {found.seeds} seeds, not {seeds}: ask for fewer, or fit "
            "with --refit."
        )
    return CausalGates(
        found.layout, found.plus[:seeds], found.minus[:seeds], dict(found.parameters)
    )


def _validation(task: Task, n: int) -> Task:
    """The task with some of its validation prompts: those that no gate has seen."""
    test = task.part("test")
    return test.subset(n) if n and n < len(test) else test


def _rows(panel: Panel, task: str) -> list[dict[str, Any]]:
    found = []
    metric = "logprob change" if panel.toggled.base == "soft" else "logprob change, plain model"
    for (role, count), values in panel.toggled.changes.items():
        interval = bootstrap(values, clusters=panel.toggled.clusters)
        found.append(
            {
                "model": panel.model,
                "task": task,
                "series": role,
                "metric": metric,
                "count": count,
                "value": interval.value,
                "low": interval.low,
                "high": interval.high,
                "n": values.shape[1],
                "seeds": values.shape[0],
            }
        )
    return found


def _lines(panel: Panel) -> dict[str, list[tuple[int, float, float, float]]]:
    rows = _rows(panel, "")
    return {
        role: [
            (row["count"], row["value"], row["low"], row["high"])
            for row in rows
            if row["series"] == role
        ]
        for role in ROLES
    }


def _file(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in name)


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _duration(seconds: float) -> str:
    """In words that one can plan by.

    >>> _duration(50), _duration(600), _duration(9000)
    ('50 seconds', '10 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
