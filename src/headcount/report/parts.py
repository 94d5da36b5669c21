"""The parts of a page. Whatever comes from a model, a file or a user is escaped here."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from headcount.report.about import CAPTIONS, VERDICTS, about
from headcount.report.go_on import go_on
from headcount.report.read import Result, models_of

MOST_ROWS = 600  # of a table on the page; its file has them all


def pictures(result: Result) -> str:
    """All figures, as data, each with a caption."""
    parts = []
    for name, (media, data) in result.figures.items():
        source = f"data:{media};base64,{base64.b64encode(data).decode()}"
        words = CAPTIONS.get(name, "" if name == "figure" else name)
        said = about(result.study).question if name == "figure" else words
        caption = f"{escape(words)} " if words else ""
        parts.append(
            f'<figure><div class="frame" tabindex="0"><img src="{source}" '
            f'alt="{escape(f"{result.title}: {said}")}"></div>'
            f"<figcaption>{caption}<span>{escape(_file(result, name))}</span></figcaption></figure>"
        )
    return "\n".join(parts)


def verdict(word: str, count: int | None = None) -> str:
    """A verdict as a word with a sign, and how many there are."""
    known = word if word in VERDICTS else "undecided"
    number = "" if count is None else f"{count} "
    return (
        f'<span class="verdict {known}"><span aria-hidden="true">{VERDICTS[known]}</span> '
        f"{number}{escape(word)}</span>"
    )


def tally(result: Result) -> str:
    """How many claims have each verdict."""
    counts = Counter(str(claim.get("verdict")) for claim in result.claims)
    words = [verdict(word, counts[word]) for word in VERDICTS if counts[word]]
    return " ".join(words) or "No claims were judged."


def claims(result: Result) -> str:
    """The claims beside what was published, with intervals and verdicts."""
    if not result.claims:
        return ""
    rows = []
    for claim in result.claims:
        low, high = (_short(claim.get(end)) for end in ("low", "high"))
        interval = f"{low} to {high}" if low and high else "unknown"
        measured = "" if claim.get("measured") is None else str(claim["measured"])
        rows.append(
            f'<tr><td data-label="claim">{escape(str(claim["claim"]))}</td>'
            f'<td data-label="published">{escape(str(claim.get("published") or "–"))}</td>'
            f'<td class="number" data-label="measured" data-v="{escape(measured)}">'
            f"{_short(measured) or '–'}</td>"
            f'<td class="number" data-label="95 % interval">{interval}</td>'
            f'<td data-label="verdict">{verdict(str(claim.get("verdict")))}</td></tr>'
        )
    header = "".join(
        f'<th scope="col"{kind}>{name}</th>'
        for name, kind in (
            ("Claim", ""),
            ("Published", ""),
            ("Measured", ' class="number"'),
            ("95 % interval", ' class="number"'),
            ("Verdict", ""),
        )
    )
    return (
        f'<div class="wide"><table class="data claims"><thead><tr>{header}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def notes(result: Result) -> str:
    """What a reader must know."""
    said = [*result.run.get("notes", ()), *result.run.get("left_out", ())]
    items = "".join(f"<li>{escape(str(note))}</li>" for note in said)
    return f'<ul class="notes">{items}</ul>' if items else ""


def table(rows: Sequence[Mapping[str, Any]], file: str = "") -> str:
    """A table whose columns the page can sort and copy."""
    if not rows:
        return "<p>Nothing.</p>"
    shown = rows[:MOST_ROWS]
    numeric = [
        name
        for name in rows[0]
        if all(_number(row.get(name)) is not None or not row.get(name) for row in shown)
    ]
    header = "".join(
        f'<th scope="col"{_kind(name in numeric)}>{escape(str(name))}</th>' for name in rows[0]
    )
    body = "".join(
        "<tr>" + "".join(_cell(row.get(name), name in numeric) for name in rows[0]) + "</tr>"
        for row in shown
    )
    more = ""
    if len(rows) > len(shown):
        more = f"<p>{len(rows) - len(shown)} more rows are in {escape(file)}.</p>"
    return (
        f'<div class="wide"><table class="data"><thead><tr>{header}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}"
    )


def further_tables(result: Result) -> str:
    """Every other table, and the points of all curves, folded away."""
    named = [*result.tables.items(), ("All points", result.rows)]
    files = {**result.run.get("tables", {}), "All points": "curves.csv"}
    parts = []
    for title, rows in named:
        if rows:
            file = _file(result, files.get(title, f"{title.lower().replace(' ', '-')}.csv"), "")
            parts.append(
                f"<details><summary>{escape(title)} <span>{len(rows)} "
                f"row{'s' * (len(rows) != 1)} · {escape(file)}</span></summary>"
                f"{table(rows, file)}</details>"
            )
    return "\n".join(parts)


def facts(result: Result) -> str:
    """The models, in one line."""
    words = []
    for name, its in models_of(result.run).items():
        heads = its.get("heads")
        size = f", {sum(heads)} heads in {len(heads)} layers" if isinstance(heads, list) else ""
        words.append(f"<strong>{escape(name)}</strong>{size}")
    return " · ".join(words)


def settings(result: Result) -> str:
    """Every setting, fingerprint and version, in one table."""
    left = ("notes", "title", "figures", "tables", "command", "study", "asked", "left_out")
    flat = [
        (k, v) for key, value in result.run.items() if key not in left for k, v in _flat(key, value)
    ]
    rows = [{"name": name, "value": value} for name, value in flat]
    return (
        f"<details><summary>Every setting, version and fingerprint <span>{len(rows)} entries · "
        f"{escape(_file(result, 'run.json', ''))}</span></summary>{table(rows)}</details>"
    )


def commands(result: Result, *, brief: bool = False) -> str:
    """Commands to go on with, each with what it is for; the `brief` ones are the study's own."""
    items = "".join(
        f'<li><p>{escape(why)}</p><pre class="command"><code>{_words(command)}</code></pre></li>'
        for why, command in go_on(result, brief=brief)
    )
    return f'<ol class="commands">{items}</ol>' if items else ""


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(f"{name} · {key}", item)
    elif isinstance(value, list):
        same = len(set(map(str, value))) == 1 and len(value) > 3
        text = f"{value[0]} × {len(value)}" if same else ", ".join(map(str, value))
        yield name, text or "none"
    else:
        yield name, "none" if value in (None, "", {}) else str(value)


def _words(command: str) -> str:
    """Each word a whole, so that lines do not break within an option."""
    return " ".join(f"<span>{escape(word)}</span>" for word in command.split(" "))


def _file(result: Result, name: str, ending: str = ".png") -> str:
    folder = "" if result.folder == "." else f"{result.folder}/"
    return f"{folder}{name}{ending}"


def _kind(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


def _cell(value: Any, numeric: bool) -> str:
    text = "" if value is None else str(value)
    shown = _short(text) if numeric else text
    exact = f' data-v="{escape(text)}"' if shown != text else ""
    return f"<td{_kind(numeric)}{exact}>{escape(shown)}</td>"


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _short(value: Any) -> str:
    """A number as it is read: whole ones whole, others to three places, small ones to two digits.

    >>> [_short(one) for one in ("12", "0.123456", "0.00012", None, "nan", 2.0)]
    ['12', '0.123', '0.00012', '', '', '2.000']
    >>> _short(-0.5)
    '−0.500'
    """
    number = _number(value)
    if number is None or not math.isfinite(number):
        return ""
    if isinstance(value, int) or str(value).lstrip("-").isdecimal():
        return str(value).replace("-", "−")
    small = number and abs(number) < 0.01
    return (f"{number:.2g}" if small else f"{number:.3f}").replace("-", "−")
