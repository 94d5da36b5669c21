"""Commands that need no model: `headcount list`, `cache`, `store`, `report`, `across`.

They answer at once, because each imports slow modules only when it needs them.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from headcount.cli.common import Answer, table
from headcount.errors import HeadcountError, counted
from headcount.store import Store
from headcount.store.inventory import Summary
from headcount.system.bundled import clear_cache, list_cache
from headcount.system.paths import cache_dir

SHORT = 12  # characters of an entry in which two rows differ: it may be a hash
MINUTE = "%Y-%m-%d %H:%M"


def known_names(arguments: Namespace) -> Answer:
    """List every registered name with one line about it."""
    from headcount.heads import SHIPPED as LISTS
    from headcount.metrics import METRICS, get_metric
    from headcount.models.bundled import BUNDLED
    from headcount.rankings import RANKINGS
    from headcount.sparse.checkpoint import SHIPPED
    from headcount.studies import STUDIES
    from headcount.tasks import TASKS

    sparse = sorted(f"sparse:{folder.name}" for folder in SHIPPED.iterdir() if folder.is_dir())
    known = {
        "studies": {entry.key: entry.name for entry in STUDIES.values()},
        "models of presets": {
            f"{entry.key} ({name})": ", ".join(preset.models)
            for entry in STUDIES.values()
            for name, preset in entry.presets.items()
            if preset.models
        },
        "models": {
            **dict.fromkeys(BUNDLED, "bundled; any hub id, folder or .gguf file works too"),
            **{name: f"bundled; sparse version of {name.partition(':')[2]}" for name in sparse},
        },
        "tasks": {entry.key: entry.summary or entry.name for entry in TASKS.values()},
        "rankings": {entry.key: entry.summary or entry.name for entry in RANKINGS.values()},
        "lists of heads": {name: _source(path) for name, path in LISTS.items()},
        "metrics": {key: get_metric(key).name for key in METRICS},
    }
    wide = max(len(key) for entries in known.values() for key in entries)
    lines = []
    for kind, entries in known.items():
        lines += ["", kind]
        for key, summary in entries.items():
            lines += _in_columns(f"  {key:{wide}}  ", summary)
    return Answer(known, "\n".join(lines[1:]))


def _source(path: Path) -> str:
    """The model of a list that comes along, where it was published, and its classes."""
    from headcount.heads import HeadScores

    about = HeadScores.load(path).parameters
    return f"{about['model']}: {about['source']}; classes: {', '.join(about['classes'])}"


def _in_columns(first: str, text: str) -> list[str]:
    """A first column and a text; on a terminal, the text is wrapped within its own column."""
    if not sys.stdout.isatty():
        return [first + text]
    width = max(shutil.get_terminal_size().columns, len(first) + 30)
    return textwrap.wrap(first + text, width, subsequent_indent=" " * len(first))


def cache(arguments: Namespace) -> Answer:
    """List the cached models, or remove them."""
    if arguments.action == "clear":
        from headcount.models.bundled import full_name

        freed = clear_cache(arguments.name and full_name(arguments.name))
        return Answer({"freed": freed}, f"Freed {freed / 1e6:.0f} MB.")
    models = list_cache()
    rows = [
        (
            m.name,
            f"{m.bytes / 1e6:.0f} MB",
            f"{datetime.fromtimestamp(m.last_used):{MINUTE}}",
            m.path,
        )
        for m in models
    ]
    text = table(["name", "size", "last used", "folder"], rows)
    nothing = f"Nothing is cached in {cache_dir()}."
    return Answer([model._asdict() for model in models], text if models else nothing)


def store(arguments: Namespace) -> Answer:
    """List, export or clean the store."""
    with Store.open(arguments.store) as opened:
        if arguments.action == "export":
            if not arguments.path:
                raise HeadcountError("Name the file to write: headcount store export values.csv")
            count, path = opened.export(arguments.path), arguments.path
            text = f"Wrote {counted(count, 'measurement')} to {path}"
            return Answer({"measurements": count, "path": path}, text)
        if arguments.action == "clean":
            return _clean(arguments, opened)
        return _list(opened)


def _list(store: Store) -> Answer:
    summary = store.summary()
    header = ["model", "task", "metric", "ablation", "head sets", "examples", "values", "last"]
    names = [_shown(row) for row in summary]
    rows = []
    for row, name in zip(summary, names, strict=True):
        same = [other.context for other, its in zip(summary, names, strict=True) if its == name]
        counts = row.head_sets, row.examples, row.values, f"{row.last_written:{MINUTE}}"
        rows.append((*name, *counts, _difference(row.context, same)))
    if any(row[-1] for row in rows):
        header.append("differs in")
    else:
        rows = [row[:-1] for row in rows]
    text = f"{table(header, rows)}\n\n{store.path}"
    nothing = f"Nothing is stored in {store.path}."
    return Answer([vars(row) for row in summary], text if summary else nothing)


def _shown(row: Summary) -> tuple[str, ...]:
    metric = f"({row.context.get('ranking')})" if row.documents else row.metric
    return row.model, row.task, metric, row.ablation.split(" ")[0]


def _difference(context: Mapping[str, Any], same: Sequence[Mapping[str, Any]]) -> str:
    """The entries in which a context differs from those of equal rows in the table."""
    names = sorted({name for other in same for name in other})
    differing = [name for name in names if any(o.get(name) != context.get(name) for o in same)]
    return " ".join(f"{name}={str(context.get(name))[:SHORT]}" for name in differing)


def _clean(arguments: Namespace, store: Store) -> Answer:
    model, task, everything = arguments.model, arguments.task, arguments.everything
    if not (model or task or everything):
        raise HeadcountError("Say what to clean: --model NAME, --task NAME, or --everything.")
    if everything and (model or task):
        raise HeadcountError("Give either --everything, or --model and --task, not both.")
    count = store.clean(model=model, task=task, everything=everything)
    return Answer({"removed": count}, f"Removed {counted(count, 'measurement')}.")


def report(arguments: Namespace) -> Answer:
    """Find the results in the folders, and write one page about all of them."""
    from headcount.report import write_page

    results = results_below(arguments.folders)
    for folder in results if arguments.again else ():
        from headcount.studies.again import make_again

        make_again(folder)
        print(f"Made again: {folder}", file=sys.stderr, flush=True)
    path = write_page(results, arguments.out)
    text = f"{counted(len(results), 'result')}: {path}"
    return Answer({"page": path, "results": results}, text)


def across(arguments: Namespace) -> Answer:
    """Draw the results in the folders in one figure."""
    from headcount.report.across import write_across

    paths, caption = write_across(results_below(arguments.folders), arguments.out)
    return Answer({"files": paths, "caption": caption}, f"{paths[0]}\n{caption}")


def results_below(folders: Sequence[str]) -> list[Path]:
    """The results in all of these folders, each once."""
    from headcount.report import find_results

    return list(dict.fromkeys(result for folder in folders for result in find_results(folder)))
