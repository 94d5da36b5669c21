"""Named factories: a method or a task is a name, a signature and the parameters bound to it.

A factory's signature is its configuration. `Registry.build` keeps the parameters that it bound, so
that a log can name them and rebuild the object.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Generic, TypeVar

from headcount.errors import HeadcountError, did_you_mean, unknown

T = TypeVar("T")

# The kinds of settings, by the type of their defaults: what they are called, and what they take.
_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool,)),
    int: ("a whole number", (Integral,)),  # numpy's too
    float: ("a number", (Real,)),
    str: ("a text", (str, os.PathLike)),
}


@dataclass(frozen=True)
class Factory(Generic[T]):
    """One registered factory: listing, plotting and calling share this object."""

    key: str
    name: str
    function: Callable[..., T]
    config: type | None = None  # a dataclass of settings, where they are many

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

        One that is unknown, or of another kind than its default, is refused by name.
        """
        known = self.defaults()
        checked = {
            name: check_setting(self.key, name, value, known) for name, value in chosen.items()
        }
        return {**known, **checked}


def setting(default: Any, text: str, *, option: str = "", choices: Sequence[str] = ()) -> Any:
    """A field of a config: its default, and what the command line and the docs say about it.

    `option` is its name on the command line, where that is another one.
    """
    facts = {"help": text, "option": option, "choices": tuple(choices)}
    return field(default=default, metadata=facts)


def check_setting(owner: str, name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """The value of a setting; one that is unknown, or of another kind than its default, is refused.

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
    return default(value)  # plain values, as logs can hold them


@dataclass
class Registry(Generic[T]):
    """Factories of one kind, by key.

    >>> shapes: Registry[int] = Registry("shape")
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
    entries: dict[str, Factory[T]] = field(default_factory=dict)

    def register(
        self, key: str, name: str, config: type | None = None
    ) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """Register the decorated factory under `key`; `name` is what figures print.

        Its settings are its keyword arguments that have a default, or the fields of `config`, of
        which it is then given one as `settings`.
        """

        def decorate(function: Callable[..., T]) -> Callable[..., T]:
            if key in self.entries:
                raise ValueError(f"{self.kind} {key!r} is registered twice")
            self.entries[key] = Factory(key, name, function, config)
            return function

        return decorate

    def __getitem__(self, key: str) -> Factory[T]:
        if key not in self.entries:
            raise unknown(self.kind, key, self.entries)
        return self.entries[key]

    def __iter__(self) -> Iterator[Factory[T]]:
        return iter(self.entries.values())
