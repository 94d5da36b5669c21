"""Curves: values against the number of heads masked or kept."""

from headcount.curves.curve import (
    Curve,
    Mode,
    Point,
    curve,
    default_counts,
    interval_of,
)
from headcount.figures.style import SERIES

__all__ = ["SERIES", "Curve", "Mode", "Point", "curve", "default_counts", "interval_of"]
