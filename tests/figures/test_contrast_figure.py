"""The figure of contrastive gates: every dot is drawn where it belongs."""

from __future__ import annotations

from math import nan

import pytest

from headcount.figures.contrast import COLOURS, LOOKS, Dot, plot_contrast


def dots(change: float) -> list[Dot]:
    return [
        Dot(role, series, change * (1 + place), change * (1 + place) - 0.5, change * (1 + place))
        for role in COLOURS
        for place, series in enumerate(LOOKS)
    ]


def test_each_dot_and_interval_is_drawn_in_order() -> None:
    panels = {
        "in-context kept, instruction forgotten": {
            "Present-Past": dots(-1.0),
            "Singular-Plural": [Dot("kept", "heads", -0.2, nan, nan)],
        },
        "instruction kept, in-context forgotten": {"Present-Past": dots(-2.0)},
    }
    at_chance = [("instruction kept, in-context forgotten", "Present-Past")]
    figure = plot_contrast(panels, label="Change", at_chance=at_chance)
    first, second = figure.axes
    drawn = [line for line in first.lines if len(line.get_xdata()) == 1]
    places = [float(line.get_xdata()[0]) for line in drawn[:-1]]
    assert places == sorted(places)  # the kept form on the left
    assert [float(line.get_ydata()[0]) for line in drawn] == [
        *(-1.0, -2.0, -3.0, -4.0) * 2,
        pytest.approx(-0.2),
    ]
    assert len(first.collections) == 8  # no interval where the ends are unknown
    assert [text.get_text() for text in first.get_xticklabels()] == [
        "Present\nPast",
        "Singular\nPlural",
    ]
    assert [text.get_text() for text in second.get_xticklabels()] == [
        "Present-Past,\nkept\nat chance",  # of one skill, either form is named
        "Present-Past,\nforgotten\nat chance",
    ]
