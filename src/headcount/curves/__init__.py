"""Curves: values against the number of heads masked or kept."""

from headcount.curves.curve import (
    SERIES,
    Curve,
    Mode,
    Point,
    curve,
    default_counts,
    interval_of,
)

__all__ = ["SERIES", "Curve", "Mode", "Point", "curve", "default_counts", "interval_of"]
