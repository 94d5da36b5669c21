"""The figures of `silent-heads`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.curves.silent import CONSTANT, MATCHED, PER_INPUT, RANDOM
from headcount.errors import span_text
from headcount.figures.kept import plot_areas
from headcount.figures.silent import SilentLine, plot_silent
from headcount.figures.style import COLUMN, GREY, PALETTE
from headcount.models.weights import about_models
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.silent_heads.claims import PUBLISHED_LOSS, PUBLISHED_SHARE
from headcount.studies.silent_heads.config import SCORES
from headcount.studies.silent_heads.panels import METRICS, SilentPanel, panels_of
from headcount.value_table import ValueTable

# The two that are compared most are blue and orange.
COLOURS = dict(zip(SCORES, (PALETTE[i] for i in (0, 7, 2, 3, 4, 1)), strict=True))
CONTROL = {RANDOM: "random heads", MATCHED: "random by layer"}
TITLES = dict(zip(METRICS, ("Accuracy left", "Log-prob. margin left"), strict=True))
FORMS = {PER_INPUT: "per input", CONSTANT: "constant"}


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """The curves on the mean over tasks, and the areas per input beside those of constant heads."""
    panels, about = panels_of(values, facts), about_models(models)
    rows = found.tables["What is left"]
    own = [*((PER_INPUT, s) for s in facts["scores"]), *((c, facts["scores"][0]) for c in CONTROL)]
    lines = {
        title: [_line(series, score, rows, metric, facts) for series, score in own]
        for metric, title in TITLES.items()
    }
    mark = 100 * PUBLISHED_SHARE, 1 - PUBLISHED_LOSS
    tasks = {row["task"] for row in found.tables["Areas"]}
    task = next((name for name in tasks if name not in facts["tasks"]), next(iter(facts["tasks"])))
    areas = {
        title: {
            SCORES[score]: {
                words: (row["value"], row["low"], row["high"])
                for form, words in FORMS.items()
                for row in found.tables["Areas"]
                if (row["task"], row["series"], row["score"], row["metric"])
                == (task, form, score, metric)
            }
            for score in facts["scores"]
        }
        for metric, title in TITLES.items()
    }
    figures = {
        "figure": plot_silent(lines, mark=mark),
        "areas": plot_areas(areas, label="Area under the curve", width=COLUMN),
    }
    return figures, {"figure": _caption(panels, facts, about), "areas": _areas(facts, about)}


def _line(
    series: str, score: str, rows: Sequence[Mapping[str, Any]], metric: str, facts: Any
) -> SilentLine:
    wanted = {"series": series, "score": score, "metric": metric}
    points = [(0.0, 1.0, 1.0, 1.0)]
    points += [
        (100 * row["zeroed"], row["value"], row["low"], row["high"])
        for row in rows
        if wanted.items() <= row.items()
    ]
    if series in CONTROL:
        strong = series == RANDOM
        return SilentLine(CONTROL[series], GREY, points, "--" if strong else ":", strong)
    strong = score in (facts["scores"][0], list(SCORES)[-1])
    return SilentLine(SCORES[score], COLOURS[score], points, strong=strong)


def _caption(panels: Sequence[SilentPanel], facts: Mapping[str, Any], about: str) -> str:
    fit = [panel for panel in panels if not panel.at_chance] or panels
    names = ", ".join(panel.name for panel in fit)
    n = span_text([panel.items.n for panel in fit])
    left_out = ", ".join(panel.name for panel in panels if panel not in fit)
    return (
        f"{about}; mean over {names}, {n} test prompts each. What "
        "is left of the accuracy of choosing the right answer (above) and of its log-probability "
        "margin over the best wrong one (below), as a share of the whole model's, when the least "
        "active heads of each prompt are zeroed. Thresholds are from ranking prompts, the places "
        "on the axis from the test prompts. Random heads: as many on each prompt as by the first "
        "score, other ones each time. Bands and upright lines are 95 % intervals over prompts and "
        "templates, with thresholds held fixed; a triangle marks one that leaves the frame. "
        f"Cross: published for MMLU, 12 % of the heads at 1 % loss.{_chance(left_out)}"
    )


def _chance(left_out: str) -> str:
    return f" At chance and left out: {left_out}." if left_out else ""


def _areas(facts: Mapping[str, Any], about: str) -> str:
    return (
        f"{about}. Area under each curve, from 0 to {facts['shares'][-1]} % of the heads, "
        "as a share of what all heads reach: heads chosen for each input, and the same heads for "
        "all inputs by the score's mean over ranking prompts. Lines are 95 % intervals."
    )
