"""JSON files of users: a whole document, a list of records, or one JSON value per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from headcount.errors import HeadcountError
from headcount.system.files import checked_path, why_not_json
from headcount.tasks.task import HALF_PAIR, NOT_UNICODE, quoted

LARGEST = 200_000_000  # bytes of a file that is read as a whole
MAX_LINE = 1_000_000  # bytes of a line: far more than any prompt, far less than the memory

Record: TypeAlias = Mapping[str, Any]
Values: TypeAlias = Iterator[tuple[str, Any]]  # where each value is ("line 3"), and the value


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file that a user named; refuse one that cannot be read."""
    try:
        with checked_path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise HeadcountError(
            f"Cannot read the task file {path} ({error.strerror or error}): check its path."
        ) from error


def lines(path: Path) -> Values:
    """Read the JSON value of each line; empty lines are skipped."""
    with opened(path) as file:
        number = 0
        while data := file.readline(MAX_LINE + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(data) > MAX_LINE:
                raise HeadcountError(
                    f"{where}: the line is longer than {MAX_LINE:,} bytes; write one short record "
                    "per line."
                )
            # Editors on Windows put a byte order mark at the start of a file.
            text = _decoded(data, where, "utf-8-sig" if number == 1 else "utf-8").strip()
            if text:
                yield f"line {number}", _parsed(text, where, "line")


def list_or_lines(path: Path) -> Values:
    """Read a JSON list, or one JSON value per line."""
    with opened(path) as file:
        first = file.read(1000).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first != b"[":
        return lines(path)
    return ((f"record {number}", record) for number, record in enumerate(document(path), start=1))


def document(path: Path) -> Any:
    """Read a whole file as one JSON value."""
    with opened(path) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise HeadcountError(
            f"{path} is larger than {LARGEST:,} bytes: split it, or write one record per line."
        )
    return _parsed(_decoded(data, str(path)), str(path), "file")


def records(
    path: str, what: str, read: Callable[[Path], Values] = list_or_lines, *, ids: bool = True
) -> Iterator[tuple[str, Record]]:
    """Each record of a file and where it stands; with `ids`, a repeated id is refused."""
    if not path:
        raise HeadcountError(f"Name the file that holds the {what}: path=FILE.")
    empty = True
    first: dict[str, str] = {}  # where each id occurs first
    for which, record in read(Path(path)):
        where = f"{path}, {which}"
        if not isinstance(record, dict):
            raise HeadcountError(f"{where}: a record is a JSON object such as {{...}}.")
        if ids and "id" in record and first.setdefault(str(record["id"]), which) != which:
            taken = str(record["id"])
            raise HeadcountError(
                f"{where}: the id {quoted(taken)} is taken by {first[taken]}; give each record its "
                "own."
            )
        empty = False
        yield where, record
    if empty:
        raise HeadcountError(f"{path} has no {what}: give it at least one.")


def text_of(record: Record, name: str, where: str, *, number: bool = False) -> str:
    """The text of a field, without white space around it; with `number`, a number also counts."""
    value = _present(record, name, where)
    if number and type(value) in (int, float):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise HeadcountError(f'{where}: the field "{name}" must hold a text that is not empty.')
    if HALF_PAIR.search(value):
        raise HeadcountError(f'{where}: the field "{name}" is {NOT_UNICODE}.')
    return value.strip()


def exact_text(record: Record, name: str, where: str) -> str:
    """The text of a field, unchanged."""
    value = _present(record, name, where)
    if not isinstance(value, str):
        raise HeadcountError(f'{where}: the field "{name}" must hold a text in quotes.')
    return value


def exact_texts(record: Record, name: str, where: str) -> tuple[str, ...]:
    """The list of texts of a field, unchanged."""
    value = _present(record, name, where)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise HeadcountError(f'{where}: the field "{name}" must be a list of texts in quotes.')
    return tuple(value)


def _present(record: Record, name: str, where: str) -> Any:
    if name not in record:
        raise HeadcountError(f'{where}: the field "{name}" is missing.')
    return record[name]


def _decoded(data: bytes, where: str, encoding: str = "utf-8-sig") -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise HeadcountError(
            f"{where}: the text is not UTF-8 (byte {error.start + 1}); save the file as UTF-8."
        ) from error


def _parsed(text: str, where: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HeadcountError(f"{where}: the {what} is not JSON ({why_not_json(error)}).") from error
