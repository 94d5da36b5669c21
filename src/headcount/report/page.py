"""One self-contained web page about one result or several.

Nothing is loaded from outside: the policy allows the page's own style and script, by their hashes,
and pictures that are in the page itself. Without JavaScript everything but the map can be read.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from headcount.report import parts
from headcount.report.about import about
from headcount.report.head_data import head_data
from headcount.report.read import Result, models_of, read_result


def write_page(
    folders: Sequence[str | Path],
    path: str | Path,
    *,
    failures: Mapping[str, str] | None = None,
) -> Path:
    """Write the page about the results in `folders`; `failures` says what could not be finished."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    results = [read_result(folder, seen_from=path.parent) for folder in folders]
    # Written beside and moved, so that a page that is open in a browser is never half of one.
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(page(results, failures or {}), encoding="utf-8")
    beside.replace(path)
    return path


def page(results: Sequence[Result], failures: Mapping[str, str] | None = None) -> str:
    """The page as text."""
    style, script = (_file(name) for name in ("page.css", "page.js"))
    names = _names(results)
    single = len(results) == 1 and not failures
    title = results[0].title if single else f"headcount · {_models(results)}"
    heads = head_data(results, names)
    body = [
        _header(results, names, title, failures or {}, bool(heads)),
        "<main>",
        *(_study(result, name, single) for result, name in zip(results, names, strict=True)),
        _heads(heads),
        _go_on(results, names, single),
        _settings(results, names, single),
        "</main>",
        _footer(results),
    ]
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + f"\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _header(
    results: Sequence[Result],
    names: Sequence[str],
    title: str,
    failures: Mapping[str, str],
    map_too: bool,
) -> str:
    single = len(results) == 1 and not failures
    links = [
        f'<a href="#{escape(name)}">{"Findings" if single else escape(name)}</a>' for name in names
    ]
    further = [("heads", "Heads")] if map_too else []
    further += [("go-on", "Go on"), ("settings", "Settings")]
    links += [f'<a href="#{key}">{words}</a>' for key, words in further]
    nav = f'<nav aria-label="On this page">{" ".join(links)}</nav>'
    if single:
        result = results[0]
        known = about(result.study)
        source = f'<p class="source">{escape(known.source)}</p>' if known.source else ""
        return (
            f'<header><p class="eyebrow">headcount · {escape(result.study)}</p>'
            f"<h1>{escape(known.question)}</h1><p>{parts.facts(result)}</p>{source}"
            f'<p class="tally">{parts.tally(result)}</p>{nav}</header>'
        )
    cards = "".join(
        f'<li><a href="#{escape(name)}"><span class="eyebrow">{escape(name)}</span>'
        f"<strong>{escape(about(result.study).question)}</strong></a>"
        f'<p class="tally">{parts.tally(result)}</p></li>'
        for result, name in zip(results, names, strict=True)
    )
    cards += "".join(
        f'<li class="failed"><span class="eyebrow">{escape(name)}</span>'
        f"<strong>Not finished</strong><p>{escape(why)}</p></li>"
        for name, why in failures.items()
    )
    return (
        f'<header><p class="eyebrow">headcount</p><h1>{escape(_counted(results))} on '
        f'{escape(_models(results))}</h1>{nav}<ol class="cards">{cards}</ol></header>'
    )


def _study(result: Result, name: str, single: bool) -> str:
    known = about(result.study)
    head = ""
    if not single:
        source = f'<p class="source">{escape(known.source)}</p>' if known.source else ""
        head = (
            f'<p class="eyebrow">{escape(name)}</p><h2>{escape(known.question)}</h2>'
            f"<p>{parts.facts(result)}</p>{source}"
        )
    claims, notes, tables = (
        part(result) for part in (parts.claims, parts.notes, parts.further_tables)
    )
    return "\n".join(
        [
            f'<section id="{escape(name)}" class="study">{head}',
            parts.pictures(result),
            f"<h3>Claims</h3>{claims}" if claims else "",
            f"<h3>To know when reading this</h3>{notes}" if notes else "",
            f"<h3>Tables</h3>{tables}" if tables else "",
            "</section>",
        ]
    )


def _heads(models: Sequence[Mapping[str, object]]) -> str:
    """The place of the map: the script fills it from the data beside it."""
    if not models:
        return ""
    # No text of the data can end the script element, or begin a comment in it.
    data = json.dumps(models, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<section id="heads"><h2>Heads</h2><p>Every head by layer and place, coloured by a score. '
        "Point at one, or move with the arrow keys, to read all that is known about it.</p>"
        "<noscript><p>The map needs JavaScript; its numbers are in heads.csv, beside the figures."
        f'</p></noscript><div id="head-view"></div>'
        f'<script type="application/json" id="head-data">{data}</script></section>'
    )


def _go_on(results: Sequence[Result], names: Sequence[str], single: bool) -> str:
    blocks = [
        ("" if single else f"<h3>{escape(name)}</h3>") + said
        for result, name in zip(results, names, strict=True)
        if (said := parts.commands(result, brief=result is not results[0]))
    ]
    return f'<section id="go-on"><h2>Go on</h2>{"".join(blocks)}</section>' if blocks else ""


def _settings(results: Sequence[Result], names: Sequence[str], single: bool) -> str:
    blocks = [
        ("" if single else f"<h3>{escape(name)}</h3>") + parts.settings(result)
        for result, name in zip(results, names, strict=True)
    ]
    return f'<section id="settings"><h2>Settings and versions</h2>{"".join(blocks)}</section>'


def _footer(results: Sequence[Result]) -> str:
    made = sorted({str(r.run.get("versions", {}).get("headcount", "?")) for r in results})
    return (
        f"<footer><p>Made by headcount {escape(', '.join(made))}. Intervals are 95 %; a claim is "
        "supported, refuted or undecided by its interval. This page loads nothing from "
        "outside.</p></footer>"
    )


def _names(results: Sequence[Result]) -> list[str]:
    """The names of the studies; those of one name are told apart by a number."""
    seen = Counter(["heads", "head-view", "head-data", "go-on", "settings"])  # the page's own
    names = []
    for result in results:
        key = "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in result.study)
        seen[key] += 1
        names.append(key if seen[key] == 1 else f"{key}-{seen[key]}")
    return names


def _models(results: Sequence[Result]) -> str:
    found = list(dict.fromkeys(name for result in results for name in models_of(result.run)))
    return ", ".join(found) or "no model"


def _counted(results: Sequence[Result]) -> str:
    words = ("No study", "One study", "Two studies", "Three studies", "Four studies")
    return words[len(results)] if len(results) < len(words) else f"{len(results)} results"


def _file(name: str) -> str:
    return (files("headcount.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
