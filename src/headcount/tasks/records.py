"""Records of a published data set, from a JSON list or a file with one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.jsonl import lines_of
from headcount.tasks.task import quoted

LARGEST = 200_000_000  # bytes of a file in one piece


def records(path: str, what: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each record of a file with the words that say where it is; no id may come twice."""
    if not path:
        raise HeadcountError(f"Name the file that holds the {what} records: path=FILE.")
    first: dict[str, str] = {}  # where each id was met
    found = False
    for place, record in objects(Path(path)):
        where = f"{path}, {place}"
        if not isinstance(record, dict):
            raise HeadcountError(f"{where}: a record is a JSON object such as {{...}}.")
        if "id" in record:
            identifier = str(record["id"])
            if identifier in first:
                raise HeadcountError(
                    f"{where}: the id {quoted(identifier)} is taken by {first[identifier]}; give "
                    "each record its own."
                )
            first[identifier] = place
        found = True
        yield where, record
    if not found:
        raise HeadcountError(f"{path} has no records: it needs a JSON list, or one in each line.")


def text_of(record: dict[str, Any], name: str, where: str) -> str:
    """The text in a field, without white space around it."""
    if name not in record:
        raise HeadcountError(f'{where}: the field "{name}" is missing.')
    return checked(record[name], f'the field "{name}"', where)


def checked(value: Any, name: str, where: str) -> str:
    """A value that must be a text with words in it; `name` says what it is."""
    if not isinstance(value, str) or not value.strip():
        raise HeadcountError(f"{where}: {name} must hold a text that is not empty.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise HeadcountError(
            f"{where}: {name} is not valid Unicode (half of a surrogate pair)."
        ) from error
    return value.strip()


def objects(path: Path) -> Iterator[tuple[str, Any]]:
    """Each JSON value of a list or of a line, with the words that say which it is."""
    try:
        with path.open("rb") as file:
            first = file.read(1000).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if first != b"[":
            for number, line in lines_of(path):
                yield f"line {number}", _parsed(line, f"{path}, line {number}")
            return
        if path.stat().st_size > LARGEST:
            raise HeadcountError(
                f"{path} is larger than {LARGEST:,} bytes: write one record per line."
            )
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HeadcountError(
            f"{path} is not UTF-8 (byte {error.start + 1}): save it as such."
        ) from error
    except OSError as error:
        raise HeadcountError(f"Cannot read {path}: {error.strerror or error}.") from error
    for number, record in enumerate(_parsed(text, str(path)), start=1):
        yield f"record {number}", record


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise HeadcountError(f"{where}: this is not JSON ({reason}).") from error
