"""What commands share: models, tasks and labs from arguments, forecasts, tables."""

from __future__ import annotations

import logging
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.cli.options import parse_settings
from headcount.errors import HeadcountError
from headcount.store import Store
from headcount.system.files import to_json

if TYPE_CHECKING:  # commands without a model answer at once: torch takes seconds to import
    from headcount.engine.measure.cost import Cost, Request
    from headcount.lab import Lab
    from headcount.models.model import Model
    from headcount.tasks import Task


def model_from(arguments: Namespace, name: str | None = None) -> Model:
    """Load the model that the arguments name, or the one of this name."""
    from headcount.models.model import load_model

    return load_model(
        arguments.model if name is None else name,
        dtype=arguments.dtype,
        device=arguments.device,
        device_map=arguments.device_map,
        attention=arguments.attention,
        revision=arguments.revision,
        trust_remote_code=arguments.trust_remote_code,
    )


def task_from(arguments: Namespace, model: Model) -> Task:
    """Make the task that the arguments name, for the model's tokenizer."""
    from headcount.tasks import make_task

    return make_task(arguments.task, model.tokenizer, **parse_settings(arguments.set))


@contextmanager
def store_from(arguments: Namespace) -> Iterator[Store | None]:
    """Open the store that the arguments ask for, or none."""
    if arguments.no_store:
        yield None
        return
    with Store.open(arguments.store) as store:
        yield store


@contextmanager
def lab_from(arguments: Namespace) -> Iterator[Lab]:
    """The lab that the arguments ask for: its store, its executor, and what it shows.

    A cluster is refused, if need be, before a model is loaded.
    """
    address, count = getattr(arguments, "ray", None), getattr(arguments, "workers", None)
    if address is None and count is not None:
        raise HeadcountError("--workers are those of a Ray cluster: give --ray as well.")
    from headcount.lab import Lab

    if getattr(arguments, "explain", False):
        log = logging.getLogger("headcount.plan")
        log.setLevel(logging.INFO)
        if not log.handlers:
            log.addHandler(logging.StreamHandler(sys.stderr))
    with store_from(arguments) as store:
        lab = Lab(store, progress=not arguments.quiet, say=said_on_stderr)
        if address is None:
            yield lab
            return
        from headcount.integrations.ray import ray_executor

        with ray_executor(address, workers=count) as executor:
            lab.executor = executor
            yield lab


def said_on_stderr(text: str) -> None:
    """Print a sentence about what is being done."""
    print(text, file=sys.stderr, flush=True)


def announce(arguments: Namespace, lab: Lab, requests: Iterable[Request]) -> bool:
    """Say what these requests will measure; True where only that was asked for, by --dry-run."""
    cost: Cost = lab.cost(requests)
    if arguments.dry_run:
        if arguments.json:
            print_json(cost.to_json())
        else:
            print(cost)
    elif not arguments.quiet:
        print(cost, file=sys.stderr)
    return bool(arguments.dry_run)


def command_line() -> str:
    """The command that is being run, for the record."""
    return "headcount " + shlex.join(sys.argv[1:])


def print_files(paths: Sequence[Path]) -> None:
    """Say where the picture is, what is beside it, and where the page is."""
    print(f"\nThe picture: {paths[0]}")
    beside = [path.name for path in paths[1:] if path.suffix in (".csv", ".json")]
    print(f"Beside it: {', '.join(beside)}")
    print(f"All of it, to open in a browser: {paths[-1]}")


def print_json(value: Any) -> None:
    """Print a JSON document."""
    print(to_json(value))


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a header, columns as wide as their widest cell."""
    table = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
