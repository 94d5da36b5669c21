"""Study `heads-kept`: how many heads must stay to explain a behaviour, in one model or in two.

After "Sparse Attention Post-Training for Mechanistic Interpretability" (Draye et al., 2025). For
each task: rank the heads by patching in what they say on the corrupted twin; keep only the best k,
with a stand-in for all others; see how much of the whole model's effect is left. Two models are a
dense one and its sparse version, and the ratio of the heads that they need is the finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headcount.curves.explained import THRESHOLD
from headcount.engine.measure.forecast import all_measured
from headcount.errors import HeadcountError, did_you_mean
from headcount.figures.kept import plot_kept
from headcount.heads import HeadLayout, check_counts
from headcount.metrics import get_logit_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS
from headcount.report.study import Study
from headcount.store import Store
from headcount.studies.heads_kept.claims import judge_claims
from headcount.studies.heads_kept.keeping import (
    choose_prompts,
    keep,
    order_of,
    random_orders,
    rank_heads,
)
from headcount.studies.heads_kept.tables import Found
from headcount.tasks import TASKS, Task, make_task

PANELS = ("greater-than", "ioi", "docstring", "ioi-long")
STAND_INS = ("mean", "zero")
# Shares of all heads: dense where curves rise. Of 270 heads: 5, 11, 16, 22, 30, 40, 54, 73, …
SHARES = (0.02, 0.04, 0.06, 0.08, 0.11, 0.15, 0.2, 0.27, 0.35, 0.5, 0.7)
COARSE = (0.04, 0.08, 0.15, 0.27, 0.5, 0.7)
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"rankings": ("patching",), "n": 12, "ranked": 3, "pool": 400, "seeds": 2},
    "full": {
        "rankings": ("patching", "attribution", "integrated-gradients"),
        "n": 250,
        "ranked": 100,
        "pool": 1000,
        "seeds": 10,
        "fine": True,
    },
}


def heads_kept(
    models: Sequence[Model],
    *,
    tasks: Sequence[str] = PANELS,
    rankings: Sequence[str] = ("patching",),
    counts: Sequence[int] | None = None,
    seeds: int = 3,
    n: int = 100,
    ranked: int = 16,
    pool: int = 600,
    per: str = "task",
    threshold: float = THRESHOLD,
    metric: str = "auto",
    fine: bool = False,
    task_settings: dict[str, Any] | None = None,
    store: Store | None = None,
    progress: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Study:
    """Explained effect against heads kept, in one model or in a dense and a sparse one.

    Of `pool` prompts of each task, `n` of the test part are tested and `ranked` of the ranking part
    ranked on; its others only make means. The first ranking makes the figure; others are compared.
    `per` "prompt" keeps each prompt's heads by its own scores. The metric "auto" is mass_difference
    for tasks with several right answers, else logit_difference. `counts` are shares of all heads
    unless given, every third head with `fine`.
    """
    _check(models, tasks, rankings, per, n, ranked, seeds, threshold)
    found = Found(rankings[0], threshold, per)
    for key in tasks:
        for model in models:
            settings = dict(task_settings or {})
            if "n" in (TASKS[key].defaults() if key in TASKS.entries else {}):
                settings = {"n": pool, **settings}
            task = make_task(key, model.tokenizer, **settings)
            name = TASKS[key].name if key in TASKS.entries else task.name
            chosen = _counts(counts, model.layout, fine)
            prompts = choose_prompts(task, model, n, ranked)
            measured_by = _metric(metric, task)
            say(f"{name}, {model.name}: {len(prompts.tested)} prompts, {len(chosen)} counts")
            scores = {
                method: rank_heads(
                    model,
                    prompts,
                    method,
                    measured_by,
                    per_prompt=per == "prompt",
                    store=store,
                    progress=progress,
                )
                for method in rankings
            }
            coarse = chosen[::2] if counts or fine else _counts(None, model.layout, False, COARSE)
            orders = [
                order_of(
                    method,
                    score,
                    chosen if method == rankings[0] else coarse,
                    per_prompt=per == "prompt",
                )
                for method, score in scores.items()
            ]
            control = [random_orders(model.layout.total, seeds, coarse)] if seeds else []
            kept = {
                stand_in: keep(
                    model,
                    prompts.measured,
                    [*orders, *control] if stand_in == "mean" else orders[:1],
                    metric=measured_by,
                    stand_in=stand_in,
                    store=store,
                    progress=progress,
                )
                for stand_in in STAND_INS
            }
            found.add(key, name, model, measured_by, prompts, kept, scores)
    all_measured()
    figures = {
        file: plot_kept(
            found.panels(stand_in), threshold=threshold, note=found.note(stand_in, per, models)
        )
        for file, stand_in in (("figure", "mean"), ("zero", "zero"))
    }
    return Study(
        name="heads-kept",
        title=f"heads-kept · {', '.join(model.name for model in models)}",
        rows=found.rows,
        claims=judge_claims(found.claimed(), per, rankings[0], threshold),
        figures=figures,
        settings={
            "tasks": list(tasks),
            "rankings": list(rankings),
            "counts": None if counts is None else list(counts),
            "seeds": seeds,
            "n": n,
            "ranked": ranked,
            "pool": pool,
            "per": per,
            "threshold": threshold,
            "metric": metric,
            "fine": fine,
            "task": task_settings or {},
        },
        model={m.name: m.facts for m in models},
        scores=found.scores,
        heads=found.heads,
        notes=[*found.notes, *_differences(per)],
        tables=found.tables(),
    )


def _counts(
    counts: Sequence[int] | None,
    layout: HeadLayout,
    fine: bool,
    shares: Sequence[float] = SHARES,
) -> list[int]:
    total = layout.total
    if counts is None and fine:
        counts = range(0, total, max(1, total // 90))
    if counts is None:
        counts = [max(1, round(share * total)) for share in shares]
    return check_counts(counts, layout)


def _metric(metric: str, task: Task) -> str:
    if metric == "auto":
        several = any(example.also for example in task)
        return "mass_difference" if several else "logit_difference"
    return get_logit_metric(metric).key


def _check(
    models: Sequence[Model],
    tasks: Sequence[str],
    rankings: Sequence[str],
    per: str,
    n: int,
    ranked: int,
    seeds: int,
    threshold: float,
) -> None:
    """Refuse what cannot be measured, before anything is."""
    if not 1 <= len(models) <= 2:
        raise HeadcountError(
            f"heads-kept takes one model, or a dense and a sparse one, not {len(models)}."
        )
    if len({model.name for model in models}) < len(models):
        raise HeadcountError(
            f'Both models have the name "{models[0].name}", and the figure could not tell them '
            "apart: rename one of the folders."
        )
    if not tasks or not rankings:
        raise HeadcountError("The study needs at least one task and one ranking.")
    for key in tasks:
        if key not in TASKS.entries and not key.endswith((".json", ".jsonl")):
            TASKS[key]  # refuses, with a suggestion
    for method in rankings:
        RANKINGS[method]
    if "random" in rankings:
        raise HeadcountError("Random orders are drawn beside every ranking: choose another one.")
    if per not in ("task", "prompt"):
        raise HeadcountError(
            f'Heads are ranked per "task" or per "prompt", not {per!r}.'
            f"{did_you_mean(per, ('task', 'prompt'))}"
        )
    if n < 2 or ranked < 1 or seeds < 0:
        raise HeadcountError(
            f"heads-kept needs n of at least 2, ranked of at least 1 and seeds of at least 0, not "
            f"n={n}, ranked={ranked}, seeds={seeds}."
        )
    if not 0 < threshold < 1:
        raise HeadcountError(f"The threshold lies between 0 and 1, not at {threshold}.")


def _differences(per: str) -> list[str]:
    """What a reader of the paper must know."""
    notes = [
        "The formula of the explained effect, a ratio of means between no head and all heads, is "
        "our inference; so is that the two published versions of the figure differ in ranking per "
        "task or per prompt.",
        "Heads needed are the first evaluated count at the threshold. Intervals are over prompts; "
        "they do not hold what other ranking prompts would have changed.",
    ]
    if per == "prompt":
        notes.append(
            "Per prompt, heads are ranked on the very prompts that they are tested on, as in the "
            "published version."
        )
    return notes
