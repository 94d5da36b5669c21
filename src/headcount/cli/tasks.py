"""`headcount tasks`: how well a model does the cognitive functions, with all its heads."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import Any

import numpy as np

from headcount.cli.common import model_from, print_json, print_table, settings, store_from
from headcount.engine.measure.evaluate import evaluate
from headcount.errors import HeadcountError, did_you_mean
from headcount.stats import accuracy_interval
from headcount.tasks import FUNCTIONS, make_task
from headcount.tasks.cognitive import DRAWS


def tasks(arguments: Namespace) -> int:
    """Exact match on all items, as the mean of the few-shot draws, beside chance."""
    wanted = arguments.functions or list(FUNCTIONS)
    for name in wanted:
        if name not in FUNCTIONS:
            raise HeadcountError(
                f'There is no cognitive function "{name}" (known: {", ".join(FUNCTIONS)}).'
                f"{did_you_mean(name, FUNCTIONS)}"
            )
    chosen = settings(arguments.set)
    if "draw" in chosen:
        raise HeadcountError("This command takes the mean of all draws: leave draw away.")
    model = model_from(arguments)
    whole = model.layout.gates(off=[])
    rows: list[dict[str, Any]] = []
    with store_from(arguments) as store:
        for name in wanted:
            values = []
            for draw in range(DRAWS):
                task = make_task(name, model.tokenizer, draw=draw, **chosen)
                measured = evaluate(
                    model,
                    task,
                    whole,
                    metric="exact_match",
                    part="all",
                    store=store,
                    progress=not arguments.quiet,
                )
                values.append(measured.values[0])
            found = accuracy_interval(np.stack(values), clusters=measured.clusters)
            answers = Counter(example.target for example in task)
            rows.append(
                {
                    "function": FUNCTIONS[name].name,
                    "items": len(task),
                    "accuracy": found.value,
                    "low": found.low,
                    "high": found.high,
                    "draws": [float(row.mean()) for row in values],
                    "chance": max(answers.values()) / len(task),
                }
            )
    if arguments.json:
        print_json(rows)
        return 0
    header = ["function", "items", "accuracy", "95 % interval", "by draw", "commonest answer"]
    print_table(
        header,
        [
            [
                row["function"],
                row["items"],
                f"{row['accuracy']:.2f}",
                f"[{row['low']:.2f}, {row['high']:.2f}]",
                " ".join(f"{value:.2f}" for value in row["draws"]),
                f"{row['chance']:.2f}",
            ]
            for row in rows
        ],
    )
    return 0
