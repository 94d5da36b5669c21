"""The command `headcount compare`: a contest of rankings, and how far they agree."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from headcount.cli.common import Answer, announce, command_line, files_text
from headcount.cli.compare_lists import compare_lists
from headcount.cli.measure import lab_model_and_tasks
from headcount.cli.parser import parse_settings
from headcount.curves.contest import (
    AUTO,
    Contest,
    Contestant,
    ContestRequest,
    check_rankings_settings,
    contestant,
    metric_for,
    new_contest,
    settings_of,
)
from headcount.engine.measure.ablations import check_ablation
from headcount.errors import HeadcountError
from headcount.heads import (
    GOALS,
    HeadList,
    HeadScores,
    check_counts,
    is_list,
    list_name,
    read_list,
)
from headcount.metrics import get_logit_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS, fit_list
from headcount.rankings.agreement import Agreement, agreement
from headcount.report.contest_study import contest_study
from headcount.report.study import versions
from headcount.system.files import safe_name, write_json
from headcount.system.folders import check_place
from headcount.tasks import Task


def compare(arguments: Namespace) -> Answer:
    """Let rankings compete on the test split, and tell how far they agree; or compare files."""
    if arguments.files:
        return compare_lists(arguments)
    ready = _read_rankings(arguments.ranking)  # refuses before the model is loaded
    arguments.ablation = check_ablation(arguments.ablation)
    if arguments.orders < 0:
        raise HeadcountError(f"There are no {arguments.orders} random orders: give 0 or more.")
    if arguments.ranked is not None and arguments.ranked < 1:
        raise HeadcountError(f"Heads are ranked on at least 1 example, not {arguments.ranked}.")
    made = [name for name, scores in ready.items() if scores is None]
    of_rankings = check_rankings_settings(made, parse_settings(arguments.ranking_set))
    chosen = {name: {**_seeds(name, arguments.seeds), **own} for name, own in of_rankings.items()}
    # Which metric suits a task is known when it is made: until then, one stands for all.
    metric = "logprob" if arguments.metric == AUTO else get_logit_metric(arguments.metric).key
    judged = {"metric": metric, "ablation": arguments.ablation}
    bound = [
        RANKINGS[name].bind(**{**_own(name, **judged), **settings})
        for name, settings in chosen.items()
    ]
    check_counts(arguments.counts or [])
    check_place(arguments.out)
    names = list(dict.fromkeys(arguments.task))
    with lab_model_and_tasks(arguments, names, judged, *bound) as (lab, model, tasks):
        requests = []
        for name, found in ready.items():  # refuses before anything is ranked
            if found is not None:
                ready[name] = _of_all(fit_list(found, model, other_model=arguments.other_model))
        if arguments.ranked:
            tasks = [_ranked_on(task, arguments.ranked) for task in tasks]
        for task in tasks:
            own = metric_for(arguments.metric, model, task)
            every: dict[str, Contestant] = {}
            for name, scores in ready.items():
                if scores is not None:
                    every[name] = dict.fromkeys(GOALS, cast(HeadScores, scores))
                    continue
                made_so = {**_own(name, own.key, arguments.ablation), **chosen[name]}
                every[name] = contestant(model, task, name, **made_so)
            how = own, arguments.ablation, arguments.counts, arguments.orders
            requests.append(ContestRequest(model, task, every, *how))
            _ = requests[-1].all_counts  # refuses counts above the number of heads
        if forecast := announce(arguments, lab, requests):
            return forecast
        contest = new_contest(arguments.ablation)
        for request in requests:
            request.measure(lab, contest)
    agreements = {task.name: _agreement(task, contest, arguments.counts) for task in tasks}
    settings = {"metric": arguments.metric, "ablation": arguments.ablation}
    settings |= {"orders": arguments.orders, "ranked": arguments.ranked, "rankings": of_rankings}
    return _write(arguments, model, tasks, contest, agreements, settings)


def _write(
    arguments: Namespace,
    model: Model,
    tasks: Sequence[Task],
    contest: Contest,
    agreements: Mapping[str, Agreement],
    settings: Mapping[str, Any],
) -> Answer:
    shown = {name: found.to_json() for name, found in agreements.items()}
    about = {task.name: dict(task.parameters) for task in tasks}
    study = contest_study(contest, model, {**settings, "tasks": about}, shown)
    paths = study.save(arguments.out, command_line(arguments))
    for task in tasks:
        facts = {"model": model.name, "task": task.name, "task_settings": about[task.name]}
        document = {**facts, "notes": contest.notes, **shown[task.name], "versions": versions()}
        last = "" if len(tasks) == 1 else f"-{safe_name(task.name)}"
        write_json(Path(arguments.out) / f"agreement{last}.json", document)
    if len(tasks) > 1:
        document = {"tasks": shown, "notes": contest.notes, "versions": versions()}
    each = [str(found) for found in agreements.values()]
    text = [str(contest), *each, files_text(paths), *contest.notes]
    return Answer({**document, "areas": contest.areas}, "\n\n".join(text), contest.notes)


def _agreement(task: Task, contest: Contest, counts: Sequence[int] | None) -> Agreement:
    """The agreement of all rankings on one task; those with two orders take part twice."""
    by_name: dict[str, HeadScores] = {}
    for (of_task, name, goal), scores in contest.scores.items():
        if of_task == task.name:
            both = [contest.scores[of_task, name, other] for other in GOALS]
            by_name[name if both[0] is both[1] else f"{name}-{goal}"] = scores
    clusters = task.split("ranking").clusters
    by_example = {
        name: clusters
        for name, scores in by_name.items()
        if scores.samples is not None and len(scores.samples) == len(clusters)
    }
    return agreement(by_name, counts, clusters=by_example)


def _ranked_on(task: Task, n: int) -> Task:
    """The task with only `n` of the examples of its ranking split."""
    ranking = task.split("ranking").subset(n)
    return replace(task, examples=(*ranking.examples, *task.split("test").examples))


def _own(name: str, metric: str, ablation: str) -> dict[str, str]:
    """The metric and the ablation of the contest, if the ranking has such settings."""
    known = RANKINGS[name].defaults()
    given = settings_of(name, metric, ablation)
    return {key: value for key, value in given.items() if key in known}


def _of_all(scores: HeadScores) -> HeadScores:
    """Scores of all heads; refuses a list of some, which cannot compete at every count."""
    if scores.listed < scores.layout.total:
        raise HeadcountError(
            f'The list "{scores.ranking}" names {scores.listed} of {scores.layout}, and a contest '
            "needs scores of all: headcount compare FILE FILE gives the overlap of lists, and "
            "headcount curve --ranking FILE judges one."
        )
    return scores


def _read_rankings(rankings: Sequence[str]) -> dict[str, HeadScores | HeadList | None]:
    """The scores of each file, and None for each ranking, by the name that tables print."""
    ready: dict[str, HeadScores | HeadList | None] = {}
    for ranking in rankings:
        name = list_name(ranking) if is_list(ranking) else RANKINGS[ranking].key
        if name in ready:
            raise HeadcountError(f'The ranking "{name}" is given twice: give each ranking once.')
        ready[name] = read_list(ranking) if is_list(ranking) else None
    if len(ready) < 2:
        raise HeadcountError(
            "Give at least two rankings to compare: files of scores, or some of "
            f"{', '.join(RANKINGS)}."
        )
    return ready


def _seeds(ranking: str, seeds: int | None) -> dict[str, Any]:
    """The setting `seeds`, if it was given and the ranking has it."""
    takes = "seeds" in RANKINGS[ranking].defaults()
    return {"seeds": seeds} if takes and seeds is not None else {}
