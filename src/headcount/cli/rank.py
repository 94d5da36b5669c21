"""`headcount rank`: score every head for a task."""

from __future__ import annotations

from argparse import Namespace

from headcount.cli.common import (
    announce,
    lab_from,
    model_from,
    print_json,
    print_table,
    task_from,
)
from headcount.cli.options import parse_settings
from headcount.errors import HeadcountError
from headcount.rankings import RANKINGS, Ranking
from headcount.stats import bootstrap


def rank(arguments: Namespace) -> int:
    """Rank, print the best heads, and write all scores where asked."""
    chosen = parse_settings(arguments.method_set)
    RANKINGS[arguments.method].bind(**chosen)  # refuses before the model is loaded
    if arguments.top < 1:
        raise HeadcountError(f"Cannot print the top {arguments.top} heads: ask for at least 1.")
    with lab_from(arguments) as lab:
        model = model_from(arguments)
        task = task_from(arguments, model)
        ranking = Ranking.of(model, task, arguments.method, **chosen)
        if announce(arguments, lab, [ranking]):
            return 0
        scores = ranking.result(lab)
    if arguments.out:
        scores.save(arguments.out)
    if arguments.json:
        print_json(scores.to_json())
        return 0
    clusters = task.part("ranking").clusters
    by_example = scores.samples is not None and len(scores.samples) == len(clusters)
    rows = []
    for place, head in enumerate(scores.top(arguments.top), start=1):
        number = scores.layout.number(head)
        row = [str(place), str(head), f"{scores.values[number]:+.4f}"]
        if scores.samples is not None:
            samples = scores.samples[:, number]  # by example, or by seed
            interval = bootstrap(samples, clusters=clusters if by_example else None)
            row.append(
                f"[{interval.low:+.4f}, {interval.high:+.4f}]" if interval.known else "unknown"
            )
        rows.append(row)
    header = ["", "head", "score", "95 % interval"][: len(rows[0])]
    print_table(header, rows)
    if arguments.out:
        print(f"\nAll {scores.layout.total} scores: {arguments.out}")
    return 0
