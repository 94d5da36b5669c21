"""`headcount verify`: does a result follow from its own values?"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from headcount.cli.common import Answer
from headcount.cli.listing import results_below
from headcount.studies.verify import verify as verify_result


def verify(arguments: Namespace) -> Answer:
    """Recompute every interval and verdict of the results, and say what differs."""
    checked = [verify_result(folder) for folder in results_below(arguments.folders)]
    code = int(any(result.differences for result in checked))
    document = [asdict(result) for result in checked]
    return Answer(document, "\n".join(map(str, checked)), code=code)
