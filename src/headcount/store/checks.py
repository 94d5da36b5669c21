"""Check sums of stored rows: a row that was changed on disk is noticed when it is read.

The check sum of a measurement covers its value and the keys of its context, head set and example,
so that a value cannot be taken for that of other keys either. Sums are computed for many rows at
once: one at a time would make reading several times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from jaxtyping import Int, UInt64

from headcount.system.files import digest

# The types of a row's head set, example, value or text, and sum.
CELL = [
    np.dtype([("head_set", "i8"), ("example", "i8"), ("value", kind), ("sum", "i8")])
    for kind in ("f8", "O")
]
NO_SUM = 1 << 40  # in place of the sum of a row that was stored before rows had sums
Codes = UInt64[np.ndarray, "..."]


def key_codes(keys: Sequence[str]) -> UInt64[np.ndarray, "keys"]:
    """A number for each key, or for each text."""
    hashes = (blake2b(key.encode("utf-8", "replace"), digest_size=8).digest() for key in keys)
    return np.frombuffer(b"".join(hashes), dtype="<u8").astype(np.uint64)


def checksums(
    contexts: Codes, head_sets: Codes, examples: Codes, values: np.ndarray
) -> Int[np.ndarray, "rows"]:
    """The check sum of each value or text, from the codes of its three keys.

    >>> one, two, three = key_codes(["a", "b", "c"])[:, None]
    >>> sums = [checksums(one, *codes, np.array([0.5])) for codes in ((two, three), (three, two))]
    >>> bool(sums[0] == sums[1])
    False
    """
    if values.dtype == object:
        bits = key_codes(values.tolist())
    else:
        # Adding zero turns -0 into 0: SQLite does not keep the difference.
        bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    mixed = contexts
    for part in (head_sets, examples, bits):
        mixed = _mix(mixed ^ part)
    return (mixed >> np.uint64(32)).astype(np.uint32).view(np.int32).astype(np.int64)


def document_sum(context: str, kind: str, text: str) -> str:
    """The check sum of a document."""
    return digest(f"{context} {kind} {text}")


def by_type(
    rows: Sequence[tuple[Any, ...]], *, texts: bool
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Rows of (head set, example, value, sum) as an array, and the ids of those of other types."""
    kinds = (str,) if texts else (float, int)
    try:
        if not texts or all(type(row[2]) is str for row in rows):
            return np.array(rows, dtype=CELL[texts]), []
    except (TypeError, ValueError, OverflowError):
        pass  # some row is damaged: find it
    right = [row for row in rows if type(row[2]) in kinds and type(row[3]) is int]
    known = {row[:2] for row in right}
    return np.array(right, dtype=CELL[texts]), [r[:2] for r in rows if r[:2] not in known]


def _mix(numbers: Codes) -> Codes:
    """Mix the bits of each number, as SplitMix64 does: every bit changes about half of them."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    mixed: Codes = numbers ^ (numbers >> np.uint64(31))
    return mixed
