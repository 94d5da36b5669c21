"""A command line that says in one sentence what is wrong."""

from __future__ import annotations

import argparse
import re
import sys
from typing import NoReturn

from headcount.errors import did_you_mean


class Parser(argparse.ArgumentParser):
    """argparse, with one sentence and a suggestion instead of the usage text."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and how to get help; exit code 2."""
        if wrong := re.search(r"invalid choice: (['\"])(.*?)\1 \(choose", message):
            choices = [str(c) for a in self._actions for c in a.choices or ()]
            message = f'There is no "{wrong[2]}" here.{did_you_mean(wrong[2], choices)}'
        elif unknown := re.match(r"unrecognized arguments: (\S+)", message):
            near = did_you_mean(unknown[1], self.options())
            message = f'There is no option "{unknown[1]}".{near}'
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"headcount: {message}{end} See {self.prog} --help\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Leave; a reader of --help that has gone is noticed here, not when Python ends."""
        sys.stdout.flush()
        super().exit(status, message)

    def options(self) -> list[str]:
        """Every option of this command and of those below it."""
        names = [name for action in self._actions for name in action.option_strings]
        for action in self._actions:
            if isinstance(action.choices, dict):  # the commands below
                names += [name for parser in action.choices.values() for name in parser.options()]
        return names
