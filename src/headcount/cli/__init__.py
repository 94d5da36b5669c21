"""The command line: runs one command, and reports an error in one sentence."""

from __future__ import annotations

import codecs
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import headcount.cli.benchmark_options  # noqa: F401  # registers its command
from headcount.cli.arguments import build_parser
from headcount.errors import HeadcountError

# Replacements for characters that a terminal cannot print; for any other, a question mark.
ASCII = dict(zip("✓–−·×→…", ("+", "-", "-", "|", "x", "->", "..."), strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 2 for bad input, 128 + a signal that ended it.

    `verify` returns 1 for a result that does not fit together.
    """
    _prepare_streams()
    stopped = [signal.SIGINT]  # the signal that an interruption came from
    try:
        with _signals_interrupt(stopped):
            code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()  # a closed pipe raises here, and not when Python exits
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
        return 128 + stopped[-1]
    except BrokenPipeError:
        # The reader of the pipe, such as head, has closed it; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not (full or error.filename):
            raise
        what = f"use {error.filename}" if error.filename else "write"
        advice = "free some space" if full else "fix its permissions"
        print(
            f"headcount: cannot {what}: {error.strerror}; {advice} or choose another place with "
            "--out, --store or HEADCOUNT_CACHE.",
            file=sys.stderr,
        )
        return 2


@contextmanager
def _signals_interrupt(stopped: list[signal.Signals]) -> Iterator[None]:
    """Let SIGTERM and SIGHUP, as a batch system or a closed terminal sends them, act as Ctrl-C."""

    def interrupt(number: int, _: object) -> None:
        stopped.append(signal.Signals(number))
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
            number = getattr(signal, name, None)
            # nohup ignores SIGHUP, and that must stay so.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _prepare_streams() -> None:
    """Let printing never fail on a character that a terminal lacks, or on a closed stream."""

    def in_ascii(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        lacking = error.object[error.start : error.end]
        return "".join(ASCII.get(character, "?") for character in lacking), error.end

    codecs.register_error("headcount", in_ascii)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="headcount")


def _run(words: Sequence[str]) -> int:
    parser = build_parser(words)
    arguments = parser.parse_args(words)
    if not hasattr(arguments, "command"):
        parser.print_help()
        return 0
    arguments.words = words
    module, _, function = arguments.command.partition(":")
    answer: Any = getattr(import_module(f"headcount.cli.{module}"), function)(arguments)
    if answer is not None:
        answer.print(as_json=arguments.json)
    return 0 if answer is None else answer.code
