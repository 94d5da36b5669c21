"""One self-contained web page about one result or several.

The page loads nothing from outside: its content security policy allows only its own style and
script, by their hashes, and pictures inside the page. The template escapes every text that comes
from a model, a file or a user. Without JavaScript, everything but the map of heads can be read.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from headcount.errors import HeadcountError, counted
from headcount.figures.style import NARROW
from headcount.models.weights import weights_in_words
from headcount.report.head_rows import head_data
from headcount.report.page_texts import CAPTIONS, QUESTIONS, SOURCES, VERDICTS, next_commands
from headcount.report.read import Result, number, read_result
from headcount.report.script import joined
from headcount.system.files import write_file

MOST_ROWS = 600  # rows of a table on the page; the file has all rows
OWN = ("heads", "head-view", "head-data", "go-on", "settings")  # ids that results must not get
# Entries of run.json that the table of settings leaves out, because the page shows them elsewhere.
ELSEWHERE = ("notes", "title", "figures", "tables", "files", "command", "study", "asked")


def write_page(
    folders: Sequence[str | Path],
    path: str | Path,
    *,
    failures: Mapping[str, str] | None = None,
) -> Path:
    """Write the page about the results in `folders`; `failures` has reasons by name of a study."""
    results = [read_result(folder, seen_from=Path(path).parent) for folder in folders]
    try:
        return write_file(path, page(results, failures))
    except RecursionError:
        named = ", ".join(map(str, folders))
        raise HeadcountError(f"The settings in {named} are nested too deeply for a page.") from None


def page(results: Sequence[Result], failures: Mapping[str, str] | None = None) -> str:
    """The page as HTML."""
    room = "headcount.report"
    style = (files(room) / "page.css").read_text(encoding="utf-8")
    script = joined((room, "heads.js"), (room, "page.js"))
    names = _ids(results)
    models = dict.fromkeys(name for result in results for name in result.run["model"])
    made_by = {str(result.run["versions"].get("headcount", "?")) for result in results}
    policy = (
        f"default-src 'none'; img-src data:; style-src '{policy_hash(style)}'; "
        f"script-src '{policy_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    return (environment().get_template("page.html")).render(
        style=Markup(style),
        script=Markup(script),
        policy=Markup(policy),
        results=list(zip(names, results, strict=True)),
        failures=failures or {},
        single=len(results) == 1 and not failures,
        models=", ".join(models) or "no model",
        heads=head_data(results, names),
        made_by=", ".join(sorted(made_by)),
    )


@cache
def environment() -> Environment:
    """The templates, with all their filters; they escape everything."""
    how: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined}
    how |= {"trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader("headcount.report"), **how)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.filters |= {
        "short": short,
        "columns": _columns,
        "settings": _settings,
        "line": _line,
        "base64": lambda data: base64.b64encode(data).decode(),
        "weights": weights_in_words,
        "is_narrow": lambda name, figures: (
            name.endswith(NARROW) and name.removesuffix(NARROW) in figures
        ),
        "tally": lambda claims: Counter(str(claim.get("verdict")) for claim in claims),
    }
    environment.globals |= {
        "question": lambda study: QUESTIONS.get(
            study, study
        ),  # a user's study has no question, only a name
        "sources": SOURCES,
        "counted": counted,
        "next_commands": next_commands,
        "captions": CAPTIONS,
        "verdicts": VERDICTS,
        "most_rows": MOST_ROWS,
    }
    return environment


def _ids(results: Sequence[Result]) -> list[str]:
    """The id of each result on the page: the name of its study, with a number if it repeats."""
    seen = Counter(OWN)
    names = []
    for result in results:
        key = "".join(char if char.isalnum() or char in "-_" else "-" for char in result.study)
        seen[key] += 1
        names.append(key if seen[key] == 1 else f"{key}-{seen[key]}")
    return names


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """The names of a table's columns, and whether each column holds only numbers."""
    return [
        (name, all(number(row.get(name)) is not None or not row.get(name) for row in rows))
        for name in rows[0]
    ]


def _settings(run: Mapping[str, Any]) -> list[dict[str, str]]:
    """Every setting, version and fingerprint, as a table."""
    shown = [_flat(value, key) for key, value in run.items() if key not in ELSEWHERE]
    return [{"name": name, "value": text} for pairs in shown for name, text in pairs]


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Flatten nested settings into pairs of a full name ("model · heads") and a text."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{name} · {key}")
    elif isinstance(value, list):
        same = len(set(map(str, value))) == 1 and len(value) > 3
        text = f"{value[0]} × {len(value)}" if same else ", ".join(map(str, value))
        yield name, text or "none"
    else:
        yield name, "none" if value in (None, "", {}) else str(value)


def _line(text: Any) -> str:
    """A text on one line of Markdown, and in one cell of a table there."""
    return " ".join(str("" if text is None else text).split()).replace("|", "\\|")


def short(value: Any) -> str:
    """A number for readers: integers unchanged, others with three decimals or two digits.

    >>> [short(text) for text in ("12", "0.123456", "0.00012", None, "nan", 2.0)]
    ['12', '0.123', '0.00012', '', '', '2.000']
    >>> short(-0.5)
    '−0.500'
    """
    parsed = number(value)
    if parsed is None or not math.isfinite(parsed):
        return ""
    if isinstance(value, int) or str(value).lstrip("-").isdecimal():
        return str(value).replace("-", "−")
    return (f"{parsed:.2g}" if 0 < abs(parsed) < 0.01 else f"{parsed:.3f}").replace("-", "−")


def policy_hash(text: str) -> str:
    """The hash by which a content security policy allows a style or script of the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
