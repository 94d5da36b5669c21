"""The finished result of a study or a curve, and the only writer of result folders."""

from __future__ import annotations

import platform
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from headcount import __version__
from headcount.claims import Claim
from headcount.errors import HeadcountError, counted, unknown
from headcount.figures.curves import draw_curve
from headcount.figures.html import frame, picture, table
from headcount.figures.style import Row, figure_of, save_figure, shown
from headcount.report.estimates import Models
from headcount.report.page import write_page
from headcount.system.files import safe_name, write_csv, write_json
from headcount.system.folders import RECORD, replacing_files
from headcount.system.frames import data_frame
from headcount.value_table import ValueTable

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Columns in which the points of one panel are all equal.
PANEL = ("model", "task", "metric", "ranking", "ablation")
DRAWN = ("series", "count", "value", "low", "high", "n")


class Saved(Protocol):
    """An object that writes itself into a file: a ranking, or gates."""

    def save(self, path: str | Path) -> None:
        """Write the object to `path`, and make the folder if needed."""


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study.

    rows      the tidy table: one row for each point of each curve
    claims    what was published, what was measured, and the verdict
    figures   figures by file name; the first is the main figure
    settings  every setting that the numbers depend on
    model     the facts of each model by its name: `Model.facts`
    scores    rankings and gates by file name
    heads     the table of heads, made by `head_rows`
    notes     sentences that a reader must know: what was left out, what differs from the paper
    tables    further tables by title, from which their file names are made
    values    the value of every example, from which points, tables and claims are estimated
    facts     what these estimates need besides the values: names, counts, levels of chance
    captions  what a reader of a figure must know, by file name
    """

    name: str
    title: str
    rows: Sequence[Row]
    claims: Sequence[Claim]
    figures: Mapping[str, Figure]
    settings: Mapping[str, Any]
    model: Models
    scores: Mapping[str, Saved] = field(default_factory=dict)
    heads: Sequence[Row] = ()
    notes: Sequence[str] = ()
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    values: ValueTable | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    captions: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        verdicts = Counter(claim.verdict for claim in self.claims)
        each = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        claims = counted(len(self.claims), "claim") + (f" ({each})" if each else "")
        figures = ", ".join(self.figures) or "none"
        return f"<Study {self.title}: {claims}, {len(self.rows)} points, figures: {figures}>"

    def _repr_html_(self) -> str:
        claims = [
            [c.claim, c.published or "", f"{c.measured:.2f}", _ends(c.low, c.high), c.verdict]
            for c in self.claims
        ]
        header = ["claim", "published", "measured", "95 % interval", "verdict"]
        parts = [table(header, claims)] * bool(claims)
        parts += [picture(figure) for figure in list(self.figures.values())[:1]]
        return frame(self.title, *parts, table([""], [[note] for note in self.notes]))

    def plot(self, ax: Axes | None = None, **where: Any) -> Axes | np.ndarray:
        """Show the study's own figure, or draw one panel of the tidy table.

        Without arguments, the study's own figure is shown, and the array of its axes is returned.
        With `ax`, or with columns and their values in `where`, the points are drawn against their
        counts, one line for each series, into `ax` or into a new figure. These points must be of
        one model, task, metric, ranking and ablation: `study.plot(ax, task="retrieval")`.

        >>> ends = {"low": 0.1, "high": 0.7, "n": 20}
        >>> rows = [
        ...     {"task": task, "series": "top", "count": count, "value": 0.5, **ends}
        ...     for task in ("ioi", "retrieval")
        ...     for count in (0, 8)
        ... ]
        >>> study = Study("mine", "My study", rows, [], {}, {}, {})
        >>> study.plot(task="ioi").get_title()
        'ioi'
        """
        if ax is None and not where:
            if not self.figures:
                raise HeadcountError("This study has no figure: choose points, such as task=NAME.")
            own = shown(next(iter(self.figures.values())))
            return np.array([axes for axes in own.axes if axes.get_visible()], dtype=object)
        rows = self._panel(where)
        named = [str(rows[0][column]) for column in ("task", "model") if column in rows[0]]
        title, ylabel = " · ".join(named) or self.title, str(rows[0].get("metric", "value"))
        drawn = draw_curve(rows, xlabel="count", ylabel=ylabel, title=title, axes=ax)
        if ax is None:
            shown(figure_of(drawn))
        return drawn

    def _panel(self, where: Mapping[str, Any]) -> list[Row]:
        """The points that have the values of `where`, if they belong to one panel."""
        rows = list(self.rows)
        if not rows or not set(DRAWN) <= set(rows[0]):
            raise HeadcountError(f"A panel needs points with the columns {', '.join(DRAWN)}.")
        for column, wanted in where.items():
            if column not in rows[0]:
                raise unknown("column", column, rows[0])
            known = dict.fromkeys(str(row[column]) for row in rows)
            if str(wanted) not in known:
                raise unknown(column, str(wanted), known)
            rows = [row for row in rows if str(row[column]) == str(wanted)]
        columns = {c: list(dict.fromkeys(row[c] for row in rows)) for c in PANEL if c in rows[0]}
        several = {column: values for column, values in columns.items() if len(values) > 1}
        if several:
            listed = " and ".join(f"{c} ({', '.join(map(str, v))})" for c, v in several.items())
            such = ", ".join(f'{column}="{values[0]}"' for column, values in several.items())
            raise HeadcountError(
                f"These points have more than one {listed}: choose one, such as plot(ax, {such})."
            )
        return rows

    def to_frame(self, table: str = "points") -> pandas.DataFrame:
        """A table of the study as a pandas data frame.

        `table` is "points" (the tidy table), "claims", "heads", "values", or a title of `tables`.

        >>> claim = Claim("heads matter", None, 0.5, 0.4, 0.6, "supported")
        >>> study = Study("mine", "My study", [], [claim], {}, {}, {})
        >>> study.to_frame("claims")["verdict"].tolist()
        ['supported']
        """
        known = self._tables
        if table not in known:
            raise unknown("table", table, known)
        return data_frame(known[table])

    @property
    def _tables(self) -> dict[str, Sequence[Row]]:
        claims = [asdict(claim) for claim in self.claims]
        own: dict[str, Sequence[Row]] = {"points": self.rows, "claims": claims, "heads": self.heads}
        return {**self.tables, **own, "values": self.values.rows if self.values else ()}

    def to_hub(self, repo: str, **how: Any) -> str:
        """Upload the study to the Hugging Face hub as a dataset with a card; returns its address.

        `repo` is "name" or "owner/name". A new dataset is private unless `private=False`. Further
        settings: `licence`, one of the hub's short names, and `token`.
        """
        from headcount.report.hub import upload

        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            return upload(folder, repo, **how)

    def log_to(self, tracker: str) -> None:
        """Log the tables and figures into the current run of "wandb", "trackio" or "mlflow"."""
        from headcount.report.tracking import log_tables

        names = [name for name in ("points", "claims", "heads") if self._tables[name]]
        frames = {name: self.to_frame(name) for name in (*names, *self.tables)}
        log_tables(tracker, {safe_name(n.lower()): f for n, f in frames.items()}, self.figures)

    def save(
        self,
        folder: str | Path,
        command: str = "",
        *,
        asked: str = "",
        page: str = "report.html",
    ) -> list[Path]:
        """Write all files of the study; return their paths, the figure first and the page last.

        `command` is the command that makes the same result again; `asked` is the key that
        identifies a finished run. The files of an earlier result in the folder are replaced all
        together, or not at all; files that no result has written stay. The page, whose file name is
        `page`, is made of the other files; `headcount report` can make it again.
        """
        folder = Path(folder)
        with replacing_files(folder) as new:
            paths = self._write(new, command, asked, page)
            return [folder / path.relative_to(new) for path in paths]

    def _write(self, folder: Path, command: str, asked: str, page: str) -> list[Path]:
        paths = []
        for name, figure in self.figures.items():
            paths += save_figure(figure, folder, name)
        paths.append(write_csv(folder / "curves.csv", self.rows))
        names = {title: f"{safe_name(title.lower())}.csv" for title in self.tables}
        tables = {"heads.csv": self.heads}
        paths += self.values.write(folder) if self.values else []
        tables |= {names[title]: rows for title, rows in self.tables.items()}
        paths += [write_csv(folder / name, rows) for name, rows in tables.items() if rows]
        for name, scores in self.scores.items():
            *inside, last = map(safe_name, name.split("/"))
            scores.save(folder.joinpath("scores", *inside, f"{last}.json"))
        paths.append(write_json(folder / "claims.json", [asdict(claim) for claim in self.claims]))
        written = [path for path in folder.rglob("*") if path.is_file()]
        run = {
            "study": self.name,
            "title": self.title,
            "command": command,
            "asked": asked,
            "settings": dict(self.settings),
            "facts": dict(self.facts),
            "model": dict(self.model),
            "captions": dict(self.captions),
            "notes": list(self.notes),
            "figures": list(self.figures),
            "tables": names,
            "files": sorted([*(p.relative_to(folder).as_posix() for p in written), page]),
            "versions": versions(),
        }
        paths.append(write_json(folder / RECORD, run))
        return [*paths, write_page([folder], folder / page)]


def _ends(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}" if low <= high else "unknown"


def versions() -> dict[str, str]:
    """The versions of all packages that may change the last digits of a number."""
    packages = ("torch", "transformers", "numpy", "tokenizers")
    ours = {"headcount": __version__, "python": platform.python_version()}
    return ours | {package: version(package) for package in packages}
