"""The error that users see, and texts that many messages share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class HeadcountError(Exception):
    """A mistake that its user can fix: the message is one sentence that says what to do.

    The command line prints it without a traceback and ends with exit code 2.

    >>> print(HeadcountError("There is no head 9.9: this model has attention layers 0 to 3."))
    There is no head 9.9: this model has attention layers 0 to 3.
    """


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return a suggestion for a misspelt name, or an empty string.

    >>> did_you_mean("atribution", ["attribution", "random"])
    ' Did you mean "attribution"?'
    >>> did_you_mean("zebra", ["attribution", "random"])
    ''
    """
    close = difflib.get_close_matches(name.lower(), list(options), n=1, cutoff=0.6)
    return f' Did you mean "{close[0]}"?' if close else ""


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless the number is 1.

    >>> counted(1, "random draw"), counted(3, "random draw"), counted(0, "head")
    ('1 random draw', '3 random draws', '0 heads')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def span_text(numbers: Sequence[int]) -> str:
    """The smallest and the largest of some numbers, as text.

    >>> span_text([60, 48, 52]), span_text([16, 16])
    ('48 to 60', '16')
    """
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def wrong(error: Exception) -> str:
    """What is wrong with the data that raised this error, in words.

    >>> wrong(KeyError("plus")), wrong(TypeError("unhashable type: 'list'"))
    ('"plus" is missing', "a field holds what does not belong there (unhashable type: 'list')")
    """
    if isinstance(error, KeyError):
        return f'"{error.args[0] if error.args else ""}" is missing'
    return f"a field holds what does not belong there ({error})"


def unknown(kind: str, name: str, known: Iterable[str]) -> HeadcountError:
    """The error for an unknown name, with the known names and a suggestion.

    >>> raise unknown("ranking", "atribution", ["attribution", "random"])
    Traceback (most recent call last):
    headcount.errors.HeadcountError: There is no ranking "atribution" (known: attribution, random).\
 Did you mean "attribution"?
    """
    known = list(known)
    listed = ", ".join(known) or "none"
    return HeadcountError(
        f'There is no {kind} "{name}" (known: {listed}).{did_you_mean(name, known)}'
    )
