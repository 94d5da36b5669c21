"""What a study leaves: points, claims, pictures and how they came about."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headcount.claims import Claim
from headcount.errors import HeadcountError
from headcount.figures.curve import save_figure
from headcount.figures.html import frame, table
from headcount.report import write_page
from headcount.report.folder import versions
from headcount.system.files import to_json, write_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headcount.models.model import Model

Row = Mapping[str, Any]


class Saved(Protocol):
    """What writes itself into a file: a ranking, or gates."""

    def save(self, path: str | Path) -> None:
        """Write it to `path`, and make its folder."""


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study.

    rows      the tidy table: one row for each point of each curve
    claims    what was published, what was measured, and the verdict
    figures   pictures by the name of their files; the first is the study's own
    scores    rankings and gates by the names of their files
    heads     what is known about each head, as `head_rows` makes it
    tables    further tables by title, which is also the name of their files
    notes     sentences that a reader must know: what was left out, what differs from the paper
    """

    name: str
    title: str
    rows: Sequence[Row]
    claims: Sequence[Claim]
    figures: Mapping[str, Figure]
    settings: Mapping[str, Any]
    model: Mapping[str, Any]
    scores: Mapping[str, Saved] = field(default_factory=dict)
    heads: Sequence[Row] = ()
    notes: Sequence[str] = ()
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    def __repr__(self) -> str:
        verdicts = Counter(claim.verdict for claim in self.claims)
        counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        claims = f"{len(self.claims)} claim{'' if len(self.claims) == 1 else 's'}"
        return f"<Study {self.title}: {claims}{f' ({counted})' if counted else ''}, " + (
            f"{len(self.rows)} points, figures: {', '.join(self.figures) or 'none'}>"
        )

    def _repr_html_(self) -> str:
        claims = [
            [c.claim, c.published or "", f"{c.measured:.2f}", _ends(c.low, c.high), c.verdict]
            for c in self.claims
        ]
        header = ["claim", "published", "measured", "95 % interval", "verdict"]
        parts = [table(header, claims)] * bool(claims)
        for figure in list(self.figures.values())[:1]:
            picture = io.BytesIO()
            figure.savefig(picture, format="png", dpi=80, metadata={"Software": None})
            source = base64.b64encode(picture.getvalue()).decode()
            parts.append(f'<p><img alt="figure" src="data:image/png;base64,{source}"></p>')
        return frame(self.title, *parts, table([""], [[note] for note in self.notes]))

    def save(
        self, folder: str | Path, command: str = "", *, asked: Mapping[str, Any] | None = None
    ) -> list[Path]:
        """Write figures, table, claims, report and settings; the picture comes first.

        run.json comes after all that it speaks of, so that a folder that has one is whole. `asked`
        is what this run was asked for, to know it again.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("run.json", "heads.csv"):
            (folder / name).unlink(missing_ok=True)
        paths = []
        for name, figure in self.figures.items():
            paths += save_figure(figure, folder, name)
        paths.append(write_csv(folder / "curves.csv", self.rows))
        if self.heads:
            paths.append(write_csv(folder / "heads.csv", self.heads))
        tables = {title: f"{title.lower().replace(' ', '-')}.csv" for title in self.tables}
        paths += [write_csv(folder / tables[title], rows) for title, rows in self.tables.items()]
        for name, scores in self.scores.items():
            scores.save(folder / "scores" / f"{name}.json")
        run = {
            "study": self.name,
            "title": self.title,
            "command": command,
            **({"asked": dict(asked)} if asked else {}),
            "settings": dict(self.settings),
            "model": dict(self.model),
            "notes": list(self.notes),
            "figures": list(self.figures),
            "tables": tables,
            "versions": versions(),
        }
        claims = [asdict(claim) for claim in self.claims]
        for file, value in (("claims.json", claims), ("run.json", run)):
            (folder / file).write_text(to_json(value) + "\n", encoding="utf-8")
            paths.append(folder / file)
        paths.append(write_page([folder], folder / "report.html"))
        return paths


def _ends(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}" if low <= high else "unknown"


def only_model(models: Sequence[Model], study: str) -> Model:
    """The one model of a study whose figure shows one."""
    if len(models) != 1:
        raise HeadcountError(
            f"{study} takes one model at a time, not {len(models)}: run it once for each."
        )
    return models[0]
