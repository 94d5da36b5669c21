"""Curves: values against the number of heads masked or kept."""

from headcount.curves.curve import (
    Curve,
    CurveRequest,
    CurveSettings,
    Mode,
    Point,
    curve,
    default_counts,
)
from headcount.figures.style import SERIES

__all__ = [
    "SERIES",
    "Curve",
    "CurveRequest",
    "CurveSettings",
    "Mode",
    "Point",
    "curve",
    "default_counts",
]
