"""Names of tasks, rankings, metrics and studies: ours, and those of plug-ins.

A factory's signature is its configuration: `Factory.bind` checks the settings that a caller chooses
and adds the defaults of all others, so that a log can name them and rebuild the object.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from numbers import Integral, Real
from types import CodeType
from typing import Any, Generic, TypeVar

from headcount.errors import HeadcountError, did_you_mean, unknown
from headcount.system.files import digest

T = TypeVar("T")
Entry = TypeVar("Entry")
Function = TypeVar("Function", bound=Callable[..., Any])

# The kinds of settings, by the type of their defaults: what they are called, and what they take.
_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool,)),
    int: ("a whole number", (Integral,)),  # numpy's too
    float: ("a number", (Real,)),
    str: ("a text", (str, os.PathLike)),
}
LARGEST_SEED = 2**63 - 1  # what PyTorch and NumPy both take
MOST_SEEDS = 10_000  # draws, fits or runs: far more than any interval needs
# The smallest and the largest value of settings that mean the same wherever they occur.
_BOUNDS = {"seed": (0, LARGEST_SEED), "seeds": (0, MOST_SEEDS)}


@dataclass(frozen=True)
class Factory(Generic[T]):
    """One registered factory: listing, plotting and calling share this object."""

    key: str
    name: str
    function: Callable[..., T]
    config: type | None = None  # a dataclass of settings, where they are many
    count: Callable[..., None] | None = None  # rankings: tells a counter what will run
    context: Callable[..., dict[str, Any]] | None = None  # rankings: what else determines scores
    check: Callable[[Mapping[str, Any]], None] | None = None  # refuses settings of no use
    goal: str = ""  # rankings: what heads are ranked for, where no setting of that name says so

    def arguments(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Bound settings as the factory takes them: by name, or as one config."""
        if self.config is None:
            return dict(settings)
        return {"settings": self.config(**settings)}

    @property
    def summary(self) -> str:
        """The first line of the factory's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]

    def defaults(self) -> dict[str, Any]:
        """The parameters that a caller may set, with their defaults."""
        if self.config is not None:
            return {field.name: field.default for field in dataclasses.fields(self.config)}
        parameters = inspect.signature(self.function).parameters.values()
        return {
            p.name: p.default
            for p in parameters
            if p.kind is p.KEYWORD_ONLY and p.default is not p.empty
        }

    def bind(self, **chosen: Any) -> dict[str, Any]:
        """Return all parameters with `chosen` in place.

        One that is unknown, or of another kind than its default, is refused by name; so is a value
        that the factory cannot use, before a model is loaded for it.
        """
        known = self.defaults()
        checked = {
            name: check_setting(self.key, name, value, known) for name, value in chosen.items()
        }
        bound = {**known, **checked}
        self.arguments(bound)  # a config checks its own values
        if self.check is not None:
            self.check(bound)
        return bound


def setting(default: Any, text: str, *, option: str = "", choices: Sequence[str] = ()) -> Any:
    """A field of a config: its default, and what the command line and the docs say about it.

    `option` is its name on the command line, where that is another one.
    """
    facts = {"help": text, "option": option, "choices": tuple(choices)}
    return field(default=default, metadata=facts)


def own_code(function: Callable[..., Any]) -> dict[str, str]:
    """A digest of the code of a user's function, for the keys of the store; none for ours.

    A cell that is changed and run again is then measured again. What the function calls does not
    count.
    """
    code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
    if code is None or str(getattr(function, "__module__", "")).startswith("headcount."):
        return {}

    def words(code: CodeType) -> list[object]:
        inner = [words(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
        return [code.co_code.hex(), code.co_names, inner]

    return {"code": digest(repr(words(code)))}


def make_settings(owner: str, config: type[T], chosen: Mapping[str, Any]) -> T:
    """A config of these settings; refuses unknown names and values of another kind by name.

    >>> make_settings("a factory", Factory, {"kee": 1})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    headcount.errors.HeadcountError: a factory has no setting "kee" (it has: key, ...
    """
    known = {item.name: item.default for item in dataclasses.fields(config)}  # type: ignore[arg-type]
    return config(**{n: check_setting(owner, n, value, known) for n, value in chosen.items()})


def check_setting(owner: str, name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """The value of a setting; one that is unknown, or of another kind than its default, is refused.

    So is a seed, or a number of seeds, beyond its bounds.

    >>> check_setting("square", "side", 3, {"side": 2})
    3
    """
    if name not in known:
        options = ", ".join(known) or "none"
        raise HeadcountError(
            f'{owner} has no setting "{name}" (it has: {options}).{did_you_mean(name, known)}'
        )
    default = type(known[name])
    if default not in _KINDS:
        return value
    kind, types = _KINDS[default]
    # Python counts truth values among the whole numbers.
    if not isinstance(value, types) or (type(value) is bool and default is int):
        raise HeadcountError(
            f'The setting "{name}" of {owner} is {kind}, such as {known[name]!r}, not {value!r}.'
        )
    plain: Any = default(value)  # as logs can hold it
    if default is int and name in _BOUNDS:
        least, most = _BOUNDS[name]
        if not least <= plain <= most:
            bound = f"at least {least}" if plain < least else f"at most {most:,}"
            raise HeadcountError(f'The setting "{name}" of {owner} must be {bound}, not {plain:,}.')
    return plain


def settings_of(given: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """The settings of one task (or model): those given for all, and those under its own name.

    >>> settings_of({"n": 5, "math": {"shots": 2}, "ioi": {"n": 9}}, "math")
    {'n': 5, 'shots': 2}
    """
    for_all = {key: value for key, value in (given or {}).items() if not isinstance(value, Mapping)}
    return for_all | dict((given or {}).get(name, {}))


def join_settings(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of tasks with others in place; what is given for all replaces also what has a name.

    >>> join_settings({"n": 5, "math": {"n": 3, "shots": 2}}, {"n": 1, "math": {"shots": 0}})
    {'n': 1, 'math': {'shots': 0}}
    """
    joined = {**base, **given}
    for name, own in base.items():
        if isinstance(own, Mapping):
            kept = {key: value for key, value in own.items() if key not in given}
            joined[name] = {**kept, **given.get(name, {})}
    return joined


def check_config(owner: str, config: Any) -> None:
    """Refuse a config that is not a dataclass with a default for every field."""
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise HeadcountError(f"The config of {owner} is {config!r}: give a dataclass.")
    for item in dataclasses.fields(config):
        if item.default is dataclasses.MISSING:
            raise HeadcountError(
                f'The field "{item.name}" in the config of {owner} has no default: give it one.'
            )


def check_made(owner: str, made: Any, kind: type[T]) -> T:
    """What the function of `owner` returned; a value of another kind is refused."""
    if not isinstance(made, kind):
        raise HeadcountError(
            f"The function of {owner} returned {type(made).__name__}: let it return "
            f"{kind.__name__}."
        )
    return made


@dataclass
class Registry(Generic[Entry]):
    """Entries of one kind by name, in the order in which they were registered.

    Plug-ins are imported when all names are asked for, or one that is not known.

    >>> shapes: Registry[Factory[int]] = Registry("shape", Factory)
    >>> @shapes.register("square", "Square")
    ... def square(*, side: int = 2) -> int:
    ...     '''A square.'''
    ...     return side * side
    >>> shapes["square"].bind(side=3)
    {'side': 3}
    >>> shapes["sqare"]  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    headcount.errors.HeadcountError: There is no shape "sqare" (known: square). ...
    """

    kind: str
    make: Callable[..., Entry]  # from name, title, function and further facts to an entry
    entries: dict[str, Entry] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)  # which function registered a name

    def register(self, key: str, name: str, **facts: Any) -> Callable[[Function], Function]:
        """Register the decorated function under `key`; lists and figures print `name`.

        The same function may register again, as it does when a cell of a notebook runs twice.
        """
        owner = f'the {self.kind} "{key}"'
        if not (isinstance(key, str) and re.fullmatch(r"[a-z0-9]+([_-][a-z0-9]+)*", key)):
            raise HeadcountError(
                f"A {self.kind} cannot have the name {key!r}: use lower-case letters and digits, "
                'with "-" or "_" between words.'
            )
        if not (isinstance(name, str) and name.strip()):
            raise HeadcountError(f"Give {owner} a title, as a text: it has {name!r}.")
        if facts.get("config") is not None:
            check_config(owner, facts["config"])

        def decorate(function: Function) -> Function:
            if not callable(function):
                raise HeadcountError(f"Decorate a function for {owner}, not {function!r}.")
            home = f"{function.__module__}.{getattr(function, '__qualname__', key)}"
            if key in self.entries and self.homes.get(key) != home:
                raise HeadcountError(
                    f"There is already {owner}, of {self.homes.get(key, 'headcount')}: choose "
                    "another name."
                )
            self.entries[key], self.homes[key] = self.make(key, name, function, **facts), home
            return function

        return decorate

    def __getitem__(self, key: str) -> Entry:
        if key not in self:
            refusal = unknown(self.kind, key, self.entries)
            raise HeadcountError(" ".join([str(refusal), *load_plugins()]))
        return self.entries[key]

    def __contains__(self, key: object) -> bool:
        if key in self.entries:
            return True
        load_plugins()  # one that fails matters only for names that nobody has
        if key in self.entries:
            warn_of_plugins()
        return key in self.entries

    def __iter__(self) -> Iterator[str]:
        warn_of_plugins()
        return iter(self.entries)

    def values(self) -> ValuesView[Entry]:
        """All entries."""
        warn_of_plugins()
        return self.entries.values()


@cache
def load_plugins() -> tuple[str, ...]:
    """Import the plug-ins of all installed packages, once; returns a sentence for each that fails.

    A plug-in is a module that a package names in the entry-point group `headcount`. Its decorators
    register when it is imported.
    """
    from importlib.metadata import entry_points  # slow to import

    failures = []
    for point in sorted(entry_points(group="headcount"), key=lambda point: point.name):
        try:
            if ":" in point.value:
                raise HeadcountError("its entry point names an object where a module is needed")
            import_module(point.value)
        except (Exception, SystemExit) as error:
            ours = isinstance(error, HeadcountError)
            reason = str(error) if ours else f"{type(error).__name__}: {error}"
            reason = reason.splitlines()[0].rstrip(".: ")
            package = point.dist.name if point.dist else "PACKAGE"
            failures.append(
                f'The plug-in "{point.name}" of the package {package} cannot be used, because '
                f"importing {point.value} failed ({reason}): correct it, or remove "
                f"it (pip uninstall {package})."
            )
    return tuple(failures)


@cache
def warn_of_plugins() -> None:
    """Import the plug-ins, and log a warning for each that fails, once."""
    for failure in load_plugins():
        logging.getLogger("headcount.plugins").warning("headcount: warning: %s", failure)
