"""`headcount verify`: does a result follow from its own values?"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from headcount.cli.common import Answer
from headcount.report import find_results
from headcount.studies.verify import verify as verify_result


def verify(arguments: Namespace) -> Answer:
    """Recompute every interval and verdict of the results, and say what differs."""
    below = (result for folder in arguments.folders for result in find_results(folder))
    checked = [verify_result(folder) for folder in dict.fromkeys(below)]
    code = int(any(result.differences for result in checked))
    document = [asdict(result) for result in checked]
    return Answer(document, "\n".join(map(str, checked)), code=code)
