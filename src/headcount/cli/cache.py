"""`headcount cache`: what is cached, and how to be rid of it."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime

from headcount.cli.common import print_json, print_table
from headcount.system.bundled import clear_cache, list_cache
from headcount.system.paths import cache_dir


def cache(arguments: Namespace) -> int:
    """List the cached models, or remove them."""
    if arguments.action == "clear":
        freed = clear_cache(arguments.name)
        if arguments.json:
            print_json({"freed": freed})
        else:
            print(f"Freed {freed / 1e6:.0f} MB.")
        return 0
    rows = list_cache()
    if arguments.json:
        print_json([row._asdict() for row in rows])
    elif not rows:
        print(f"Nothing is cached in {cache_dir()}.")
    else:
        print_table(
            ["name", "size", "last used", "folder"],
            [
                (
                    row.name,
                    f"{row.bytes / 1e6:.0f} MB",
                    f"{datetime.fromtimestamp(row.last_used):%Y-%m-%d %H:%M}",
                    row.path,
                )
                for row in rows
            ],
        )
    return 0
