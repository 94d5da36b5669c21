"""Study `token-insertion`: what meaningless and meaningful tokens in a prompt do.

After "Meaningless Tokens, Meaningful Gains" (Shi et al., arXiv 2510.01032), Figure 10. Each problem
is asked three times: as it is, with 55 tokens of "/" behind the instruction, and with 55 of "he".
The answers are graded; on some of the prompts, one head's attention is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.forecast import all_measured
from headcount.engine.write.answers import Sampled
from headcount.errors import HeadcountError, did_you_mean
from headcount.figures.inserts import Bar, Profiles, plot_inserts, plot_sweep
from headcount.heads import Head
from headcount.metrics import TextMetric, Written, get_metric
from headcount.models.model import Model
from headcount.stats import accuracy_interval
from headcount.store import Store
from headcount.studies.study import Study
from headcount.studies.token_insertion.claims import Outcome, difference, judge_claims
from headcount.studies.token_insertion.look import Look, look_inside
from headcount.studies.token_insertion.redistribution import Redistribution
from headcount.studies.token_insertion.runs import Runs, difference_rows
from headcount.studies.token_insertion.tables import activation_rows, affine_rows, look_rows
from headcount.tasks import TASKS, encode
from headcount.tasks.inserts import LENGTHS, Insert, with_insert

SWEEPS = ("length", "position")
PUBLISHED_HEAD = 14
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"n": 60, "prompts": 12},
    "full": {"n": 400, "prompts": 32},
    # As published, but for the sampling settings, which the paper leaves to each model †.
    "paper": {
        "tasks": ("math-500",),
        "prompts": 32,
        "temperature": 0.6,
        "top_p": 0.95,
        "seeds": 5,
    },
}


def token_insertion(
    models: Sequence[Model],
    *,
    tasks: Sequence[str] = ("word-problems",),
    n: int = 0,
    meaningless: str = "/",
    meaningful: str = "he",
    length: int = 55,
    position: str = "between",
    sweep: str = "",
    layer: int = 0,
    head: int = -1,
    prompts: int = 16,
    sinks: int = 1,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seeds: int = 1,
    accuracy: str = "maths",
    heads: Sequence[str] = (),
    keep: bool = False,
    redistribution: str = "",
    arm_c: float = 0.13,
    arm_p1: float = 99.5,
    task_settings: dict[str, Any] | None = None,
    store: Store | None = None,
    progress: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Study:
    """Meaningless and meaningful inserts: accuracy, and what one head attends to.

    The first task makes the figure and the claims, others are reported beside it: names, or files
    of problems. Greedy unless `temperature` is above 0; then `seeds` runs are drawn. `head` −1 is
    head 14, or where the layer has fewer than 15 the one that an insert changes most. `heads` are
    off in everything, or with `keep` all others. `redistribution` ("replace" or "add") adds a bar.
    """
    metric = get_metric(accuracy)
    if not isinstance(metric, TextMetric):
        raise HeadcountError(f"{accuracy} is read off logits, and this study grades texts.")
    if sweep and sweep not in SWEEPS:
        raise HeadcountError(
            f'There is no sweep "{sweep}" (known: {", ".join(SWEEPS)}).'
            f"{did_you_mean(sweep, SWEEPS)}"
        )
    if not models or not tasks or seeds < 1 or min(prompts, sinks, n) < 0 or head < -1:
        raise HeadcountError(
            "The study needs a model, a task and a run; prompts, sinks and n are at least 0, and "
            "head at least -1."
        )
    if isinstance(heads, str | int | float):
        raise HeadcountError("Name heads as --heads LAYER.HEAD, with a space between two of them.")
    # Refuses what is not installed before anything is decoded.
    metric.function(Written([r"\boxed{1}"], ["1"], [r"\boxed{1}"], [""]))
    if seeds > 1 and not temperature:
        raise HeadcountError(
            "Greedy decoding writes the same in every run: for several, set temperature above 0."
        )
    inserts: dict[str, Insert | None] = {
        "w/o": None,
        "w/ Mless": Insert(meaningless, length, position),  # type: ignore[arg-type]
        "w/ Mful": Insert(meaningful, length, position),  # type: ignore[arg-type]
    }
    arm = None
    if redistribution:
        arm = Redistribution(redistribution, arm_c, arm_p1)  # type: ignore[arg-type]
    draws = [Sampled(temperature, top_p, seed) for seed in range(seeds if temperature else 1)]
    longest = max(
        max(LENGTHS) if sweep == "length" else 0,
        *(one.length for one in inserts.values() if one is not None and not one.empty),
        0,
    )
    runs = Runs(metric, draws, n, tasks, task_settings or {}, store, progress)
    rows: list[dict[str, Any]] = []
    outcomes: list[Outcome] = []
    notes: list[str] = []
    tables: dict[str, list[dict[str, Any]]] = {"Affine check": [], "Activations of layer 0": []}
    seen: list[dict[str, Any]] = []
    lines: dict[str, list[tuple[str, Bar]]] = {}
    for model in models:
        gates = _gates(model, heads, keep)
        model.layout.number(Head(layer, max(head, 0)))  # refuses what there is not
        for place, spec in enumerate(tasks):
            task = runs.task(model, spec, longest, notes)
            asked = {
                name: task if one is None else with_insert(task, model.tokenizer, one)
                for name, one in inserts.items()
            }
            say(f"{model.name}, {task.name}: {len(task)} problems, {len(draws)} run(s) each")
            right = {}
            for name, one in asked.items():
                right[name] = runs.grade(model, one, gates, name, length, position, rows)
            if arm is not None:
                right["ARM"] = runs.grade(model, task, gates, "ARM", 0, "none", rows, arm)
            if place:
                difference_rows(right, task, model, rows)
                continue
            look, number = None, None
            if prompts:
                some = task.subset(min(prompts, len(task)))
                look = look_inside(
                    model,
                    encode(some, model.tokenizer),
                    {
                        name: encode(with_insert(some, model.tokenizer, one), model.tokenizer)
                        for name, one in inserts.items()
                        if one is not None and not one.empty
                    },
                    layer=layer,
                    gates=gates,
                    sinks=sinks,
                    store=store,
                    progress=progress,
                )
                if look is not None:
                    number = _head(model, look, layer, head)
                    affine_rows(tables["Affine check"], model, look)
                    activation_rows(tables["Activations of layer 0"], model, look)
                    seen += look_rows(model, spec, look)
            outcome = Outcome(model.name, model.layout, right, task.clusters, look, layer, number)
            outcomes.append(outcome)
            difference_rows(right, task, model, rows)
            if sweep and model is models[0]:
                lines = runs.sweep(model, task, gates, inserts, sweep, rows)
    all_measured()
    bars = {one.model: _bars(one) for one in outcomes}
    title = f"Results on {TASKS[tasks[0]].name if tasks[0] in TASKS.entries else tasks[0]}"
    first = outcomes[0]
    how = f"{len(draws)} sampled runs" if temperature else "greedy"
    note = f"n = {first.right['w/o'].shape[1]} · {how} · {metric.name} · whiskers: 95 % intervals"
    paired = f"{note}, of the paired difference to w/o where there is an insert"
    profiles = _profiles(first, head, sinks)
    figures = {"figure": plot_inserts(bars, profiles, title=title, note=paired)}
    if lines:
        label = "Tokens inserted" if sweep == "length" else "Place of the insert"
        figures[f"sweep-{sweep}"] = plot_sweep(
            lines, label=label, title=f"{title} · {first.model}", note=f"{note} of each accuracy"
        )
    notes += _notes(outcomes, length, position, sinks, heads, keep)
    notes += [
        f"{one.model}: head {one.layout.head(one.head)} was chosen for changing most on these same "
        "prompts; the intervals of its claims leave that choice out."
        for one in outcomes
        if head == -1 and one.head is not None and one.layout.counts[layer] <= PUBLISHED_HEAD
    ]
    return Study(
        name="token-insertion",
        title=f"token-insertion · {', '.join(bars)}",
        rows=rows,
        claims=[claim for one in outcomes for claim in judge_claims(one)],
        figures=figures,
        settings={
            "tasks": list(tasks),
            "n": n,
            "meaningless": meaningless,
            "meaningful": meaningful,
            "length": length,
            "position": position,
            "sweep": sweep,
            "layer": layer,
            "head": head,
            "prompts": prompts,
            "sinks": sinks,
            "temperature": temperature,
            "top_p": top_p,
            "seeds": len(draws),
            "accuracy": {"key": metric.key, "identity": metric.identity()},
            "heads": list(heads),
            "keep": keep,
            "redistribution": None if arm is None else arm.identity,
            "task": task_settings or {},
        },
        model={m.name: m.facts for m in models},
        heads=seen,
        notes=list(dict.fromkeys(notes)),
        tables={title: some for title, some in tables.items() if some},
    )


def _gates(model: Model, heads: Sequence[str], keep: bool) -> Float[np.ndarray, "heads"]:
    named = [model.layout.parse(head) for head in heads]
    if keep and not named:
        raise HeadcountError("Name the heads that are kept: heads=LAYER.HEAD.")
    return model.layout.gates(keep=named) if keep else model.layout.gates(off=named)


def _head(model: Model, look: Look, layer: int, head: int) -> int:
    """The number of the head that is drawn."""
    first, count = model.layout.starts[layer], model.layout.counts[layer]
    if head >= 0:
        return first + head
    if count > PUBLISHED_HEAD:
        return first + PUBLISHED_HEAD
    changes = [
        v for (_, queries, e), v in look.effects.items() if (queries, e) == ("all", "change")
    ]
    if not changes:
        return first
    return first + int(np.nan_to_num(np.mean(changes, axis=(0, 1))[first : first + count]).argmax())


def _bars(outcome: Outcome) -> dict[str, Bar]:
    """In percent; the whiskers of an insert are those of its difference to the bar without."""
    base = accuracy_interval(outcome.right["w/o"], clusters=outcome.clusters)
    found = {"w/o": Bar(100 * base.value, 100 * base.low, 100 * base.high)}
    for series, right in outcome.right.items():
        if series != "w/o":
            less = difference(outcome, series)
            ends = (100 * (base.value + end) for end in (less.low, less.high))
            found[series] = Bar(100 * float(right.mean()), *ends)
    return found


def _profiles(outcome: Outcome, head: int, sinks: int) -> Profiles | None:
    if outcome.look is None or outcome.head is None:
        return None
    drawn = outcome.layout.head(outcome.head)
    where = "" if drawn.layer == 0 else f", layer {drawn.layer}"
    why = ""
    if head < 0 and drawn.index != PUBLISHED_HEAD:
        why = f" (of {outcome.layout.counts[drawn.layer]}: the one that changes most)"
    full = {name: table[drawn.index].copy() for name, table in outcome.look.drawn.items()}
    for values in full.values():
        values[:sinks] = np.nan  # the first token would hide all others
    return Profiles(
        f"Average attention on Head {drawn.index}{where}{why}", full, outcome.look.spans
    )


def _notes(
    outcomes: Sequence[Outcome],
    length: int,
    position: str,
    sinks: int,
    heads: Sequence[str],
    keep: bool,
) -> list[str]:
    """What a reader of the paper must know."""
    notes = [
        f"{length} inserted tokens, {position}; every condition keeps the token ids of the "
        "original prompt, since everything is joined as ids.",
        "The published gains are of two points or so, within what one baseline varies between the "
        "paper's own tables (35.4, 41.8, 43.0): an interval that includes zero decides nothing.",
        "In layer 0 an insert scales the attention among the problem's tokens exactly: lower peaks "
        "there are arithmetic; the claims on other layers are not.",
    ]
    for one in outcomes:
        if one.look is not None and one.head is not None:
            drawn = (
                f"the mean over {one.look.aligned} prompts of one length"
                if one.look.aligned > 1
                else "those of a single prompt"
            )
            notes.append(
                f"{one.model}: profiles of head {one.layout.head(one.head)}, drawn as {drawn}."
            )
    if sinks:
        notes.append(f"Left out of all profiles as sinks: the first {sinks} token(s).")
    if heads:
        notes.append(f"Heads {'kept' if keep else 'off'} throughout: {' '.join(heads)}.")
    return notes
