"""How values show themselves in a notebook: small HTML that loads nothing and runs nothing.

Every text is escaped. Colours are laid over the page's own, so that light and dark both work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10

STYLE = (
    ".headcount{font-size:.9em;line-height:1.4}"
    ".headcount table{border-collapse:collapse;margin:.4em 0}"
    ".headcount th,.headcount td{padding:.15em .6em;text-align:left;vertical-align:top;"
    "border-bottom:1px solid rgba(128,128,128,.3)}"
    ".headcount td.n,.headcount th.n{text-align:right;font-variant-numeric:tabular-nums;"
    "white-space:nowrap}"
    ".headcount .side{display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start}"
    ".headcount img{max-width:100%}"
)
UP, DOWN = "#0072B2", "#D55E00"  # of Okabe and Ito, as in the figures
LINES = {"top": UP, "bottom": "#009E73", "random": "currentColor", "matched": DOWN}
HOVERED = 2048  # heads up to which each cell of a map says its name: some 90 bytes a head


def frame(title: str, *parts: str) -> str:
    """A title over parts that are HTML already.

    >>> frame("a < b")[-36:]
    '<strong>a &lt; b</strong></p></div>\\n'
    """
    inner = "".join(parts)
    style = f"<style>{STYLE}</style>"
    return f'<div class="headcount">{style}<p><strong>{escape(title)}</strong></p>{inner}</div>\n'


def side_by_side(*parts: str) -> str:
    """Parts in a row, or below each other where there is no room."""
    return f'<div class="side">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def table(header: Sequence[str], rows: Sequence[Sequence[object]], numbers: int = 0) -> str:
    """A table; its last `numbers` columns are set as numbers."""
    kinds = [""] * (len(header) - numbers) + [' class="n"'] * numbers
    head = "".join(f"<th{k}>{escape(h)}</th>" for k, h in zip(kinds, header, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{k}>{escape(str(c))}</td>" for k, c in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table>{f'<tr>{head}</tr>' if any(header) else ''}{body}</table>"


def decimals(most: float) -> int:
    """Digits behind the point that show three figures of the largest value.

    >>> decimals(0.81), decimals(161.0), decimals(0.0)
    (3, 0, 2)
    """
    return max(0, 2 - floor(log10(most))) if most > 0 else 2


def head_map(layers: Sequence[Sequence[float]]) -> str:
    """Layer × head, one cell each: blue above zero, orange below, stronger the farther from it."""
    wide, high = max(map(len, layers)), len(layers)
    cell = 12 if high <= 40 and wide <= 40 else 6
    most = max((abs(value) for row in layers for value in row), default=0) or 1.0
    named = sum(map(len, layers)) <= HOVERED
    cells = []
    for y, row in enumerate(layers):
        for x, value in enumerate(row):
            name = f"<title>{y}.{x}: {value:+.3g}</title>" if named else ""
            colour, depth = (UP if value >= 0 else DOWN), abs(value) / most
            cells.append(
                f'<path d="M{x} {y}h.94v.94h-.94z" fill="{colour}" fill-opacity="{depth:.2f}">'
                f"{name}</path>"
            )
    edge = f'<path d="M0 0h{wide}v{high}H0z" fill="none" stroke="currentColor" stroke-width=".05"/>'
    labels = _labels(range(high), cell) + _labels(range(wide), cell, across=True)
    left, top = 40, 30
    return (
        f'<svg role="img" aria-label="map of scores, layer by head" width="{wide * cell + left}" '
        f'height="{high * cell + top}" font-size="10" fill="currentColor">'
        f'<text x="{left}" y="10">head</text><text x="0" y="{top - 3}">layer</text>'
        f'<g transform="translate({left} {top})">{labels}'
        f'<g transform="scale({cell})">{edge}{"".join(cells)}</g></g></svg>'
    )


def _labels(places: range, cell: int, *, across: bool = False) -> str:
    """Numbers along one side of a map, as many as there is room for."""
    step = 1
    while step * cell < (20 if across else 11):
        step = step * 5 if step == 1 else step * 2
    made = []
    for place in places[::step]:
        middle = (place + 0.5) * cell
        x, y = (middle, -4.0) if across else (-5.0, middle + 3.5)
        anchor = "middle" if across else "end"
        made.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{place}</text>')
    return "".join(made)


Line = Sequence[tuple[int, float, float, float]]  # count, value, low, high


def line_chart(
    lines: Mapping[str, Line], names: Mapping[str, str], *, bottom: float, top: float
) -> str:
    """Values against counts, one line for each series, with intervals as bands."""
    counts = sorted({count for line in lines.values() for count, *_ in line})
    wide, high, left = 320, 130, 44
    span = (top - bottom) or 1.0

    def place(count: int, value: float) -> str:
        x = left + (wide - left - 8) * counts.index(count) / max(len(counts) - 1, 1)
        return f"{x:.0f},{high - (high - 12) * (value - bottom) / span:.1f}"

    parts = []
    for number, (name, line) in enumerate(lines.items()):
        colour = LINES.get(name, "currentColor")
        dash = "" if name in ("top", "bottom") else ' stroke-dasharray="5 3"'
        known = [point for point in line if point[2] == point[2] and point[3] == point[3]]
        band = [place(n, low) for n, _, low, _ in known]
        band += [place(n, upper) for n, _, _, upper in reversed(known)]
        shape = " ".join(band)
        parts.append(f'<polygon points="{shape}" fill="{colour}" fill-opacity=".15"/>')
        path = " ".join(place(n, value) for n, value, *_ in line)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        row = 16 + 18 * number
        parts.append(
            f'<path d="M{wide + 16} {row}h24" stroke="{colour}" stroke-width="2"{dash}/>'
            f'<text x="{wide + 46}" y="{row + 4}">{escape(names[name])}</text>'
        )
    for value in (bottom, top):
        y = place(counts[0], value).split(",")[1]
        parts.append(f'<path d="M{left} {y}H{wide}" stroke="currentColor" stroke-opacity=".25"/>')
        height = float(y) + 4
        parts.append(f'<text x="{left - 6}" y="{height:g}" text-anchor="end">{value:.3g}</text>')
    for count in counts:
        x = place(count, bottom).split(",")[0]
        parts.append(f'<text x="{x}" y="{high + 14}" text-anchor="middle">{count}</text>')
    return (
        f'<svg role="img" aria-label="values against numbers of heads" width="{wide + 200}" '
        f'height="{high + 18}" font-size="10" fill="currentColor">{"".join(parts)}</svg>'
    )
