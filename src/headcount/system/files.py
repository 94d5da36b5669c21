"""Write JSON, CSV and other files atomically: a reader never sees half a file.

Files of strangers are read with limits, and what is wrong with them is said in plain words.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError

LARGEST = 100_000_000  # bytes of a file of a result: far more than any has, less than the memory


def checked_path(path: str | Path) -> Path:
    """The path; one with a NUL character, which no file can have, is refused.

    >>> checked_path("a\\0b")
    Traceback (most recent call last):
    headcount.errors.HeadcountError: 'a\\x00b' holds a NUL character, which no path can: remove it.
    """
    if "\0" in str(path):
        raise HeadcountError(f"{str(path)!r} holds a NUL character, which no path can: remove it.")
    return Path(path)


def readable(text: str) -> str:
    """A text from a command line, for files and figures.

    Bytes that Python could not decode are escapes in it (halves of surrogate pairs), which no file
    or figure can hold: they are read as UTF-8.

    >>> readable("caf\\udcc3\\udca9.jsonl")
    'café.jsonl'
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to, which replaces `path` when the block ends.

    After an exception the old file is unchanged, and the temporary one is deleted.
    """
    path = checked_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp creates a new file: it does not follow a link that somebody else put there.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # mkstemp lets only the owner read
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: str | Path, content: str | bytes) -> Path:
    """Write a file atomically: a reader sees either the old content or the new."""
    with replacing(path) as temporary:
        data = readable(content).encode() if isinstance(content, str) else content
        temporary.write_bytes(data)
    return Path(path)


def write_json(path: str | Path, value: Any) -> Path:
    """Write a JSON document."""
    return write_file(path, to_json(value) + "\n")


def write_json_rows(path: str | Path, entries: Mapping[str, Any]) -> Path:
    """Write a JSON object with one line per entry, or one line per row of an entry that is a table.

    A long list of numbers is then one line, so that the file is small and easy to compare. A path
    that ends in .gz is compressed.
    """
    lines = [f"{json.dumps(key)}: {_on_lines(_plain(value))}" for key, value in entries.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    packed = Path(path).suffix == ".gz"
    return write_file(path, gzip.compress(readable(text).encode(), mtime=0) if packed else text)


def read_json(path: str | Path, what: str) -> Any:
    """Read a JSON document, which may be compressed (.gz).

    `what` names the expected content in the error message.
    """
    try:
        return json.loads(read_limited(checked_path(path)).decode("utf-8"))
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "it is damaged"
        raise HeadcountError(f"Cannot read {what} from {path}: {why}.") from error
    except (ValueError, RecursionError) as error:
        raise HeadcountError(
            f"Cannot read {what} from {path}: it is not JSON ({why_not_json(error)})."
        ) from error


def why_not_json(error: Exception) -> str:
    """Why `json.loads` has refused a text: its own words are for programmers.

    >>> try:
    ...     json.loads("[1,]")
    ... except ValueError as error:
    ...     print(why_not_json(error))
    a mistake at column 4
    """
    if isinstance(error, json.JSONDecodeError):
        if not error.doc.strip():
            return "it is empty"
        line = f"line {error.lineno}, " if "\n" in error.doc else ""
        return f"a mistake at {line}column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return "it holds a number of thousands of digits"


def read_limited(path: Path) -> bytes:
    """The bytes of a file of up to `LARGEST` bytes; a .gz file is unpacked, up to the same size.

    A pipe or a device, which may never end, is refused.
    """
    if path.exists() and not path.is_file():
        raise HeadcountError(f"Cannot read {path}: it is not a regular file.")
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data: bytes = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise HeadcountError(f"Cannot read {path}: it holds more than {LARGEST / 1e6:.0f} MB.")
    return data


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows with the same columns; lines end in a line feed, numbers have eight digits.

    A path that ends in .gz is compressed; equal rows always give equal bytes.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _short(cell) for name, cell in row.items()} for row in rows)
    data = text.getvalue().encode()
    return write_file(path, gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def _short(cell: Any) -> Any:
    """A number that is not whole in eight digits: no interval is known better than that."""
    return f"{cell:.8g}" if isinstance(cell, float) and not cell.is_integer() else cell


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """A JSON document, in which NaN and infinite numbers are null.

    >>> print(to_json({"low": float("nan")}))
    {
      "low": null
    }
    """
    # Python would write NaN, which is not JSON.
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def canonical(value: Mapping[str, Any]) -> str:
    """The JSON text of a dict, independent of its order; its sha256 is the key of a context.

    >>> canonical({"b": 1, "a": (2.5, None)})
    '{"a":[2.5,null],"b":1}'
    """
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(data: str | bytes) -> str:
    """The sha256 of a text or bytes, in hex."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def file_digest(path: str | Path) -> str:
    """The sha256 of a file, in hex, without reading it into memory at once."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def safe_name(name: str) -> str:
    """A name that is safe in a path: without slashes, and never the folder above.

    >>> safe_name("Qwen/Qwen3-0.6B"), safe_name("..")
    ('Qwen-Qwen3-0.6B', '--')
    """
    safe = "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in name)
    return safe if safe.strip(".") else "-" * len(safe)


def _plain(value: Any) -> Any:
    """The value in the types of JSON; values of other types become texts."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _on_lines(value: Any) -> str:
    """The JSON of a value: one line for each row of a table, or one line in all."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
