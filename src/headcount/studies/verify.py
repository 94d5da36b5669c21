"""Verify a result: recompute its intervals and verdicts from its own values, and compare.

This shows that a folder fits together, not where its values come from: who changes values, tables
and claims alike is not found out. Notes of the estimates, the columns of tables and the entries of
claims must be there too; notes of the run, scores of heads and pictures are not recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError, counted, wrong
from headcount.report.benchmark_study import estimate_benchmarks
from headcount.report.contest_study import estimate_contest
from headcount.report.curve_study import estimate_curve
from headcount.report.estimates import Estimates
from headcount.report.read import Result, number, read_result
from headcount.studies import STUDIES, study_kind
from headcount.value_table import VALUES, MisfitError, ValueTable

ALLOWED = 1e-6  # of the size of a number: sums may be added up in another order

# Results that are no studies.
OURS = {
    "curve": estimate_curve,
    "contest": estimate_contest,
    "lm-eval": estimate_benchmarks,
}
SAME = ("threshold", "per", "ranking", "sweep")  # settings that are facts of estimates too
# The settings that say how many draws a series has.
DRAWS = {"random": "seeds", "matched": "seeds", "reranked": "rerankings", "anywhere": "anywhere"}


@dataclass(frozen=True)
class Verified:
    """What was recomputed, what differs, and what does not follow from the values.

    `left_out` are tables that are not made from the values, `unchecked` settings that say how they
    were measured: only a new run could tell whether these are true.
    """

    folder: str
    numbers: int
    claims: int
    differences: tuple[str, ...]
    left_out: tuple[str, ...]
    unchecked: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = f"{counted(self.numbers, 'number')} and {counted(self.claims, 'claim')}"
        lines = [f"{self.folder}: {what} recomputed from the values of single examples"]
        if self.differences:
            many = counted(len(self.differences), "difference")
            lines = [f"{self.folder} does not fit together, {many}; the first:"]
            lines.append(f"  {self.differences[0]}")
        else:
            lines[0] += "; all agree."
        if self.left_out:
            lines.append(f"Not made from these values: {', '.join(self.left_out)}.")
        if self.unchecked:
            lines.append(f"Settings that the values cannot confirm: {', '.join(self.unchecked)}.")
        return "\n".join(lines)


def verify(folder: str | Path) -> Verified:
    """Recompute every interval and verdict of a result folder, and compare them with its files."""
    result = read_result(folder)
    facts = _facts(result)
    checks = _Checks()
    try:
        values = ValueTable.read(Path(folder))
        checks.differences += unlike_the_settings(result.run, values)
        found = _estimate(result, values, facts)
    except MisfitError as error:
        return Verified(str(folder), 0, 0, (*checks.differences, str(error)), ())
    checks.table("curves.csv", found.rows, result.rows)
    for title, rows in found.tables.items():
        checks.table(
            str(result.run["tables"].get(title, title)), rows, result.tables.get(title, ())
        )
    checks.claims(found, result)
    left_out = [name for title, name in result.run["tables"].items() if title not in found.tables]
    told = tuple(checks.differences)
    known = _checked(result.run, values)
    unchecked = tuple(name for name in result.run["settings"] if name not in known)
    counts = checks.numbers, len(found.claims)
    return Verified(str(folder), *counts, told, tuple(left_out), unchecked)


def estimates_of(result: Result, folder: str | Path) -> tuple[ValueTable, Estimates]:
    """The values of a result folder, and the estimates that follow from them."""
    values = ValueTable.read(Path(folder))
    return values, _estimate(result, values, _facts(result))


def _facts(result: Result) -> Mapping[str, Any]:
    facts = result.run.get("facts")
    if not isinstance(facts, dict) or not facts:
        raise HeadcountError(
            f"{result.folder} was written before results kept what their estimates are made from: "
            "run its command again."
        )
    return facts


def unlike_the_settings(run: Mapping[str, Any], values: ValueTable) -> list[str]:
    """What the settings in run.json say about the values, and the values do not."""
    settings, told = run["settings"], []
    if not {"model", "task", "count"} <= {*values.columns}:
        raise MisfitError(f"{VALUES} lacks one of the columns model, task and count.")
    tasks = settings.get(_tasks(values))
    for column, names in (("model", list(run["model"])), ("task", tasks)):
        measured = values.names(column)
        if isinstance(names, list) and set(map(str, names)) != set(measured):
            told.append(
                f"run.json has the {column}s {_listed(names)}, and {VALUES} {_listed(measured)}."
            )
    told += _other_counts(run, values.names("count"))
    told += [
        f"run.json says {name}={settings[name]} in its settings, and {run['facts'][name]} in the "
        "facts that estimates are made from."
        for name in SAME
        if name in settings and settings[name] != run["facts"].get(name, settings[name])
    ]
    for facts in values.facts():
        series = str(facts.get("series", facts.get("order")))
        wanted = settings.get(DRAWS.get(series, ""))
        draws = len(values.get(**facts))
        if isinstance(wanted, int) and facts["count"] and draws != wanted:
            where = ", ".join(map(str, facts.values()))
            told.append(f"run.json says {wanted} draws, and {VALUES} has {draws} of {where}.")
    return told


def _checked(run: Mapping[str, Any], values: ValueTable) -> set[str]:
    """The settings that are compared with the values, or with the facts that estimates use."""
    settings = run["settings"]
    lists = {n for n in (_tasks(values), "counts") if isinstance(settings.get(n), list)}
    draws = {name for name in DRAWS.values() if isinstance(settings.get(name), int)}
    return lists | draws | {n for n in SAME if n in settings and n in run["facts"]}


def _tasks(values: ValueTable) -> str:
    """The setting that names the tasks of the values, where it does so by their keys."""
    return "tasks" if "order" in values.columns else "functions"


def _other_counts(run: Mapping[str, Any], measured: Sequence[object]) -> list[str]:
    """Counts that only run.json or only the values have.

    None and all heads (or edges) may be measured without being asked for, and a model may have
    fewer heads than were asked for.
    """
    asked = run["settings"].get("counts")
    if not isinstance(asked, list):
        return []
    ends = {0, *(sum(facts.get("heads", [])) for facts in run["model"].values())}
    numbers = {count for count in asked if isinstance(count, int)}
    most = max((count for count in measured if isinstance(count, int)), default=0)
    if run["facts"].get("unit") == "edge":  # how many edges there are depends on the prompts
        ends.add(most)
    missing = {count for count in numbers if count <= most} - {*measured}
    if missing or {*measured} - numbers - ends:
        return [f"run.json has the counts {_listed(asked)}, and {VALUES} {_listed(measured)}."]
    return []


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))


def _estimate(result: Result, values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    known = result.study in STUDIES
    estimate = study_kind(result.study).estimate if known else None
    if result.study in OURS:
        estimate = OURS[result.study]
    if estimate is None:
        raise HeadcountError(
            f'The study "{result.study}" has no estimates that can be made again: verify knows '
            f"{', '.join(OURS)} and {', '.join(name for name in STUDIES)}."
        )
    try:
        return estimate(values, facts)
    except HeadcountError as error:  # a value that is no number, say
        raise MisfitError(f"No estimates can be made from {VALUES}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise MisfitError(
            "run.json names facts that the values do not have, or the other way round: "
            f"{wrong(error)}."
        ) from error


class _Checks:
    """Compares what was recomputed with what was written, and notes what differs."""

    def __init__(self) -> None:
        self.differences: list[str] = []
        self.numbers = 0

    def table(
        self, file: str, rows: Sequence[Mapping[str, Any]], written: Sequence[Mapping[str, str]]
    ) -> None:
        if len(rows) != len(written):
            self.differences.append(f"{file} has {len(written)} rows, and the values {len(rows)}.")
        if rows and written:
            self._names(file, rows[0], written[0])
        for place, (row, other) in enumerate(zip(rows, written, strict=False), start=1):
            for name, cell in row.items():
                self._compare(f"{file}, row {place}, {name}", cell, other.get(name))

    def claims(self, found: Estimates, result: Result) -> None:
        if len(found.claims) != len(result.claims):
            self.differences.append(
                f"claims.json has {len(result.claims)} claims, and the values {len(found.claims)}."
            )
        for place, (claim, other) in enumerate(
            zip(found.claims, result.claims, strict=False), start=1
        ):
            self._names(f"claims.json, claim {place}", asdict(claim), other)
            for name, cell in asdict(claim).items():
                self._compare(f"claims.json, claim {place}, {name}", cell, other.get(name))
        told = result.run["notes"]
        self.differences += [
            f"run.json lacks the note: {note}" for note in found.notes if note not in told
        ]

    def _names(self, where: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
        if more := [name for name in theirs if name not in ours]:
            self.differences.append(f"{where}: {_listed(more)} is not made from the values.")

    def _compare(self, where: str, ours: Any, theirs: Any) -> None:
        if isinstance(ours, float | int) and not isinstance(ours, bool):
            self.numbers += 1
            if not _same(float(ours), theirs):
                self.differences.append(f"{where}: {theirs} there, {ours} from the values.")
        elif ("" if ours is None else str(ours)) != ("" if theirs is None else str(theirs)):
            self.differences.append(f"{where}: {theirs!r} there, {ours!r} from the values.")


def _same(ours: float, theirs: Any) -> bool:
    if math.isnan(ours):
        return theirs in (None, "") or math.isnan(number(theirs) or 0.0)
    other = number(theirs)
    return other is not None and math.isclose(ours, other, rel_tol=ALLOWED, abs_tol=1e-9)
