"""`headcount curve`: mask or keep more and more heads, and draw it."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from headcount.cli.common import (
    announce,
    command_line,
    lab_from,
    model_from,
    print_json,
    task_from,
)
from headcount.curves import CurveRequest, CurveSettings
from headcount.heads import HeadScores
from headcount.metrics import get_metric
from headcount.rankings import RANKINGS, Ranking
from headcount.report.curve_study import curve_study


def curve(arguments: Namespace) -> int:
    """Rank, measure, draw, and leave a folder behind."""
    is_file = arguments.ranking.endswith(".json")
    ready = HeadScores.load(arguments.ranking) if is_file else None
    if ready is None:
        RANKINGS[arguments.ranking]  # refuses before the model is loaded
    metric = get_metric(arguments.metric)
    chosen = CurveSettings(
        counts=arguments.counts,
        series=arguments.series,
        seeds=arguments.seeds,
        mode="keep" if arguments.keep else "mask",
        stand_in=arguments.stand_in,
        scope=arguments.scope,
        epsilon=arguments.epsilon,
    )
    with lab_from(arguments) as lab:
        model = model_from(arguments)
        task = task_from(arguments, model)
        ranking = ready or Ranking.of(model, task, arguments.ranking)
        request = CurveRequest(model, task, ranking, metric, chosen)
        if announce(arguments, lab, [request]):
            return 0
        result = request.result(lab)
    study = curve_study(result, model, task, asdict(chosen))
    paths = study.save(arguments.out, command_line())
    if arguments.json:
        print_json(result.rows)
        return 0
    print(result)
    for sentence in result.left_out:
        print(sentence)
    print(f"\nThe picture: {paths[0]}")
    print(f"All of it, to open in a browser: {paths[-1]}")
    return 0
