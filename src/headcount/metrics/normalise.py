"""The form in which answers are compared: what one person would call the same answer is equal."""

from __future__ import annotations

import re
import unicodedata

# One mark for each of these, whichever of its shapes a model prefers.
_SHAPES = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛`´", "'"),
        **dict.fromkeys("“”„‟", '"'),
        **dict.fromkeys("‐‑‒–−", "-"),
    }
)
# Punctuation that is part of what it stands beside: 5 % is not 5, and C# is not C.
_MEANINGFUL = frozenset("%‰‱#&@§†‡")
_ARTICLE = re.compile(r"(?:a|an|the) (?=\S)")
# A sign or a decimal point that belongs to the amount after it.
_AMOUNT = re.compile(r"-?[$€£¥]?\.?[0-9]")
_NUMBER = re.compile(r"([+-]?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.([0-9]*))?")


def normalise(text: str) -> str:
    """Return the form of `text` in which two answers are compared.

    Upper and lower case, Unicode's ways to write the same sign (NFKC), white space, surrounding
    quotes and punctuation, and articles in front do not count. Numbers become one way of writing
    them, digit by digit, so that no rounding makes two of them equal. A text that is punctuation
    and nothing else stays: "!" may be an answer, and is not "?".

    >>> normalise(' "The Eiffel  Tower". ')
    'eiffel tower'
    >>> normalise("1,000"), normalise("1000.0"), normalise(" -1000."), normalise("5 %")
    ('1000', '1000', '-1000', '5 %')
    """
    while True:  # an article may hide a quote, and a quote an article
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
        # Not where the mark is doubled: "--5" is a dash and a 5, "...5" what is left of a sentence.
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
    """One way of writing each number; anything else stays as it is."""
    parts = _NUMBER.fullmatch(text)
    if parts is None or not any(sign.isdigit() for sign in text):
        return text
    sign, whole, part = parts.groups(default="")
    whole = whole.replace(",", "").lstrip("0") or "0"
    part = part.rstrip("0")
    number = f"{whole}.{part}" if part else whole
    return f"-{number}" if sign == "-" and number != "0" else number
