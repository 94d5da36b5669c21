"""Commands that measure heads: `headcount rank`, `ablate`, `curve` and `tasks`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from headcount.cli.common import (
    Answer,
    announce,
    claim_lines,
    command_line,
    files_text,
    heads_from,
    lab_from,
    model_from,
    table,
    tell_store,
)
from headcount.cli.parser import parse_settings
from headcount.curves import CurveRequest, CurveSettings
from headcount.curves.judged import judged
from headcount.engine.measure.ablations import check_ablation
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.engine.measure.positions import read_positions
from headcount.engine.measure.sweep import Sweep, Values, whole_model
from headcount.errors import HeadcountError
from headcount.heads import (
    HeadScores,
    check_query_heads,
    is_list,
    read_list,
    write_retrieval_head,
)
from headcount.lab import Lab
from headcount.metrics import get_metric
from headcount.metrics.chance import chance_of
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking, fit_list
from headcount.rankings.duo_attention import check_for_duo_attention, write_duo_attention
from headcount.rankings.ranking import loaded_weights
from headcount.rankings.stability import Stability
from headcount.registry import make_settings, settings_of
from headcount.report.cache_budget import TITLE, in_words
from headcount.report.curve_study import curve_study
from headcount.stats import accuracy_interval, bootstrap
from headcount.studies.masked_heads.study import check_functions
from headcount.system.files import write_json_rows
from headcount.system.folders import check_place
from headcount.tasks import FUNCTIONS, Task, check_file, make_task, task_factory
from headcount.tasks.cognitive import DRAWS


@contextmanager
def lab_model_and_task(
    arguments: Namespace, *asked: Mapping[str, Any]
) -> Iterator[tuple[Lab, Model, Task]]:
    """The lab, model and task of the arguments; refuses unknown tasks before it loads a model."""
    with lab_model_and_tasks(arguments, [arguments.task], *asked) as (lab, model, tasks):
        yield lab, model, tasks[0]


@contextmanager
def lab_model_and_tasks(
    arguments: Namespace, names: Sequence[str], *asked: Mapping[str, Any]
) -> Iterator[tuple[Lab, Model, list[Task]]]:
    """The same with several tasks of these names.

    Files of examples without what the metric and the ablation of `asked` settings need are refused
    before a model is loaded, too.
    """
    given = parse_settings(arguments.set)
    if lost := [
        owner for owner, own in given.items() if isinstance(own, dict) and owner not in names
    ]:
        raise HeadcountError(f"--set names {lost[0]}, and the tasks are {', '.join(names)}.")
    of_tasks = {name: settings_of(given, name) for name in names}
    makers = [task_factory(name, **of_task) for name, of_task in of_tasks.items()]
    for settings in asked:
        metric = get_metric(settings.get("metric", "accuracy"))
        foils_for = metric.key if getattr(metric, "needs_foils", False) else ""
        corrupted = settings.get("ablation") == "corrupted"
        for name, of_task in of_tasks.items():
            check_file(name, of_task, foils_for=foils_for, corrupted=corrupted)
    with lab_from(arguments) as lab:
        model = model_from(arguments)
        yield lab, model, [make(model.tokenizer) for make in makers]


def ranking_settings(arguments: Namespace) -> dict[str, Any]:
    """All settings of --ranking; refuses those that it cannot use before a model is loaded."""
    return RANKINGS[arguments.ranking].bind(**parse_settings(arguments.ranking_set))


def rank(arguments: Namespace) -> Answer:
    """Rank the heads, show the best, and with --out write all scores."""
    chosen = ranking_settings(arguments)
    if arguments.top < 1:
        raise HeadcountError(f"Cannot print the top {arguments.top} heads: ask for at least 1.")
    if arguments.out:
        check_place(arguments.out, file=True)
    if arguments.duo_attention:
        check_place(arguments.duo_attention)
    if arguments.retrieval_head:
        check_place(arguments.retrieval_head, file=True)
    with lab_model_and_task(arguments, chosen) as (lab, model, task):
        if arguments.duo_attention:
            check_for_duo_attention(model)
        if arguments.retrieval_head:
            check_query_heads(model.layout)
        if arguments.stability:
            top = min(arguments.top, model.layout.total)
            asked = Stability(model, task, arguments.ranking, chosen, top=top)
            return announce(arguments, lab, [asked]) or _stability(asked, lab, arguments.out)
        ranking = Ranking.of(model, task, arguments.ranking, **chosen)
        metric = get_metric(ranking.settings.get("metric", "accuracy"))
        whole = whole_model(model, task, metric, "ranking")
        if forecast := announce(arguments, lab, [ranking, whole]):
            return forecast
        scores, at_chance = ranking.result(lab), lab.measure(whole).at_chance
    fingerprint = loaded_weights(model)
    named = {**scores.parameters, **({"fingerprint": fingerprint} if fingerprint else {})}
    scores = replace(scores, parameters=named).with_note(at_chance)
    text = _best_heads(scores, arguments.top, task.split("ranking").clusters)
    notes = [at_chance] * bool(at_chance)
    if arguments.out:
        clusters = task.split("ranking").clusters
        alike = scores.samples is not None and len(scores.samples) == len(clusters)
        scores.save(arguments.out, clusters if alike else None)
        text += f"\n\nThe scores of all {scores.layout.total} heads: {arguments.out}"
    if arguments.duo_attention:
        files = write_duo_attention(model, scores, arguments.duo_attention)
        text += f"\n\nFor DuoAttention: {' and '.join(map(str, files))}"
    if arguments.retrieval_head:
        file = write_retrieval_head(scores, arguments.retrieval_head)
        text += f"\n\nFor Retrieval_Head and HeadKV: {file}"
    return Answer(scores.to_json(), "\n\n".join([text, *notes]), notes)


def _stability(asked: Stability, lab: Lab, out: str) -> Answer:
    """How much of the ranking's variance each cause is."""
    found = asked.result(lab)
    if out:
        write_json_rows(out, found.to_json())
    return Answer(found.to_json(), str(found) + (f"\n\nThe table: {out}" if out else ""))


def _best_heads(scores: HeadScores, top: int, clusters: np.ndarray) -> str:
    """The best heads in a table, with intervals if there are scores by example or by seed."""
    header, rows, samples = ["", "head", "score"], [], scores.samples
    if samples is not None:
        header.append("95 % interval")
    for place, head in enumerate(scores.top(min(top, scores.layout.total)), start=1):
        number = scores.layout.number(head)
        row = [str(place), str(head), f"{scores.values[number]:+.4f}"]
        if samples is not None:
            by_example = len(samples) == len(clusters)
            ends = bootstrap(samples[:, number], clusters=clusters if by_example else None)
            row.append(f"[{ends.low:+.4f}, {ends.high:+.4f}]" if ends.known else "unknown")
        rows.append(row)
    return table(header, rows)


def ablate(arguments: Namespace) -> Answer | None:
    """Measure the model with all heads and under the head set, and the paired difference."""
    metric, positions = get_metric(arguments.metric), read_positions(arguments.positions)
    check_ablation(arguments.ablation)
    heads = heads_from(arguments, needed=True)
    done = f"times {heads.gate:g}" if heads.gate else "off"
    named = f"{len(heads)} {done}"
    if heads.keep:
        named = f"only {len(heads)} kept" + f", others {done}" * bool(heads.gate)
    with lab_model_and_task(arguments, vars(arguments)) as (lab, model, task):
        gates = heads.gates(model.layout)
        entries = [HeadSetEntry("all heads", np.ones_like(gates)), HeadSetEntry(named, gates)]
        head_sets = HeadSets.build(model.layout, entries)
        how = arguments.ablation, arguments.scope, positions
        sweep = Sweep(model, task, metric, head_sets, "test", *how)
        if arguments.dry_run:
            return announce(arguments, lab, [sweep])
        tell_store(arguments, lab)
        values = lab.measure(sweep)
    intervals = {label: values.interval(label) for label in ("all heads", named)}
    intervals["difference"] = values.difference(named, "all heads")
    title = f"{task.name} · {model.name} · {metric.name} · ablation: {values.ablation}"
    rows = [
        (label, f"{interval.value:.3f}", f"[{interval.low:.3f}, {interval.high:.3f}]")
        for label, interval in intervals.items()
    ]
    notes = [values.at_chance] * bool(values.at_chance)
    text = [title, table(["heads", "value", "95 % interval"], rows), *notes]
    document = {label: interval.to_json() for label, interval in intervals.items()}
    return Answer(document, "\n\n".join(text), notes)


def curve(arguments: Namespace) -> Answer:
    """Rank the heads, measure and draw the curve, and write a folder of results."""
    is_file = is_list(arguments.ranking)
    if is_file and arguments.ranking_set:
        raise HeadcountError(f"{arguments.ranking} has finished scores: leave --ranking-set out.")
    ready = read_list(arguments.ranking) if is_file else None
    of_ranking = {} if is_file else ranking_settings(arguments)
    metric = get_metric(arguments.metric)
    names = ("counts", "series", "seeds", "ablation", "scope", "epsilon", "positions")
    given = {name: getattr(arguments, name) for name in names}
    given["mode"] = "keep" if arguments.keep else "mask"
    chosen = make_settings("curve", CurveSettings, given)
    check_place(arguments.out)
    with lab_model_and_task(arguments, of_ranking, vars(arguments)) as (lab, model, task):
        ranking: HeadScores | Ranking
        if ready is None:
            ranking = Ranking.of(model, task, arguments.ranking, **of_ranking)
        else:
            ranking = fit_list(ready, model, other_model=arguments.other_model)
        request = CurveRequest(model, task, ranking, metric, chosen)
        request, comparisons = judged(request, arguments.judge)
        if forecast := announce(arguments, lab, [request]):
            return forecast
        result = request.result(lab)
    study = curve_study(result, model, task, asdict(request.settings), comparisons)
    paths = study.save(arguments.out, command_line(arguments))
    budget = in_words(study.tables.get(TITLE, ()))
    verdicts = claim_lines(study.claims)
    text = "\n".join([str(result), *result.left_out, *budget, *verdicts, files_text(paths)])
    return Answer(result.rows, text, result.notes)


def tasks(arguments: Namespace) -> Answer:
    """Measure exact match on all items, as a mean over few-shot draws, and the chance level."""
    chosen = parse_settings(arguments.set)
    functions = check_functions(arguments.functions or ["all"])
    if "draw" in chosen:
        raise HeadcountError(
            "This command takes the mean over all draws: leave the setting draw out."
        )
    for name in functions:
        task_factory(name, **chosen)  # refuses before a model is loaded
    with lab_from(arguments) as lab:
        model, metric = model_from(arguments), get_metric("exact_match")
        whole = HeadSets.of(model.layout.gates(off=[]), model.layout)
        sweeps = {}
        for name in functions:
            drawn = [make_task(name, model.tokenizer, draw=d, **chosen) for d in range(DRAWS)]
            sweeps[name] = [Sweep(model, task, metric, whole, "all") for task in drawn]
        every = [sweep for some in sweeps.values() for sweep in some]
        if forecast := announce(arguments, lab, every):
            return forecast
        rows = [
            _accuracy(name, some[-1].task, [lab.measure(sweep) for sweep in some])
            for name, some in sweeps.items()
        ]
    header = ["function", "items", "accuracy", "95 % interval", "by draw", "commonest answer"]
    cells = [
        [
            row["function"],
            row["items"],
            f"{row['accuracy']:.2f}",
            f"[{row['low']:.2f}, {row['high']:.2f}]",
            " ".join(f"{value:.2f}" for value in row["draws"]),
            f"{row['chance']:.2f}",
        ]
        for row in rows
    ]
    return Answer(rows, table(header, cells))


def _accuracy(function: str, task: Task, draws: Sequence[Values]) -> dict[str, Any]:
    values = np.stack([draw.values[0] for draw in draws])
    accuracy = accuracy_interval(values, clusters=draws[-1].clusters)
    chance = chance_of(draws[-1].metric, task)
    assert chance is not None  # exact match is right or wrong
    return {
        "function": FUNCTIONS[function].name,
        "items": len(task),
        "accuracy": accuracy.value,
        "low": accuracy.low,
        "high": accuracy.high,
        "draws": [float(row.mean()) for row in values],
        "chance": chance.level,
    }
