"""The HTML of values in a notebook: small, without scripts or anything loaded from outside.

Every text is escaped. Colours are translucent, so that they work on light and dark pages.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from math import floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def frame(title: str, *parts: str) -> str:
    """A title above parts, which must already be escaped HTML.

    >>> frame("a < b")[-36:]
    '<strong>a &lt; b</strong></p></div>\\n'
    """
    inner = "".join(parts)
    style = f"<style>{STYLE}</style>"
    return f'<div class="headcount">{style}<p><strong>{escape(title)}</strong></p>{inner}</div>\n'


def side_by_side(*parts: str) -> str:
    """Parts side by side, or below each other where there is no room."""
    return f'<div class="side">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def table(header: Sequence[str], rows: Sequence[Sequence[object]], numbers: int = 0) -> str:
    """A table whose last `numbers` columns are aligned as numbers."""
    kinds = [""] * (len(header) - numbers) + [' class="n"'] * numbers

    def line(tag: str, cells: Sequence[object]) -> str:
        pairs = zip(kinds, cells, strict=True)
        inner = "".join(f"<{tag}{kind}>{escape(str(cell))}</{tag}>" for kind, cell in pairs)
        return f"<tr>{inner}</tr>"

    head = line("th", header) if any(header) else ""
    return f"<table>{head}{''.join(line('td', row) for row in rows)}</table>"


def picture(figure: Figure) -> str:
    """A figure as an image inside the HTML, with few colours to keep notebooks small."""
    from PIL import Image

    drawn, file = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=80)
    Image.open(drawn).convert("RGB").quantize(64).save(file, "png", optimize=True)
    source = base64.b64encode(file.getvalue()).decode()
    return f'<p><img alt="figure" src="data:image/png;base64,{source}"></p>'


def decimals(most: float) -> int:
    """The decimal places that show three significant digits of the largest value.

    >>> decimals(0.81), decimals(161.0), decimals(0.0)
    (3, 0, 2)
    """
    return max(0, 2 - floor(log10(most))) if most > 0 else 2
