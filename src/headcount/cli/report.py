"""`headcount report`: one web page about finished results."""

from __future__ import annotations

from argparse import Namespace

from headcount.cli.common import print_json
from headcount.report import find_results, write_page


def report(arguments: Namespace) -> int:
    """Find the results in the folders, and write the page about them all."""
    found = dict.fromkeys(one for folder in arguments.folders for one in find_results(folder))
    path = write_page(list(found), arguments.out)
    if arguments.json:
        print_json({"page": path, "results": list(found)})
    else:
        print(f"{len(found)} result{'s' * (len(found) != 1)}: {path}")
    return 0
