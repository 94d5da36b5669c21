"""Curves: values against the number of heads masked or kept."""

from headcount.curves.curve import (
    SERIES,
    Curve,
    CurveRequest,
    CurveSettings,
    Mode,
    Point,
    curve,
    default_counts,
)

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
