"""JSON that users bring: a whole document, a list of records, or one JSON value per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.task import quoted

LARGEST = 200_000_000  # bytes of a file in one piece
MAX_LINE = 1_000_000  # bytes: far above any prompt, far below what would fill the memory


def records(path: str, what: str, *, lists: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each record of a file with the words that say where it is; no id may come twice.

    With `lists` the file may also be one JSON list, and need not have one record in each line.
    """
    if not path:
        raise HeadcountError(f"Name the file that holds the {what}: path=FILE.")
    first: dict[str, str] = {}  # where each id was met
    empty = True
    for which, record in (values if lists else values_of_lines)(Path(path)):
        where = f"{path}, {which}"
        if not isinstance(record, dict):
            raise HeadcountError(f"{where}: a record is a JSON object such as {{...}}.")
        if "id" in record:
            identifier = str(record["id"])
            if identifier in first:
                raise HeadcountError(
                    f"{where}: the id {quoted(identifier)} is taken by {first[identifier]}; give "
                    "each record its own."
                )
            first[identifier] = which
        empty = False
        yield where, record
    if empty:
        also = "a JSON list, or one" if lists else "one JSON object"
        raise HeadcountError(f"{path} has no {what}: it needs {also} in each line.")


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


def values(path: Path) -> Iterator[tuple[str, Any]]:
    """Each JSON value of a list or of a line, with the words that say which it is."""
    try:
        with path.open("rb") as file:
            first = file.read(1000).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    except OSError as error:
        raise _unreadable(path, error) from error
    if first != b"[":
        yield from values_of_lines(path)
        return
    for number, record in enumerate(document(path), start=1):
        yield f"record {number}", record


def values_of_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The JSON value of each line that is not empty, with the words that say which it is."""
    try:
        with path.open("rb") as file:
            number = 0
            while data := file.readline(MAX_LINE + 1):
                number += 1
                where = f"{path}, line {number}"
                if len(data) > MAX_LINE:
                    raise HeadcountError(
                        f"{where}: the line is longer than {MAX_LINE:,} bytes; write one short "
                        "record per line."
                    )
                if text := _decoded(data, where, first=number == 1).strip():
                    yield f"line {number}", _parsed(text, where, "line")
    except OSError as error:
        raise _unreadable(path, error) from error


def document(path: Path) -> Any:
    """The JSON value that a whole file holds."""
    try:
        if path.stat().st_size > LARGEST:
            raise HeadcountError(
                f"{path} is larger than {LARGEST:,} bytes: split it, or write one record per line."
            )
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    return _parsed(_decoded(data, str(path)), str(path), "file")


def check_readable(path: Path) -> None:
    """Refuse a file that cannot be opened, before anything long is begun."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> HeadcountError:
    return HeadcountError(f"Cannot read the task file {path}: {error.strerror or error}.")


def _decoded(data: bytes, where: str, *, first: bool = True) -> str:
    try:
        # Editors on Windows put a byte order mark at the start of a file.
        return data.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        raise HeadcountError(
            f"{where}: the text is not UTF-8 (byte {error.start + 1}); save the file as UTF-8."
        ) from error


def _parsed(text: str, where: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise HeadcountError(f"{where}: the {what} is not JSON ({reason}).") from error
