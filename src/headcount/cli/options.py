"""Options of the command line from the fields of a config."""

from __future__ import annotations

import argparse
import ast
from argparse import Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import Field, fields
from typing import Any

from headcount.errors import HeadcountError


def add_settings(parser: Any, config: type, only: Iterable[str] | None = None) -> None:
    """Add an option for every field that says what it is for, or for those in `only`."""
    for item in fields(config):
        if "help" in item.metadata if only is None else item.name in only:
            parser.add_argument(f"--{_option(item)}", dest=item.name, **_how(item))


def chosen_settings(arguments: Namespace, config: type) -> dict[str, Any]:
    """The settings that the command line names; all others keep their defaults."""
    given = {item.name: getattr(arguments, item.name, None) for item in fields(config)}
    return {name: value for name, value in given.items() if value is not None}


def setting_rows(config: type) -> list[tuple[str, str, str]]:
    """Each setting of a config: option, default, and what it is for. The docs print them."""
    return [
        (f"--{_option(item)}", _default(item), item.metadata["help"])
        for item in fields(config)
        if "help" in item.metadata
    ]


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


def _option(item: Field[Any]) -> str:
    return (item.metadata.get("option") or item.name).replace("_", "-")


def _how(item: Field[Any]) -> dict[str, Any]:
    """How argparse reads a field: its annotation is the text of a type."""
    shown = _default(item)
    text = item.metadata.get("help", "")
    how: dict[str, Any] = {"default": None, "help": f"{text} ({shown})" if shown else text}
    how["help"] = how["help"].replace("%", "%%")
    annotation = str(item.type)
    if annotation == "bool":
        return how | {"action": argparse.BooleanOptionalAction if item.default else "store_true"}
    if item.metadata.get("choices"):
        how["choices"] = item.metadata["choices"]
    if annotation.startswith(("tuple", "Sequence")):
        how |= {"nargs": "+", "metavar": "X"}
    if "int" in annotation:
        how["type"] = int
    elif "float" in annotation:
        how["type"] = float
    return how


def _default(item: Field[Any]) -> str:
    """A default as help texts show it; nothing where there is none to speak of."""
    value = item.default
    if value is None or value == "" or value == () or isinstance(value, bool):
        return ""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
