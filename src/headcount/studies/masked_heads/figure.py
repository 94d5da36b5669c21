"""The figures of the study `masked-heads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headcount.curves import Curve
from headcount.figures.curves import plot_panels, plot_rankings
from headcount.metrics import TextMetric
from headcount.models.model import Model
from headcount.rankings import RANKINGS
from headcount.studies.masked_heads.claims import Panel
from headcount.studies.masked_heads.config import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    panels: Sequence[Panel],
    by_ranking: Mapping[str, Mapping[str, Curve]],
    metrics: tuple[TextMetric, TextMetric],
    config: Config,
    model: Model,
) -> dict[str, Figure]:
    """The published figure, and where there are several rankings one that compares them."""
    first, second = metrics
    numbers = [panel.accuracy.points[0].n for panel in panels]
    low, high = min(numbers), max(numbers)
    span = str(low) if low == high else f"{low} to {high}"
    figures = {
        "figure": plot_panels(
            {
                p.name: [("Accuracy", p.accuracy.rows), (_short(second), p.similarity.rows)]
                for p in panels
            },
            total=model.layout.total,
            note=f"ranked by {config.rankings[0]} · {first.name} · {second.name} · n = {span} · "
            f"{config.seeds} random draws · {model.name}",
        )
    }
    if len(config.rankings) > 1:
        named = {
            name: {RANKINGS[method].name: curve.rows for method, curve in curves.items()}
            for name, curves in by_ranking.items()
        }
        figures["rankings"] = plot_rankings(
            named, total=model.layout.total, metric=first.name, note=model.name
        )
    return figures


def _short(metric: TextMetric) -> str:
    """As legends name the second metric; never COMET for what is not."""
    return {"comet": "Comet", "similarity": "Similarity (MiniLM)"}.get(metric.key, metric.name)
