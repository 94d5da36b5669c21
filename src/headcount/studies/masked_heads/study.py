"""Study `masked-heads`: mask the heads that matter for a cognitive function, and random ones.

After "Cognitive Mirrors" (Ma et al., NeurIPS 2025), Figure 3. For each function: rank the heads on
one part of its items; on the other part mask the best K, K random ones, and K random ones of the
same layers; let the model answer; score the answers against gold and against what the whole model
answers.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headcount.curves import Curve, curve
from headcount.engine.measure.forecast import all_measured, forecast
from headcount.engine.write.answers import answers
from headcount.errors import HeadcountError, did_you_mean
from headcount.figures.panels import plot_panels, plot_rankings
from headcount.heads import HeadLayout, HeadScores, check_counts
from headcount.metrics import TextMetric, Written, floor, get_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS, rank
from headcount.rankings.causal_gates.result import ROLES
from headcount.report.head_rows import head_rows
from headcount.stats import paired_difference
from headcount.store import Store
from headcount.studies.masked_heads.claims import Panel, judge_claims
from headcount.studies.study import Study, only_model
from headcount.tasks import FUNCTIONS, Task, make_task

SERIES = ("top", "random", "matched")
PANELS = ("retrieval", "knowledge-recall", "math", "inference")
FRACTIONS = (16 / 1024, 32 / 1024, 64 / 1024, 128 / 1024)  # of the published model's heads
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"functions": PANELS, "n": 48, "seeds": 3},
    "full": {"functions": tuple(FUNCTIONS), "n": 0, "seeds": 10},
    # As published, but for what is a bug there: TopK heads stay out of the random draws.
    "paper": {
        "functions": PANELS,
        "n": 0,
        "seeds": 10,
        "counts": (16, 32, 64, 128),
        "rankings": ("probe",),
        "epsilon": 0.001,
        "accuracy": "published_accuracy",
    },
}


def masked_heads(
    models: Sequence[Model],
    *,
    functions: Sequence[str] = PANELS,
    rankings: Sequence[str] = ("attribution",),
    counts: Sequence[int] | None = None,
    seeds: int = 3,
    n: int = 0,
    scope: str = "all",
    epsilon: float = 0.0,
    accuracy: str = "exact_match",
    similarity: str = "auto",
    task_settings: dict[str, Any] | None = None,
    store: Store | None = None,
    progress: bool = True,
) -> Study:
    """TopK against RandomK masking on cognitive functions.

    The first ranking makes the figure and the claims; further ones are drawn beside it, where a
    function's items allow them. "all" stands for every ranking but the learned gates. `counts`
    are the published fractions of all heads unless given. `similarity` is the second metric:
    "comet" where its program is found, else the bundled encoder's similarity.
    """
    model = only_model(models, "masked-heads")
    for name in functions:
        if name not in FUNCTIONS:
            raise HeadcountError(
                f'There is no cognitive function "{name}" (known: {", ".join(FUNCTIONS)}).'
                f"{did_you_mean(name, FUNCTIONS)}"
            )
    if not functions or not rankings:
        raise HeadcountError("The study needs at least one function and one ranking.")
    if list(rankings) == ["all"]:
        rankings = [entry.key for entry in RANKINGS if entry.key not in (*ROLES, "random")]
        rankings.sort(key="attribution".__ne__)  # it makes the figure
    for method in rankings:
        RANKINGS[method]  # refuses what there is not
    first, second = _text_metric(accuracy), _second_metric(similarity)
    chosen = [0, *(published_counts(model.layout) if counts is None else counts)]
    chosen = check_counts(chosen, model.layout)
    settings = {"n": n, **(task_settings or {})}
    panels: list[Panel] = []
    by_ranking: dict[str, dict[str, Curve]] = {}
    scores = {}
    rows: list[dict[str, Any]] = []
    ranked: dict[str, tuple[dict[str, HeadScores], Any]] = {}
    notes: list[str] = []
    with _some_store(store) as kept:
        for key in functions:
            function = FUNCTIONS[key]
            task = make_task(key, model.tokenizer, **settings)
            by_method: dict[str, HeadScores] = {}
            for method in rankings:
                try:
                    ranking = rank(model, task, method, store=kept, progress=progress)
                except HeadcountError as error:
                    if method == rankings[0]:
                        raise
                    # Some rankings suit some tasks; the others' figures are not to be lost for it.
                    notes.append(f"{function.name}: no ranking by {method}: {error}")
                    continue
                measured = [
                    curve(
                        model,
                        task,
                        ranking,
                        counts=chosen,
                        series=SERIES if method == rankings[0] else ("top",),
                        seeds=seeds,
                        metric=metric,
                        scope=scope,  # type: ignore[arg-type]
                        epsilon=epsilon,
                        store=kept,
                        progress=progress,
                    )
                    for metric in ((first, second) if method == rankings[0] else (first,))
                ]
                scores[f"{key}-{method}"] = by_method[method] = ranking
                by_ranking.setdefault(function.name, {})[method] = measured[0]
                rows += [
                    {**asdict(point), "ranking": method, "series": point.series}
                    for one in measured
                    for point in one.points
                ]
                if method == rankings[0]:
                    notes += [f"{function.name}: {text}" for text in measured[0].left_out]
                    floors = _floors(model, task, (first, second), scope, kept)
                    panels.append(Panel(function.name, measured[0], measured[1], floors))
            ranked[key] = by_method, task.part("ranking").clusters
    all_measured()
    heads = [
        row
        for key, (by_method, clusters) in ranked.items()
        for row in head_rows(model.name, key, by_method, clusters=clusters)
    ]
    figures = {
        "figure": plot_panels(
            {
                p.name: [("Accuracy", p.accuracy.rows), (_short(second), p.similarity.rows)]
                for p in panels
            },
            total=model.layout.total,
            note=f"ranked by {rankings[0]} · {first.name} · {second.name} · n = "
            f"{_span([p.accuracy.points[0].n for p in panels])} · {seeds} random draws · "
            f"{model.name}",
        )
    }
    if len(rankings) > 1:
        named = {
            name: {RANKINGS[method].name: one.rows for method, one in curves.items()}
            for name, curves in by_ranking.items()
        }
        figures["rankings"] = plot_rankings(
            named, total=model.layout.total, metric=first.name, note=model.name
        )
    notes += _differences(model, second, chosen, epsilon, scope)
    return Study(
        name="masked-heads",
        title=f"masked-heads · {model.name}",
        rows=rows,
        claims=judge_claims(panels, chosen, model.layout.total),
        figures=figures,
        settings={
            "functions": list(functions),
            "rankings": list(rankings),
            "counts": chosen,
            "seeds": seeds,
            "scope": scope,
            "epsilon": epsilon,
            "accuracy": first.key,
            "similarity": {"key": second.key, "identity": second.identity()},
            "task": settings,
        },
        model={model.name: model.facts},
        scores=scores,
        heads=heads,
        notes=notes,
        tables={"differences": paired_rows(panels, by_ranking)},
    )


def paired_rows(
    panels: Sequence[Panel], by_ranking: Mapping[str, Mapping[str, Curve]]
) -> list[dict[str, Any]]:
    """TopK less each control at each count, item by item.

    Controls are those of the first ranking: heads outside its TopK, and of its layers. Other
    rankings are set against the former only, as what any heads do.
    """
    rows = []
    for panel in panels:
        first, *others = by_ranking[panel.name]
        pairs: list[tuple[str, Curve, Curve, Sequence[str]]] = [
            (first, panel.accuracy, panel.accuracy, SERIES[1:])
        ]
        if panel.similarity.metric.key != panel.accuracy.metric.key:
            pairs.append((first, panel.similarity, panel.similarity, SERIES[1:]))
        for method in others:
            pairs.append((method, by_ranking[panel.name][method], panel.accuracy, SERIES[1:2]))
        for method, best, controls, wanted in pairs:
            for control, count in controls.raw:
                if control not in wanted or not count:
                    continue
                a, b = best.raw["top", count], controls.raw[control, count]
                found = paired_difference(a, b, clusters=best.clusters)
                rows.append(
                    {
                        "model": best.points[0].model,
                        "task": best.points[0].task,
                        "ranking": method,
                        "metric": best.metric.key,
                        "difference": f"top less {control}",
                        "control_of": first,
                        "count": count,
                        "value": found.value,
                        "low": found.low,
                        "high": found.high,
                        "n": a.shape[-1],
                    }
                )
    return rows


def published_counts(layout: HeadLayout) -> list[int]:
    """The published fractions of the heads, as the nearest powers of two.

    >>> published_counts(HeadLayout((9,) * 30))
    [4, 8, 16, 32]
    """
    wanted = [2 ** round(math.log2(max(1, layout.total * share))) for share in FRACTIONS]
    return sorted({count for count in wanted if count <= layout.total})


def _text_metric(name: str) -> TextMetric:
    metric = get_metric(name)
    if not isinstance(metric, TextMetric):
        raise HeadcountError(
            f"{name} is read off logits, and this study scores written answers: choose "
            "exact_match or published_accuracy."
        )
    return metric


def _second_metric(name: str) -> TextMetric:
    if name != "auto":
        return _text_metric(name)
    from headcount.metrics.comet_program import find_program

    try:
        find_program()
    except HeadcountError:
        return _text_metric("similarity")
    return _text_metric("comet")


def _short(metric: TextMetric) -> str:
    """As legends name the second metric; never COMET for what is not."""
    return {"comet": "Comet", "similarity": "Similarity (MiniLM)"}.get(metric.key, metric.name)


def _floors(
    model: Model, task: Task, metrics: tuple[TextMetric, TextMetric], scope: str, store: Store
) -> tuple[float, float]:
    """What each metric gives for answers of the right kind to the wrong question."""
    test = task.part("test")
    gates = model.layout.gates(off=[])
    whole = answers(model, task, gates, scope=scope, store=store, progress=False)  # type: ignore[arg-type]
    if forecast() is not None:
        return 0.0, 0.0
    texts = whole.texts[0].tolist()
    golds = [example.target.strip() for example in test]
    written = Written(texts, golds, texts, [example.prompt for example in test])
    return floor(metrics[0], written), floor(metrics[1], written)


@contextmanager
def _some_store(store: Store | None) -> Iterator[Store]:
    """The store, or one that lasts for this study: two metrics share their texts through it."""
    if store is not None:
        yield store
        return
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as own:
        yield own


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _differences(
    model: Model, second: TextMetric, counts: Sequence[int], epsilon: float, scope: str
) -> list[str]:
    """What a reader of the paper must know."""
    total = model.layout.total
    shares = ", ".join(f"{100 * count / total:.1f} %" for count in counts if count)
    notes = [
        f"Published for Llama-3.1-8B-Instruct with 1,024 heads; {model.name} has {total}: the "
        f"counts are {shares} of them.",
        "Items are our own, a short question with one short answer each; random heads are drawn "
        "from those outside TopK, several times.",
        f"Masked heads are multiplied by {epsilon:g} (paper 0.001, its code 0.0001).",
    ]
    if second.key != "comet":
        notes.append(f"The second metric is not COMET but: {second.name}.")
    if scope == "decode":
        notes.append(
            "Only decoding steps are masked: the first new token comes from the whole model, so "
            "answers of one token cannot change."
        )
    return notes
