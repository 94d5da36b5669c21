"""What `heads-kept` has measured: rows, tables and panels, task by task and model by model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headcount.curves.explained import Explained
from headcount.figures.kept import KeptPanel, Line
from headcount.figures.style import Points
from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.rankings.agreement import agreement
from headcount.report.head_rows import head_rows
from headcount.studies.heads_kept.claims import Panel
from headcount.studies.heads_kept.keeping import Kept, Prompts


class Found:
    """What the study has measured, task by task and model by model."""

    def __init__(self, ranking: str, threshold: float, per: str = "task") -> None:
        self.ranking, self.threshold, self.per = ranking, threshold, per
        self.rows: list[dict[str, Any]] = []
        self.needed: list[dict[str, Any]] = []
        self.agreed: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.scores: dict[str, HeadScores] = {}
        self.heads: list[dict[str, Any]] = []
        # By task, title and stand-in: each model with its curve and that in random order.
        self.curves: dict[tuple[str, str, str], list[tuple[str, Explained, Explained | None]]] = {}

    def add(
        self,
        key: str,
        name: str,
        model: Model,
        metric: str,
        prompts: Prompts,
        kept: dict[str, Kept],
        scores: dict[str, HeadScores],
    ) -> None:
        """Take in one task and model."""
        where = f"{name}, {model.name}"
        for stand_in, one in kept.items():
            curves = {order: one.explained(order) for order, count in one.values if not count}
            for order, curve in curves.items():
                self._rows(key, model, stand_in, order, curve, one)
                self.needed.append(
                    _needed(name, model, metric, stand_in, order, curve, one, self.threshold)
                )
            top, random = curves[self.ranking], curves.get("random")
            self.curves.setdefault((key, name, stand_in), []).append((model.name, top, random))
            if not top.known:
                self.notes.append(
                    f"{where}: with the stand-in {stand_in} the whole model does no better than "
                    "the one without heads, so there is no effect to explain."
                )
        self.notes.append(f"{where}: the stand-in is the {kept['mean'].stand_in}.")
        if prompts.left_out:
            self.notes.append(
                f"{where}: {prompts.left_out} test prompts were left out, because the ranking part "
                "has too few of their template and length for a mean by position."
            )
        for method, score in scores.items():
            self.scores[f"{_file(model.name)}-{_file(key)}-{method}"] = score
        ranked = prompts.tested if self.per == "prompt" else prompts.ranked
        self.heads += head_rows(model.name, key, scores, clusters=ranked.clusters)
        if len(scores) > 1:
            found = agreement(scores, [c for c in (8, 16, 32, 64) if c <= model.layout.total])
            for other in list(scores)[1:]:
                place = found.names.index(other)
                shared = [o for o in found.overlaps if (o.one, o.other) == (self.ranking, other)]
                self.agreed.append(
                    {
                        "task": name,
                        "model": model.name,
                        "rankings": f"{self.ranking} / {other}",
                        "Spearman": float(found.correlation[0, place]),
                        **{f"top {o.count} in common": o.share for o in shared},
                    }
                )

    def _rows(
        self, key: str, model: Model, stand_in: str, order: str, curve: Explained, one: Kept
    ) -> None:
        for count, interval in zip(curve.counts, curve.intervals, strict=True):
            table = one.values[order, int(count)]
            self.rows.append(
                {
                    "model": model.name,
                    "task": key,
                    "series": "random" if order == "random" else "top",
                    "metric": "explained_effect",
                    "count": int(count),
                    "value": interval.value,
                    "low": interval.low,
                    "high": interval.high,
                    "n": len(one.prompts),
                    "draws": len(table),
                    "ranking": order,
                    "stand_in": stand_in,
                    "mean_metric": float(table.mean()),
                }
            )

    def claimed(self) -> list[Panel]:
        """The panels with the headline's stand-in."""
        return [panel for stand_in, panel in self._panels() if stand_in == "mean"]

    def panels(self, stand_in: str) -> list[KeptPanel]:
        """The panels of a figure."""
        panels = []
        for its, panel in self._panels():
            if its == stand_in:
                lines = [
                    Line(label, _points(top), _points(random), _known(top, self.threshold))
                    for label, top, random in zip(
                        panel.models, panel.kept, panel.random, strict=True
                    )
                ]
                ratio = panel.ratio(self.threshold)
                panels.append(KeptPanel(panel.title, lines, ratio.value if ratio else None))
        return panels

    def _panels(self) -> Iterator[tuple[str, Panel]]:
        for (key, title, stand_in), curves in self.curves.items():
            models, kept, random = zip(*curves, strict=True)
            yield stand_in, Panel(key, title, models, kept, random)

    def note(self, stand_in: str, per: str, models: Sequence[Model]) -> str:
        """The small print."""
        tested = sorted({row["n"] for row in self.rows})
        span = str(tested[0]) if len(tested) == 1 else f"{tested[0]} to {tested[-1]}"
        totals = ", ".join(f"{model.name} {model.layout.total}" for model in models)
        where = "their mean on corrupted prompts" if stand_in == "mean" else "zero"
        return (
            f"ranked by {self.ranking} per {per} · absent heads: {where} · bands: 95 % intervals "
            f"over n = {span} prompts · dashed: "
            f"explained effect {self.threshold:g} · heads: {totals}"
        )

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Heads needed, ratios, and how far rankings agree."""
        ratios = []
        for stand_in, panel in self._panels():
            ratio = panel.ratio(self.threshold)
            if ratio is not None:
                needed = [_known(one, self.threshold) for one in panel.kept]
                ratios.append(
                    {
                        "task": panel.title,
                        "stand-in": stand_in,
                        **dict(zip(panel.models, needed, strict=True)),
                        "ratio": ratio.value,
                        "low": ratio.low,
                        "high": ratio.high,
                    }
                )
        tables = {"Heads needed": self.needed}
        if ratios:
            tables["Ratio of the heads needed"] = ratios
        if self.agreed:
            tables["Agreement of the rankings"] = self.agreed
        return tables


def _needed(
    name: str,
    model: Model,
    metric: str,
    stand_in: str,
    order: str,
    curve: Explained,
    one: Kept,
    threshold: float,
) -> dict[str, Any]:
    first, last = curve.first(threshold), curve.last(threshold)
    whole, none = (one.values[order, count].mean() for count in (model.layout.total, 0))
    return {
        "task": name,
        "model": model.name,
        "stand-in": stand_in,
        "order": order,
        "first crossing": first.value if curve.known else np.nan,
        "low": first.low,
        "high": first.high,
        "last crossing": last.value if curve.known else np.nan,
        "last low": last.low,
        "last high": last.high,
        "of": model.layout.total,
        "metric": metric,
        "all heads": float(whole),
        "no head": float(none),
        "n": len(one.prompts),
    }


def _points(curve: Explained | None) -> Points:
    if curve is None:
        return []
    by_count = zip(curve.counts, curve.intervals, strict=True)
    return [(int(count), one.value, one.low, one.high) for count, one in by_count]


def _known(curve: Explained, threshold: float) -> float:
    return curve.first(threshold).value if curve.known else float("nan")


def _file(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in name)
