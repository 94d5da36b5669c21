"""A study as one self-contained web page: nothing is loaded from outside, everything is escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from headcount.json_text import to_json

if TYPE_CHECKING:
    from headcount.studies.study import Study

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd; text-align: left;
  vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.supported { color: #00664a; } .refuted { color: #b02a00; } .undecided { color: #666; }
pre { background: #f6f6f6; padding: 1rem; overflow-x: auto; font-size: 0.85rem; }
details > summary { cursor: pointer; }
"""
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def report_html(study: Study, pictures: Mapping[str, bytes], run: Mapping[str, Any]) -> str:
    """The page; `pictures` are PNG files by name, `run` is what run.json holds."""
    parts = [f"<h1>{escape(study.title)}</h1>"]
    if run.get("command"):
        parts.append(f"<pre>{escape(str(run['command']))}</pre>")
    for name, data in pictures.items():
        source = base64.b64encode(data).decode()
        parts.append(f'<p><img alt="{escape(name)}" src="data:image/png;base64,{source}"></p>')
    if study.claims:
        parts.append("<h2>Claims</h2>")
        parts.append(_claims(study))
    if study.notes:
        parts.append("<h2>Notes</h2><ul>")
        parts += [f"<li>{escape(note)}</li>" for note in study.notes]
        parts.append("</ul>")
    for title, rows in study.tables.items():
        parts += [f"<h2>{escape(title)}</h2>", _table(rows)]
    parts.append("<h2>All points</h2>")
    parts.append(
        f"<details><summary>{len(study.rows)} rows</summary>{_table(study.rows)}</details>"
    )
    parts.append("<h2>Settings and versions</h2>")
    parts.append(f"<details><summary>run.json</summary><pre>{escape(to_json(run))}</pre></details>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(study.title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>"
    )


def _claims(study: Study) -> str:
    rows = []
    for claim in study.claims:
        interval = f"{claim.measured:.2f} [{claim.low:.2f}, {claim.high:.2f}]"
        rows.append(
            f"<tr><td>{escape(claim.claim)}</td><td>{escape(claim.published or '')}</td>"
            f'<td class="number">{escape(interval)}</td>'
            f'<td class="{escape(claim.verdict)}">{escape(claim.verdict)}</td></tr>'
        )
    header = "<tr><th>claim</th><th>published</th><th>measured, 95 %</th><th>verdict</th></tr>"
    return f"<table>{header}{''.join(rows)}</table>"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>nothing</p>"
    header = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(_cell(value) for value in row.values()) + "</tr>" for row in rows
    )
    return f"<table><tr>{header}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="number">{value:.3f}</td>'
    kind = ' class="number"' if isinstance(value, int) else ""
    return f"<td{kind}>{escape(str(value))}</td>"
