"""`headcount curve`: mask or keep more and more heads, and draw it."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from functools import partial

from headcount.cli.common import announce, model_from, print_json, store_from, task_from
from headcount.curves import curve as make_curve
from headcount.heads import HeadScores, check_counts
from headcount.report.curve_study import curve_study


def curve(arguments: Namespace) -> int:
    """Rank, measure, draw, and leave a folder behind."""
    model = model_from(arguments)
    if arguments.counts is not None:
        check_counts(arguments.counts, model.layout)
    task = task_from(arguments, model)
    is_file = arguments.ranking.endswith(".json")
    ranking = HeadScores.load(arguments.ranking) if is_file else arguments.ranking
    make = partial(
        make_curve,
        model,
        task,
        ranking,
        counts=arguments.counts,
        series=arguments.series,
        seeds=arguments.seeds,
        mode="keep" if arguments.keep else "mask",
        metric=arguments.metric,
        stand_in=arguments.stand_in,
        scope=arguments.scope,
        epsilon=arguments.epsilon,
        progress=not arguments.quiet,
    )
    with store_from(arguments) as store:
        if announce(arguments, lambda seen: make(store=seen), store):
            return 0
        result = make(store=store)
    asked = {k: v for k, v in vars(arguments).items() if k not in ("command", "json", "quiet")}
    command = "headcount " + shlex.join(sys.argv[1:])
    paths = curve_study(result, model, task, asked).save(arguments.out, command)
    if arguments.json:
        print_json(result.rows)
        return 0
    print(result)
    for sentence in result.left_out:
        print(sentence)
    print(f"\nThe picture: {paths[0]}")
    print(f"All of it, to open in a browser: {paths[-1]}")
    return 0
