"""A finished result: points, claims, pictures and how they came about, of a study or one curve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headcount.claims import Claim
from headcount.figures.html import frame, picture, table
from headcount.figures.style import Row
from headcount.report.folder import write_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    settings  every setting that the numbers depend on
    model     what each model is, by its name: `Model.facts`
    scores    rankings and gates by the names of their files
    heads     what is known about each head, as `head_rows` makes it
    notes     sentences that a reader must know: what was left out, what differs from the paper
    tables    further tables by title, which is also the name of their files
    values    every value behind the points, one row for each example
    """

    name: str
    title: str
    rows: Sequence[Row]
    claims: Sequence[Claim]
    figures: Mapping[str, Figure]
    settings: Mapping[str, Any]
    model: Mapping[str, Mapping[str, Any]]
    scores: Mapping[str, Saved] = field(default_factory=dict)
    heads: Sequence[Row] = ()
    notes: Sequence[str] = ()
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    values: Sequence[Row] = ()

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
        parts += [picture(figure) for figure in list(self.figures.values())[:1]]
        return frame(self.title, *parts, table([""], [[note] for note in self.notes]))

    def save(
        self,
        folder: str | Path,
        command: str = "",
        *,
        asked: str = "",
        page: str = "report.html",
    ) -> list[Path]:
        """Write figures, tables, claims, settings and the page; returns the paths, picture first.

        `command` makes the same result again. `asked` is the key by which a finished run
        is known again. `page` is the name of the page's file.
        """
        return write_folder(self, Path(folder), command=command, asked=asked, page=page)


def _ends(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}" if low <= high else "unknown"
