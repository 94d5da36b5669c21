"""What a study leaves: points, claims, pictures and how they came about."""

from __future__ import annotations

import base64
import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headcount.errors import HeadcountError
from headcount.figures.curve import save_figure
from headcount.json_text import to_json
from headcount.notebook import frame, table
from headcount.report import report_html
from headcount.results import Claim, versions
from headcount.stats import Verdict

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

    def save(self, folder: str | Path, command: str = "") -> list[Path]:
        """Write figures, table, claims, report and settings; the picture comes first."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, figure in self.figures.items():
            paths += save_figure(figure, folder, name)
        paths.append(write_csv(folder / "curves.csv", self.rows))
        claims = [asdict(claim) for claim in self.claims]
        run = {
            "study": self.name,
            "command": command,
            "settings": dict(self.settings),
            "model": dict(self.model),
            "notes": list(self.notes),
            "versions": versions(),
        }
        texts = {"claims.json": to_json(claims), "run.json": to_json(run)}
        pictures = {name: (folder / f"{name}.png").read_bytes() for name in self.figures}
        texts["report.html"] = report_html(self, pictures, run)
        for file, text in texts.items():
            (folder / file).write_text(text + "\n", encoding="utf-8")
            paths.append(folder / file)
        for title, rows in self.tables.items():
            name = title.lower().replace(" ", "-")
            paths.append(write_csv(folder / f"{name}.csv", rows))
        for name, scores in self.scores.items():
            scores.save(folder / "scores" / f"{name}.json")
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


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    """Write rows that all have the same columns."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a claim that says "on every …".

    >>> all_of(["supported", "undecided"]), all_of(["undecided", "refuted"])
    ('undecided', 'refuted')
    """
    if "refuted" in verdicts:
        return "refuted"
    return "undecided" if "undecided" in verdicts else "supported"
