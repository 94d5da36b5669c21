"""The parser of the command line: errors of one sentence, options from the fields of configs."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import Field, fields
from typing import Any, NoReturn, TypeAlias

from headcount.errors import HeadcountError, did_you_mean

FEW = 6  # an error lists at most this many choices, else only the nearest

# Messages of argparse, and what is printed instead.
PLAIN = (
    (
        r"argument ([^:/]+).*?: invalid int value: (['\"])(.*)\2",
        r'\1 takes a whole number, not "\3"',
    ),
    (r"argument ([^:/]+).*?: invalid float value: (['\"])(.*)\2", r'\1 takes a number, not "\3"'),
    (r"argument ([^:/]+).*?: expected one argument", r"\1 needs a value"),
    (r"argument ([^:/]+).*?: expected at least one argument", r"\1 needs at least one value"),
    (r"argument ([^:/]+).*?: ignored explicit argument .*", r"\1 takes no value"),
    (r"ambiguous option: (\S+) could match (.*)", r"\1 can mean \2: write one of them in full"),
)


class Parser(argparse.ArgumentParser):
    """argparse, with one sentence and a suggestion instead of the usage text."""

    def __init__(self, **how: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **how)

    def option(self, name: str, value: str, text: str, default: Any = None, **how: Any) -> None:
        """Add an option with a value, which is a whole number if it is called N, a number if X.

        One that is called TEXT is read as UTF-8. The help ends with the default, if there is one.
        """
        kinds: dict[str, Callable[[str], Any]] = {"N": int, "X": float, "TEXT": read_text}
        kind, shown = kinds.get(value, str), default_text(default)
        help = f"{text} ({shown})" if shown else text
        self.add_argument(name, type=kind, metavar=value, default=default, help=help, **how)

    def flag(self, name: str, text: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", help=text)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read the words; the command that an unknown word was given to refuses it."""
        arguments, rest = self.parse_known_args(args, namespace)
        if rest:
            parser: Parser = getattr(arguments, "parser", self)
            parser.error(f"unrecognized arguments: {rest[0]}")
        return arguments

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and how to get help; exit code 2."""
        if unknown := re.match(r"unrecognized arguments: (\S*)", message):
            message = self._unknown(unknown[1])
        elif wrong := re.match(r"argument (.*?): invalid choice: (['\"])(.*?)\2 \(choose", message):
            message = self._wrong_choice(wrong[1], wrong[3])
        elif required := re.match(r"the following arguments are required: (.*)", message):
            known = ", ".join(self._choices(required[1]))
            listed = f" ({known})" if known else ""
            message = f"This command needs {required[1].replace(', ', ' and ')}{listed}"
        for pattern, plain in PLAIN:
            message = re.sub(pattern, plain, message)
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"headcount: {message}{end} See {self.prog} --help\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit; a closed pipe, as of --help, raises here, and not when Python exits."""
        sys.stdout.flush()
        super().exit(status, message)

    @property
    def options(self) -> list[str]:
        """Every option of this command."""
        return [name for action in self._actions for name in action.option_strings]

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f'"{word}" is not expected here.'
        name = word.partition("=")[0]
        if name in self.options:  # it stood before the name of a command or study
            return f"Write {name} after the name: {self.prog} {name}."
        return f'There is no option "{name}".{did_you_mean(name, self.options)}'

    def _wrong_choice(self, name: str, word: str) -> str:
        choices = [*map(str, self._choices(name))]
        listed = f" (known: {', '.join(choices)})" if len(choices) <= FEW else ""
        of_option = name.startswith("-")
        what = f'{name} cannot be "{word}"' if of_option else f'There is no {name.lower()} "{word}"'
        return f"{what}{listed}.{did_you_mean(word, choices)}"

    def _choices(self, name: str) -> Iterable[Any]:
        """The values that an argument can have, where they are limited."""
        named = (a for a in self._actions if name in (*a.option_strings, a.metavar, a.dest))
        return getattr(next(named, None), "choices", None) or ()


AddOptions: TypeAlias = Callable[[Parser], None]
COMMANDS: dict[str, tuple[AddOptions, str, str, tuple[str, ...]]] = {}


def command(home: str, summary: str, *examples: str) -> Callable[[AddOptions], None]:
    """Register a command: the decorated function adds its options, FILE:FUNCTION `home` runs it."""

    def enter(add_options: AddOptions) -> None:
        COMMANDS[add_options.__name__[1:].replace("_", "-")] = add_options, home, summary, examples

    return enter


def read_text(word: str) -> str:
    """A word of the command line as text, also from a terminal whose encoding lacks its characters.

    Python hands their bytes on as escapes (halves of surrogate pairs), which no model can read.
    """
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise HeadcountError(f"{word!a} is not UTF-8: write it as UTF-8 text.") from None


def add_settings(parser: Any, config: type) -> None:
    """Add an option for every field of a config with a help text; mappings are left to --set."""
    for item in fields(config):
        if item.name in ("command", "parser", "study"):  # taken in the parsed arguments
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

    OWNER:NAME=VALUE is a setting of one task (or model, or ranking).

    >>> parse_settings(["n=20", "chat=True", "name=x y", "math:path=a.jsonl"])
    {'n': 20, 'chat': True, 'name': 'x y', 'math': {'path': 'a.jsonl'}}
    """
    chosen: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.rpartition(":")[2]:
            raise HeadcountError(f'"{pair}" is not a setting: write NAME=VALUE, such as n=100.')
        value: Any = text
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = ast.literal_eval(text)
        owner, _, name = name.rpartition(":")
        place = chosen.setdefault(owner, {}) if owner else chosen
        if not isinstance(place, dict):
            raise HeadcountError(f'"{pair}" cannot stand beside "{owner}={place}": leave one out.')
        place[name.replace("-", "_")] = value
    return chosen


def _how(item: Field[Any]) -> dict[str, Any]:
    """The keyword arguments of `add_argument` for a field."""
    shown, annotation = default_text(item.default), _annotation(item)
    text = item.metadata["help"] + (f" ({shown})" if shown else "")
    how: dict[str, Any] = {"default": None, "help": text.replace("%", "%%")}
    if annotation == "bool":
        return how | {"action": argparse.BooleanOptionalAction if item.default else "store_true"}
    if item.metadata["choices"]:
        how["choices"] = item.metadata["choices"]
    if annotation.startswith("tuple"):
        how |= {"nargs": "+", "metavar": "NAME"}
    for kind, metavar in ((int, "N"), (float, "X")):
        if re.search(rf"\b{kind.__name__}\b", annotation):
            how |= {"type": kind, "metavar": metavar}
    return how


def _annotation(item: Field[Any]) -> str:
    """The type of a field as text, also if its file evaluates annotations."""
    return item.type if isinstance(item.type, str) else inspect.formatannotation(item.type)


def default_text(value: Any) -> str:
    """A default as help texts show it; an empty text for None, False, and empty values."""
    if value is None or value is False or value in ("", ()):
        return ""
    if value is True:
        return "on unless switched off"
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
