"""`headcount tasks`: how well a model does the cognitive functions, with all its heads."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import Any

import numpy as np

from headcount.cli.common import lab_from, model_from, print_json, print_table
from headcount.cli.options import parse_settings
from headcount.errors import HeadcountError
from headcount.lab import Lab, evaluate
from headcount.models.model import Model
from headcount.stats import accuracy_interval
from headcount.studies.masked_heads.study import check_functions
from headcount.tasks import FUNCTIONS, make_task
from headcount.tasks.cognitive import DRAWS


def tasks(arguments: Namespace) -> int:
    """Exact match on all items, as the mean of the few-shot draws, beside chance."""
    wanted = check_functions(arguments.functions or ["all"])
    chosen = parse_settings(arguments.set)
    if "draw" in chosen:
        raise HeadcountError("This command takes the mean of all draws: leave draw away.")
    with lab_from(arguments) as lab:
        model = model_from(arguments)
        rows = [_row(model, name, chosen, lab) for name in wanted]
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


def _row(model: Model, name: str, chosen: dict[str, Any], lab: Lab) -> dict[str, Any]:
    """Exact match of one function, draw by draw."""
    whole, values = model.layout.gates(off=[]), []
    for draw in range(DRAWS):
        task = make_task(name, model.tokenizer, draw=draw, **chosen)
        measured = evaluate(model, task, whole, metric="exact_match", part="all", lab=lab)
        values.append(measured.values[0])
    accuracy = accuracy_interval(np.stack(values), clusters=measured.clusters)
    answers = Counter(example.target for example in task)
    return {
        "function": FUNCTIONS[name].name,
        "items": len(task),
        "accuracy": accuracy.value,
        "low": accuracy.low,
        "high": accuracy.high,
        "draws": [float(row.mean()) for row in values],
        "chance": max(answers.values()) / len(task),
    }
