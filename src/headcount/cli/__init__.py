"""The command line: run one command, and say in one sentence what went wrong."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from headcount.cli.arguments import build_parser
from headcount.errors import HeadcountError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 2 for bad input, 130 when interrupted."""
    try:
        code = _run(argv)
        sys.stdout.flush()  # a pipe whose reader has gone is noticed here, not when Python ends
        return code
    except HeadcountError as error:
        print(f"headcount: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "\nheadcount: interrupted; what was measured is kept, and the same command goes on "
            "from there.",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        # The reader of a pipe (head, less) has gone; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not (full or error.filename):
            raise
        what = f"use {error.filename}" if error.filename else "write"
        advice = "free some space" if full else "mend it"
        print(
            f"headcount: cannot {what}: {error.strerror}; {advice} or choose another place with "
            "--out, --store or HEADCOUNT_CACHE.",
            file=sys.stderr,
        )
        return 2


def _run(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if not getattr(arguments, "command", None):
        parser.print_help()
        return 0
    module, _, function = arguments.command.partition(":")
    with _workers(arguments):
        result: int | None = getattr(import_module(module), function)(arguments)
    return result or 0


def _workers(arguments: argparse.Namespace) -> AbstractContextManager[Any]:
    """The cluster that the arguments ask for: refused, if need be, before a model is loaded."""
    address, count = getattr(arguments, "ray", None), getattr(arguments, "workers", None)
    if address is None:
        if count is not None:
            raise HeadcountError("--workers are those of a Ray cluster: give --ray as well.")
        return nullcontext()
    from headcount.integrations.ray import ray_executor

    return ray_executor(address, workers=count)


if __name__ == "__main__":
    sys.exit(main())
