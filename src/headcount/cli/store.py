"""`headcount store`: what has been measured."""

from __future__ import annotations

from argparse import Namespace

from headcount.cli.common import print_json, print_table
from headcount.errors import HeadcountError
from headcount.store import Store


def store(arguments: Namespace) -> int:
    """List, export or clean the store."""
    with Store.open(arguments.store) as opened:
        return {"list": _list, "export": _export, "clean": _clean}[arguments.action](
            arguments, opened
        )


def _list(arguments: Namespace, store: Store) -> int:
    rows = store.summary()
    if arguments.json:
        print_json([vars(row) for row in rows])
    elif not rows:
        print(f"Nothing is stored in {store.path}.")
    else:
        header = ["model", "task", "metric", "stand-in", "head sets", "examples", "values", "last"]
        print_table(
            header,
            [
                (
                    row.model,
                    row.task,
                    f"({row.context.get('method')})" if row.documents else row.metric,
                    row.stand_in.split(" ")[0],
                    row.head_sets,
                    row.examples,
                    row.values,
                    f"{row.last_written:%Y-%m-%d %H:%M}",
                )
                for row in rows
            ],
        )
        print(f"\n{store.path}")
    return 0


def _export(arguments: Namespace, store: Store) -> int:
    if not arguments.path:
        raise HeadcountError("Name the file to export to: headcount store export values.csv")
    count = store.export(arguments.path)
    if arguments.json:
        print_json({"measurements": count, "path": arguments.path})
    else:
        print(f"Wrote {count:,} measurements to {arguments.path}")
    return 0


def _clean(arguments: Namespace, store: Store) -> int:
    if not (arguments.model or arguments.task or arguments.everything):
        raise HeadcountError("Say what to clean: --model NAME, --task NAME, or --everything.")
    if arguments.everything and (arguments.model or arguments.task):
        raise HeadcountError("Give either --everything or a model or task, not both.")
    count = store.clean(model=arguments.model, task=arguments.task, everything=arguments.everything)
    if arguments.json:
        print_json({"removed": count})
    else:
        print(f"Removed {count:,} measurements.")
    return 0
