"""Study `heads-kept`: how many heads must stay to explain a behaviour, in one model or in two.

After "Sparse Attention Post-Training for Mechanistic Interpretability" (Draye et al., 2025). For
each task: rank the heads by patching in what they say on the corrupted twin; keep only the best k,
with a stand-in for all others; see how much of the whole model's effect is left. Two models are a
dense one and its sparse version, and the ratio of the heads that they need is the finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headcount.errors import HeadcountError, did_you_mean
from headcount.figures.kept import KeptPanel, Line, plot_kept
from headcount.heads import HeadLayout, HeadScores, check_counts
from headcount.metrics import get_logit_metric
from headcount.metrics.explained import THRESHOLD, Explained
from headcount.models.model import Model
from headcount.rankings import RANKINGS
from headcount.rankings.agreement import agreement
from headcount.store import Store
from headcount.studies.heads_kept_claims import Panel, judge_claims
from headcount.studies.keeping import (
    Kept,
    Prompts,
    choose_prompts,
    keep,
    order_of,
    random_orders,
    rank_heads,
)
from headcount.studies.study import Study
from headcount.tasks import TASKS, Task, make_task

PANELS = ("greater-than", "ioi", "docstring", "ioi-long")
STAND_INS = ("mean", "zero")
# Shares of all heads: dense where curves rise. Of 270 heads: 3, 5, 8, 11, 14, 19, 24, 32, 41, …
SHARES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.09, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8)
COARSE = (0.02, 0.04, 0.07, 0.12, 0.2, 0.3, 0.5, 0.75)
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"rankings": ("attribution",), "n": 24, "ranked": 24, "pool": 200, "seeds": 2},
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
    found = _Found(rankings[0], threshold)
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
            orders = [order_of(m, s, chosen, per_prompt=per == "prompt") for m, s in scores.items()]
            coarse = _counts(counts, model.layout, False, COARSE)
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
        model={m.name: {"heads": list(m.layout.counts), **m.identity} for m in models},
        scores=found.scores,
        notes=[*found.notes, *_differences(per)],
        tables=found.tables(),
    )


class _Found:
    """What the study has measured, task by task and model by model."""

    def __init__(self, ranking: str, threshold: float) -> None:
        self.ranking, self.threshold = ranking, threshold
        self.rows: list[dict[str, Any]] = []
        self.needed: list[dict[str, Any]] = []
        self.agreed: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.scores: dict[str, HeadScores] = {}
        # By task, title and stand-in: each model with its curve and that in random order.
        self.curves: dict[tuple[str, str, str], list[tuple[str, Explained, Explained | None]]] = {}

    def add(
        self,
        key: str,
        name: str,
        model: Model,
        metric: str,
        prompts: Prompts,
        kept: dict[str, Kept],
        scores: dict[str, HeadScores],
    ) -> None:
        """Take in one task and model."""
        where = f"{name}, {model.name}"
        for stand_in, one in kept.items():
            curves = {order: one.explained(order) for order, count in one.values if not count}
            for order, curve in curves.items():
                self._rows(key, model, stand_in, order, curve, one)
                self.needed.append(
                    _needed(name, model, metric, stand_in, order, curve, one, self.threshold)
                )
            top, random = curves[self.ranking], curves.get("random")
            self.curves.setdefault((key, name, stand_in), []).append((model.name, top, random))
            if not top.known:
                self.notes.append(
                    f"{where}: with the stand-in {stand_in} the whole model does no better than "
                    "the one without heads, so there is no effect to explain."
                )
        self.notes.append(f"{where}: the stand-in is the {kept['mean'].stand_in}.")
        if prompts.left_out:
            self.notes.append(
                f"{where}: {prompts.left_out} test prompts were left out, because the ranking part "
                "has too few of their template and length for a mean by position."
            )
        for method, score in scores.items():
            self.scores[f"{_file(model.name)}-{_file(key)}-{method}"] = score
        if len(scores) > 1:
            found = agreement(scores, [c for c in (8, 16, 32, 64) if c <= model.layout.total])
            for other in list(scores)[1:]:
                place = found.names.index(other)
                shared = [o for o in found.overlaps if (o.one, o.other) == (self.ranking, other)]
                self.agreed.append(
                    {
                        "task": name,
                        "model": model.name,
                        "rankings": f"{self.ranking} / {other}",
                        "Spearman": float(found.correlation[0, place]),
                        **{f"top {o.count} in common": o.share for o in shared},
                    }
                )

    def _rows(
        self, key: str, model: Model, stand_in: str, order: str, curve: Explained, one: Kept
    ) -> None:
        for count, interval in zip(curve.counts, curve.intervals, strict=True):
            table = one.values[order, int(count)]
            self.rows.append(
                {
                    "model": model.name,
                    "task": key,
                    "series": "random" if order == "random" else "top",
                    "metric": "explained_effect",
                    "count": int(count),
                    "value": interval.value,
                    "low": interval.low,
                    "high": interval.high,
                    "n": len(one.prompts),
                    "draws": len(table),
                    "ranking": order,
                    "stand_in": stand_in,
                    "mean_metric": float(table.mean()),
                }
            )

    def claimed(self) -> list[Panel]:
        """The panels with the headline's stand-in."""
        return [
            Panel(key, name, *(tuple(some) for some in zip(*models, strict=True)))
            for (key, name, stand_in), models in self.curves.items()
            if stand_in == "mean"
        ]

    def panels(self, stand_in: str) -> list[KeptPanel]:
        """The panels of a figure."""
        panels = []
        for (key, name, its), models in self.curves.items():
            if its != stand_in:
                continue
            lines = [
                Line(label, _points(top), _points(random), _known(top, self.threshold))
                for label, top, random in models
            ]
            panel = Panel(key, name, *(tuple(some) for some in zip(*models, strict=True)))
            panels.append(KeptPanel(name, lines, panel.ratio(self.threshold)))
        return panels

    def note(self, stand_in: str, per: str, models: Sequence[Model]) -> str:
        """The small print."""
        tested = sorted({row["n"] for row in self.rows})
        totals = ", ".join(f"{model.name} {model.layout.total}" for model in models)
        where = "its mean on corrupted prompts" if stand_in == "mean" else "zero"
        return (
            f"ranked by {self.ranking} per {per} · absent heads: {where} · bands: 95 % intervals "
            f"over n = {' to '.join(map(str, {tested[0], tested[-1]}))} prompts · dashed: "
            f"explained effect {self.threshold:g} · heads: {totals}"
        )

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Heads needed, ratios, and how far rankings agree."""
        ratios = []
        for (key, name, stand_in), models in self.curves.items():
            panel = Panel(key, name, *(tuple(some) for some in zip(*models, strict=True)))
            ratio = panel.ratio(self.threshold)
            if ratio is not None:
                needed = [_known(one, self.threshold) for one in panel.kept]
                ratios.append(
                    {
                        "task": name,
                        "stand-in": stand_in,
                        **dict(zip(panel.models, needed, strict=True)),
                        "ratio": ratio.value,
                        "low": ratio.low,
                        "high": ratio.high,
                    }
                )
        tables = {"Heads needed": self.needed}
        if ratios:
            tables["Ratio of the heads needed"] = ratios
        if self.agreed:
            tables["Agreement of the rankings"] = self.agreed
        return tables


def _needed(
    name: str,
    model: Model,
    metric: str,
    stand_in: str,
    order: str,
    curve: Explained,
    one: Kept,
    threshold: float,
) -> dict[str, Any]:
    first, last = curve.first(threshold), curve.last(threshold)
    whole, none = (one.values[order, count].mean() for count in (model.layout.total, 0))
    return {
        "task": name,
        "model": model.name,
        "stand-in": stand_in,
        "order": order,
        "first crossing": first.value if curve.known else np.nan,
        "low": first.low,
        "high": first.high,
        "last crossing": last.value if curve.known else np.nan,
        "last low": last.low,
        "last high": last.high,
        "of": model.layout.total,
        "metric": metric,
        "all heads": float(whole),
        "no head": float(none),
        "n": len(one.prompts),
    }


def _points(curve: Explained | None) -> list[tuple[int, Any]]:
    if curve is None:
        return []
    return [(int(c), one) for c, one in zip(curve.counts, curve.intervals, strict=True)]


def _known(curve: Explained, threshold: float) -> float:
    return curve.first(threshold).value if curve.known else float("nan")


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


def _file(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in name)


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
