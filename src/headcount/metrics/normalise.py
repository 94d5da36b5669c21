"""A normal form of answers, in which answers that a person would call the same are equal."""

from __future__ import annotations

import re
import unicodedata

# Typographic variants of quotes and dashes become one character each.
_SHAPES = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛`´", "'"),
        **dict.fromkeys("“”„‟", '"'),
        **dict.fromkeys("‐‑‒–−", "-"),
    }
)
# Punctuation that changes the meaning: 5 % is not 5, and C# is not C.
_MEANINGFUL = frozenset("%‰‱#&@§†‡")
_ARTICLE = re.compile(r"(?:a|an|the) (?=\S)")
# A sign or a decimal point that belongs to the amount after it.
_AMOUNT = re.compile(r"-?[$€£¥]?\.?[0-9]")
_NUMBER = re.compile(r"([+-]?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.([0-9]*))?")


def normalise(text: str) -> str:
    """Return the form of `text` in which two answers are compared.

    Case, Unicode's variants of a character (NFKC), white space, surrounding quotes and punctuation,
    and leading articles are ignored. Equal numbers are written in one way, digit by digit, so that
    no rounding makes different numbers equal. A text of punctuation alone is kept, because "!" may
    be an answer, and is not "?".

    >>> normalise(' "The Eiffel  Tower". ')
    'eiffel tower'
    >>> normalise("1,000"), normalise("1000.0"), normalise(" -1000."), normalise("5 %")
    ('1000', '1000', '-1000', '5 %')
    """
    while True:  # a quote may stand before an article, or an article before a quote
        before, text = text, _once(text)
        if text == before:
            return text


def _once(text: str) -> str:
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = " ".join(text.translate(_SHAPES).split())
    text = _bare(text) or text
    text = _ARTICLE.sub("", text, count=1) if _ARTICLE.match(text) else text
    return _plain_number(text)


def _bare(text: str) -> str:
    """`text` without the punctuation around it."""
    start, end = 0, len(text)
    while end and _is_punctuation(text[end - 1]):
        end -= 1
    while start < end and _is_punctuation(text[start]):
        # A doubled mark is not part of a number: "--5" is a dash and 5, "...5" an ellipsis and 5.
        doubled = start > 0 and text[start - 1] == text[start]
        if not doubled and _AMOUNT.match(text, start):
            break
        start += 1
    return text[start:end]


def _is_punctuation(sign: str) -> bool:
    if sign in _MEANINGFUL:
        return False
    return sign.isspace() or unicodedata.category(sign).startswith("P")


def _plain_number(text: str) -> str:
    """The normal form of a number; any other text is returned unchanged."""
    parts = _NUMBER.fullmatch(text)
    if parts is None or not any(sign.isdigit() for sign in text):
        return text
    sign, whole, part = parts.groups(default="")
    whole = whole.replace(",", "").lstrip("0") or "0"
    part = part.rstrip("0")
    number = f"{whole}.{part}" if part else whole
    return f"-{number}" if sign == "-" and number != "0" else number
