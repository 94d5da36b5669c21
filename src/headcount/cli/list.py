"""`headcount list`: what there is to choose from."""

from __future__ import annotations

from argparse import Namespace

from headcount.cli.common import print_json
from headcount.metrics import METRICS, TEXT_METRICS, get_metric
from headcount.models.bundled import BUNDLED
from headcount.rankings import RANKINGS
from headcount.studies import STUDIES
from headcount.tasks import TASKS


def show(arguments: Namespace) -> int:
    """Print every registered name with one line about it."""
    known = {
        "studies": dict(STUDIES),
        "models": dict.fromkeys(BUNDLED, "bundled; any hub id, folder or .gguf file works too"),
        "tasks": {entry.key: entry.summary for entry in TASKS},
        "rankings": {entry.key: entry.summary for entry in RANKINGS},
        "metrics": {key: get_metric(key).name for key in (*METRICS, *TEXT_METRICS)},
    }
    if arguments.json:
        print_json(known)
        return 0
    for kind, entries in known.items():
        print(kind)
        for key, summary in entries.items():
            print(f"  {key:22} {summary}")
    return 0
