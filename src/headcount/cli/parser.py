"""A command line that says in one sentence what is wrong; options from the fields of configs."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import Field, fields
from typing import Any, NoReturn

from headcount.errors import HeadcountError, did_you_mean

FEW = 6  # choices that an error lists; of more it names the nearest


class Parser(argparse.ArgumentParser):
    """argparse, with one sentence and a suggestion instead of the usage text."""

    def __init__(self, **how: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **how)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read the words; one that is left over is refused by the command that it was given to."""
        arguments, rest = self.parse_known_args(args, namespace)
        if rest:
            parser: Parser = getattr(arguments, "parser", self)
            parser.error(f"unrecognized arguments: {rest[0]}")
        return arguments

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and how to get help; exit code 2."""
        if wrong := re.search(r"invalid choice: (['\"])(.*?)\1 \(choose", message):
            choices = re.findall(r"'([^']+)'", message.partition("(choose from")[2])
            listed = f" (known: {', '.join(choices)})" if 0 < len(choices) <= FEW else ""
            message = f'There is no "{wrong[2]}" here{listed}.{did_you_mean(wrong[2], choices)}'
        elif unknown := re.match(r"unrecognized arguments: (\S*)", message):
            message = self._unknown(unknown[1])
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"headcount: {message}{end} See {self.prog} --help\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Leave; a reader of --help that has gone is noticed here, not when Python ends."""
        sys.stdout.flush()
        super().exit(status, message)

    @property
    def options(self) -> list[str]:
        """Every option of this command."""
        return [name for action in self._actions for name in action.option_strings]

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f'There is no use for "{word}" here.'
        name = word.partition("=")[0]
        if name in self.options:  # it stood before the name of a command or study
            return f"Put {name} behind the name: {self.prog} {name}."
        return f'There is no option "{name}".{did_you_mean(name, self.options)}'


def add_settings(parser: Any, config: type) -> None:
    """Add an option for every field of a config that says what it is for; --set fills mappings."""
    for item in fields(config):
        if item.name in ("command", "parser", "study"):  # what parsed arguments hold besides
            raise argparse.ArgumentError(None, item.name)
        if "help" in item.metadata and "Mapping" not in _annotation(item):
            name = item.metadata["option"] or item.name
            parser.add_argument(f"--{name.replace('_', '-')}", dest=item.name, **_how(item))


def chosen_settings(arguments: Namespace, config: type) -> dict[str, Any]:
    """The settings that the command line names; all others keep their defaults."""
    given = {item.name: getattr(arguments, item.name, None) for item in fields(config)}
    return {name: value for name, value in given.items() if value is not None}


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE pairs; numbers, True, False and None are read as such.

    >>> parse_settings(["n=20", "chat=True", "name=x y"])
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


def _how(item: Field[Any]) -> dict[str, Any]:
    """How argparse reads a field."""
    shown, annotation = default_text(item.default), _annotation(item)
    text = item.metadata["help"] + (f" ({shown})" if shown else "")
    how: dict[str, Any] = {"default": None, "help": text.replace("%", "%%")}
    if annotation == "bool":
        return how | {"action": argparse.BooleanOptionalAction if item.default else "store_true"}
    if item.metadata["choices"]:
        how["choices"] = item.metadata["choices"]
    if annotation.startswith("tuple"):
        how |= {"nargs": "+", "metavar": "X"}
    for kind in (int, float):
        if re.search(rf"\b{kind.__name__}\b", annotation):
            how["type"] = kind
    return how


def _annotation(item: Field[Any]) -> str:
    """The type of a field as it is written, also where the file evaluates annotations."""
    return item.type if isinstance(item.type, str) else inspect.formatannotation(item.type)


def default_text(value: Any) -> str:
    """A default as help texts show it; nothing where there is none to speak of."""
    if value is None or value in ("", ()) or isinstance(value, bool):
        return ""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
