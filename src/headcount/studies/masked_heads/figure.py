"""The figures of the study `masked-heads`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headcount.errors import counted, span_text
from headcount.figures.curves import plot_panels, plot_rankings
from headcount.models.model import Model
from headcount.rankings import RANKINGS
from headcount.studies.masked_heads.claims import FunctionPanel
from headcount.studies.masked_heads.config import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The second metric in legends. Only COMET itself may be called COMET.
SHORT = {"comet": "Comet", "similarity": "Similarity (MiniLM)"}


def draw(panels: Sequence[FunctionPanel], config: Config, model: Model) -> dict[str, Figure]:
    """The published figure and, with several rankings, a figure that compares them."""
    first, second = panels[0].accuracy.metric, panels[0].similarity.metric
    short = SHORT.get(second.key, second.name)
    at_chance = [panel.name for panel in panels if panel.at_chance]
    span = span_text([panel.accuracy.points[0].n for panel in panels])
    figures = {
        "figure": plot_panels(
            {p.name: [("Accuracy", p.accuracy.rows), (short, p.similarity.rows)] for p in panels},
            total=model.layout.total,
            note=f"heads ranked by {config.rankings[0]} · {first.name} · {second.name} · n = "
            f"{span} items · {counted(config.seeds, 'random draw')} · {model.name}",
            at_chance=at_chance,
        )
    }
    if len(config.rankings) > 1:
        named = {
            p.name: {RANKINGS[ranking].name: curve.rows for ranking, curve in p.by_ranking.items()}
            for p in panels
        }
        total = model.layout.total
        figures["rankings"] = plot_rankings(
            named, total=total, metric=first.name, note=model.name, at_chance=at_chance
        )
    return figures
