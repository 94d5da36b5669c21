"""What commands share: models, tasks and stores from arguments, settings, tables."""

from __future__ import annotations

import ast
import logging
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError
from headcount.store import Store
from headcount.system.files import to_json

if TYPE_CHECKING:  # commands without a model answer at once: torch takes seconds to import
    from headcount.engine.measure.forecast import Forecast
    from headcount.models.model import Model
    from headcount.tasks import Task


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE pairs; numbers, True, False and None are read as such.

    >>> settings(["n=20", "chat=True", "name=x y"])
    {'n': 20, 'chat': True, 'name': 'x y'}
    """
    chosen: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (equals and name):
            raise HeadcountError(f'"{pair}" is not a setting: write NAME=VALUE, such as n=100.')
        value: Any = text
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = ast.literal_eval(text)
        chosen[name.replace("-", "_")] = value
    return chosen


def model_from(arguments: Namespace, name: str | None = None) -> Model:
    """Load the model that the arguments (or `name`) name; --explain prints plans from here on."""
    if getattr(arguments, "explain", False):
        log = logging.getLogger("headcount.plan")
        log.setLevel(logging.INFO)
        if not log.handlers:
            log.addHandler(logging.StreamHandler(sys.stderr))
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

    return make_task(arguments.task, model.tokenizer, **settings(arguments.set))


@contextmanager
def store_from(arguments: Namespace) -> Iterator[Store | None]:
    """Open the store that the arguments ask for, or none."""
    if arguments.no_store:
        yield None
        return
    with Store.open(arguments.store) as store:
        yield store


def announce(
    arguments: Namespace, run: Callable[[Store | None], object], store: Store | None
) -> bool:
    """Say what a run will measure; True where only that was asked for."""
    from headcount.engine.measure.forecast import foresee

    return tell(arguments, foresee(run, store))


def tell(arguments: Namespace, expected: Forecast) -> bool:
    """Print a forecast; True where only that was asked for, by --dry-run."""
    if arguments.dry_run:
        if isinstance(expected.stopped, HeadcountError):
            raise expected.stopped
        if arguments.json:
            print_json(expected.to_json())
        else:
            print(expected)
    elif not arguments.quiet:
        print(expected, file=sys.stderr)
    return bool(arguments.dry_run)


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
