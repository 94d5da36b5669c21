"""Small facts about this machine and its models, remembered in JSON files of the cache folder.

They only save time: a folder that cannot be read or written, and a damaged file, count as empty.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

from filelock import FileLock, Timeout

from headcount.errors import HeadcountError
from headcount.system.files import write_json
from headcount.system.paths import cache_dir

PATIENCE = 10  # seconds to wait for other processes that write the file
KEPT = 1000  # numbers in a file: the oldest are forgotten first


def remembered(file: str) -> dict[str, Any]:
    """All facts of a file, by key."""
    try:
        facts = json.loads((cache_dir() / file).read_text(encoding="utf-8"))
    except (OSError, HeadcountError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def remembered_number(file: str, key: str) -> float | None:
    """The number that a file has for this key; None where it has none, or nonsense."""
    number = remembered(file).get(key)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    with suppress(OverflowError):  # of a whole number with hundreds of digits
        return float(number) if math.isfinite(number) and number >= 0 else None
    return None


def remember(file: str, key: str, fact: Any, *, kept: int = KEPT) -> None:
    """Add a fact to a file, which keeps so many; if that fails, it is found out again next time."""
    with suppress(OSError, HeadcountError, Timeout):
        path = cache_dir() / file
        # Other processes may add facts at the same time.
        with FileLock(path.with_suffix(".lock"), timeout=PATIENCE):
            facts = remembered(file)
            facts.pop(key, None)
            write_json(path, dict([*facts.items(), (key, fact)][-kept:]))
