"""Math Calculation: what does a short expression come to?

    70 * 8 =  →  560

All expressions are products: of two digits, of a round number and a digit, of any number and 10 or
100. The content is the expression; none comes again with its numbers swapped.

All items are our own. Sums are too hard for the bundled model, even "70 + 8" and even on their own;
so are quotients, and products of two round numbers, where it loses count of the zeros.
"What is 70 * 8?" does a little worse than "70 * 8 =".
"""

from __future__ import annotations

from collections.abc import Iterator

from headcount.tasks.items import Item

FACTORS = range(2, 10)
ROUND = {"tens": 10, "hundreds": 100, "thousands": 1000}
NUMBERS = tuple(n for n in (*range(11, 100), *range(101, 1000, 13)) if n % 10)


def items() -> list[Item]:
    """One item for each expression, form by form."""
    return [
        Item(f"{left} * {right} =", str(left * right), form, f"{left} * {right}")
        for form, left, right in _products()
    ]


def _products() -> Iterator[tuple[str, int, int]]:
    """Form, left factor, right factor."""
    for right in FACTORS:
        for left in range(right, 10):
            yield "digit * digit", left, right
    for name, unit in ROUND.items():
        for left in FACTORS:
            for right in FACTORS:
                yield f"{name} * digit", unit * left, right
    for number in NUMBERS:
        yield "number * 10", number, 10
    for number in NUMBERS:
        if number < 100:
            yield "number * 100", number, 100
