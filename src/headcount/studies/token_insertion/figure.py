"""The figures of `token-insertion`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from headcount.errors import counted, span_text
from headcount.figures.inserts import Bar, Profiles, plot_inserts, plot_sweep
from headcount.report.estimates import Estimates
from headcount.studies.token_insertion.attention import uniform_profile
from headcount.studies.token_insertion.claims import SAME
from headcount.studies.token_insertion.internals import Internals
from headcount.studies.token_insertion.panels import WITHOUT, InsertPanel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    panels: Sequence[InsertPanel], found: Estimates, internals: Internals | None, sinks: int
) -> tuple[dict[str, Figure], dict[str, str]]:
    """The figure of all models on the first task, and the figure of the sweep.

    The profiles are those of the model whose `internals` are given.
    """
    first = panels[0]
    title = f"Results on {first.facts['tasks'][first.task]}"
    bars = {panel.model: _bars(panel, found, panel.graded) for panel in panels}
    changes = {panel.model: _bars(panel, found, panel.changed, " minus w/o") for panel in panels}
    profiles = None if internals is None or not internals.drawn else _profiles(internals, sinks)
    at_chance = [panel.model for panel in panels if panel.at_chance]
    how: dict[str, Any] = {"title": title, "at_chance": at_chance, "margin": 100 * SAME}
    figures = {"figure": plot_inserts(bars, changes, profiles, **how)}
    captions = {"figure": _caption(panels, internals, sinks)}
    sweep = first.facts["sweep"]
    lines: dict[str, list[tuple[str, Bar]]] = {}
    for row in found.rows:
        if first.swept(row):
            label = str(row["count"]) if sweep == "length" else row["place"]
            series = row["series"].removesuffix(f", by {sweep}")
            lines.setdefault(series, []).append((label, _bar(row)))
    if lines:
        name = f"sweep-{sweep}"
        label = "Tokens inserted" if sweep == "length" else "Place of the insert"
        figures[name] = plot_sweep(lines, label=label, title=title)
        captions[name] = (
            f"Accuracy by the {sweep} of the insert. {_grading(panels[:1])} "
            "Whiskers are 95 % intervals of each accuracy."
        )
    return figures, captions


def _bar(row: Mapping[str, Any]) -> Bar:
    return Bar(100 * row["value"], 100 * row["low"], 100 * row["high"])


def _bars(
    panel: InsertPanel, found: Estimates, series: Sequence[str] | Mapping[str, Any], end: str = ""
) -> dict[str, Bar]:
    """The rows of these series in percent; with `end`, of their differences to w/o."""
    own = {"model": panel.model, "task": panel.task}
    by_series = {row["series"]: row for row in found.rows if own.items() <= row.items()}
    return {
        name: _bar(by_series[f"{name}{end}"])
        for name in series
        if not panel.swept({"series": name})
    }


def _profiles(internals: Internals, sinks: int) -> Profiles:
    head = internals.head
    where = "" if head.layer == 0 else f", layer {head.layer}"

    def shown(values: Float[np.ndarray, "tokens"]) -> Float[np.ndarray, "tokens"]:
        values = values.copy()
        values[:sinks] = np.nan  # an attention sink would dwarf all other tokens
        return values

    return Profiles(
        f"Average attention on Head {head.index}{where}",
        {series: shown(table[head.index]) for series, table in internals.drawn.items()},
        f"Mean over the {len(internals.heads_of(head.layer))} heads of layer {head.layer}",
        {series: shown(table.mean(0)) for series, table in internals.drawn.items()},
        {s: shown(uniform_profile(t.shape[1])[0]) for s, t in internals.drawn.items()},
        internals.spans,
    )


def _named(model: str) -> str:
    """The model's name; bundled weights are said to be those of a 4-bit file."""
    return f"{model} (a 4-bit file, dequantised)" if model.endswith("-q4") else model


def _grading(panels: Sequence[InsertPanel]) -> str:
    first = panels[0]
    runs = len(first.right(WITHOUT))
    how = "greedy decoding" if first.facts["greedy"] else counted(runs, "sampled run")
    if "decoding" in first.facts:
        runs_of = [len(panel.right(WITHOUT)) for panel in panels]
        how = f"each model's own decoding settings, {span_text(runs_of)} runs"
    n = span_text([panel.problems.n for panel in panels])
    models = ", ".join(_named(panel.model) for panel in panels)
    return f"{models}; {n} problems, {how}, {first.facts['metric']['name']}."


def _caption(panels: Sequence[InsertPanel], internals: Internals | None, sinks: int) -> str:
    chance = [panel.model for panel in panels if panel.at_chance]
    parts = [
        f"Left: accuracy without an insert, and with {panels[0].facts['insert']}; below, the "
        "paired difference to w/o in points, with a grey band of "
        f"± {100 * SAME:g} points. {_grading(panels)} Whiskers are 95 % intervals over problems"
        f"{'' if panels[0].facts['greedy'] else ' and runs'}: above of each accuracy, below of "
        "each difference."
    ]
    if chance:
        parts.append(
            f"Hatched, at chance: {', '.join(chance)} does not clearly beat the commonest answer."
        )
    if internals is not None and internals.drawn:
        head, model = internals.head, internals.model
        chosen = (
            "It was chosen as the head that inserts change most on "
            f"{counted(len(internals.choosing), 'other prompt')}."
        ) * bool(internals.choosing)
        mean = f"the mean over {counted(internals.aligned, 'prompt')} of one length"
        mean = mean if internals.aligned > 1 else "a single prompt"
        first = f"The first {counted(sinks, 'token')} are left out." if sinks > 1 else ""
        first = "The first token is left out." if sinks == 1 else first
        parts.append(
            f"Right: attention that each token receives from later tokens in head {head} of "
            f"{_named(model)}, {mean}: the original tokens, then the full sequence with the insert "
            "shaded, and the mean over all heads of the layer. The grey line is a uniform reader, "
            f"which attends to all tokens up to its own equally. {chosen} {first}"
        )
    return " ".join(" ".join(parts).split())
