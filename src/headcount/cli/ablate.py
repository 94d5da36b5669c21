"""`headcount ablate`: switch given heads off, or keep only them, and measure."""

from __future__ import annotations

from argparse import Namespace

import numpy as np

from headcount.cli.common import model_from, print_json, print_table, store_from, task_from
from headcount.curves import interval_of
from headcount.engine.measure.evaluate import evaluate
from headcount.stats import Interval, paired_difference


def ablate(arguments: Namespace) -> int:
    """Measure the model whole and under the head set, and the paired difference."""
    model = model_from(arguments)
    heads = list(dict.fromkeys(model.layout.parse(text) for text in arguments.heads))
    task = task_from(arguments, model)
    gates = model.layout.gates(**{"keep" if arguments.keep else "off": heads})
    with store_from(arguments) as store:
        values = evaluate(
            model,
            task,
            np.stack([np.ones_like(gates), gates]),
            metric=arguments.metric,
            stand_in=arguments.stand_in,
            scope=arguments.scope,
            store=store,
            progress=not arguments.quiet,
        )
    whole, without = (interval_of(row[None], values) for row in values.values)
    change = paired_difference(values.values[1], values.values[0], clusters=values.clusters)
    named = f"only {len(heads)} kept" if arguments.keep else f"{len(heads)} off"
    results = {"all heads": whole, named: without, "difference": change}
    if arguments.json:
        print_json({name: vars(interval) for name, interval in results.items()})
        return 0
    print(f"{task.name} · {model.name} · {values.metric.name} · stand-in: {values.stand_in}\n")
    print_table(["heads", "value", "95 % interval"], [_row(*item) for item in results.items()])
    return 0


def _row(name: str, interval: Interval) -> list[str]:
    return [name, f"{interval.value:.3f}", f"[{interval.low:.3f}, {interval.high:.3f}]"]
