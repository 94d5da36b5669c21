"""`headcount ablate`: switch given heads off, or keep only them, and measure."""

from __future__ import annotations

from argparse import Namespace

import numpy as np

from headcount.cli.common import lab_from, model_from, print_json, print_table, task_from
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.lab import evaluate
from headcount.stats import Interval, paired_difference


def ablate(arguments: Namespace) -> int:
    """Measure the model whole and under the head set, and the paired difference."""
    with lab_from(arguments) as lab:
        model = model_from(arguments)
        heads = list(dict.fromkeys(model.layout.parse(text) for text in arguments.heads))
        task = task_from(arguments, model)
        gates = model.layout.gates(**{"keep" if arguments.keep else "off": heads})
        named = f"only {len(heads)} kept" if arguments.keep else f"{len(heads)} off"
        entries = [HeadSetEntry("all heads", np.ones_like(gates)), HeadSetEntry(named, gates)]
        values = evaluate(
            model,
            task,
            HeadSets.build(model.layout, entries),
            metric=arguments.metric,
            stand_in=arguments.stand_in,
            scope=arguments.scope,
            lab=lab,
        )
    change = paired_difference(values.of(named), values.of("all heads"), clusters=values.clusters)
    results = {
        "all heads": values.interval("all heads"),
        named: values.interval(named),
        "difference": change,
    }
    if arguments.json:
        print_json({name: vars(interval) for name, interval in results.items()})
        return 0
    print(f"{task.name} · {model.name} · {values.metric.name} · stand-in: {values.stand_in}\n")
    print_table(["heads", "value", "95 % interval"], [_row(*item) for item in results.items()])
    return 0


def _row(name: str, interval: Interval) -> list[str]:
    return [name, f"{interval.value:.3f}", f"[{interval.low:.3f}, {interval.high:.3f}]"]
