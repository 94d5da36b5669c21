"""Files that are whole or not there: JSON, CSV and bytes, each written in one way."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` at once when the block ends.

    After an exception the old file is still there, and nothing else.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp opens exclusively: a link that somebody else put there is not followed.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".part", dir=path.parent)
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        beside.chmod(0o666 & ~_umask())  # mkstemp's files are for their owner only
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_file(path: str | Path, content: str | bytes) -> Path:
    """Write a whole file at once: a reader sees the old one or the new one."""
    with replacing(path) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def write_json(path: str | Path, value: Any) -> Path:
    """Write a JSON document."""
    return write_file(path, to_json(value) + "\n")


def write_json_rows(path: str | Path, entries: Mapping[str, Any]) -> Path:
    """Write a JSON object with a line for each entry, and for each row of an entry that is a table.

    A long list of numbers is then one line, and a file of them is small and still easy to compare.
    """
    lines = [f"{json.dumps(key)}: {_on_lines(_plain(value))}" for key, value in entries.items()]
    return write_file(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_json(path: str | Path, what: str) -> Any:
    """Read a JSON document; `what` says in the message of a failure what the file should hold."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise HeadcountError(f"Cannot read {what} from {path}: {error.strerror}.") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise HeadcountError(f"Cannot read {what} from {path}: {error}.") from error


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows that all have the same columns; lines end in a line feed.

    A path that ends in .gz is compressed; the same rows give the same bytes at any time.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    return write_file(path, gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def to_json(value: Any) -> str:
    """A JSON document; numbers that JSON does not have, such as an unknown interval, are null.

    >>> print(to_json({"low": float("nan")}))
    {
      "low": null
    }
    """
    # Python itself would write NaN, at which other readers of JSON stop.
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def canonical(value: Mapping[str, Any]) -> str:
    """The one JSON text of a dict, however it is ordered; its sha256 is the key of a context.

    >>> canonical({"b": 1, "a": (2.5, None)})
    '{"a":[2.5,null],"b":1}'
    """
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(data: str | bytes) -> str:
    """The sha256, in hex."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def file_digest(path: str | Path) -> str:
    """The sha256 of a file, in hex, without reading it into memory at once."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def safe_name(name: str) -> str:
    """A name as part of a path: no slashes, and not a step up.

    >>> safe_name("Qwen/Qwen3-0.6B"), safe_name("..")
    ('Qwen-Qwen3-0.6B', '--')
    """
    kept = "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in name)
    return kept if kept.strip(".") else "-" * len(kept)


def _plain(value: Any) -> Any:
    """The value in the types that JSON has; what it has no type for as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _on_lines(value: Any) -> str:
    """JSON with one line for each row of a table, and else on one line."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _umask() -> int:
    """The process's mask for new files, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
