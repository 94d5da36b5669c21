"""The findings of a session as one self-contained page, without scripts."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from headcount import __version__
from headcount.errors import HeadcountError
from headcount.explorer.state import ExplorerState
from headcount.explorer.trials import Trial, TriedCurve, short_name
from headcount.figures.head_map import draw_head_map
from headcount.figures.html import picture
from headcount.figures.style import figure_of
from headcount.figures.values import draw_values
from headcount.report.page import policy_hash, short

if TYPE_CHECKING:
    from headcount.explorer.session import ExplorerSession


def findings_page(session: ExplorerSession, state: ExplorerState, metric: str) -> str:
    """The page: what was tried on the task, and what the prompt showed at last."""
    room = files("headcount.report"), files("headcount.explorer")
    style = (room[0] / "page.css").read_text(encoding="utf-8")
    trials = [] if session.trials is None else session.trials.tried
    curves = [] if session.trials is None else session.trials.curves
    return (
        _environment()
        .get_template("findings.html")
        .render(
            style=Markup(style),
            policy=Markup(
                f"default-src 'none'; img-src data:; style-src '{policy_hash(style)}'; "
                "base-uri 'none'; form-action 'none'"
            ),
            model=session.model.name,
            layout=str(session.model.layout),
            weights=session.model.precision,
            task=session.task,
            panels=[_panel(list(some)) for _, some in groupby(trials, _kind)],
            curves=[_curve(curve) for curve in curves],
            map=_map(session, state),
            state=state,
            named=short_name(state),
            prompt=_prompt(session, state),
            same=session.same(state, metric),
            version=__version__,
        )
    )


def _kind(trial: Trial) -> tuple[str, str]:
    return trial.values.metric.key, trial.state.ablation


def _panel(trials: list[Trial]) -> dict[str, Any]:
    """Trials of one metric and ablation: a picture and the rows of a table."""
    values = trials[0].values
    found = values.interval("whole")
    points = [("whole model", found.value, found.low, found.high)]
    for trial in trials:
        for label, name in (("set", f"{trial.number}"), ("random", f"{trial.number}: random")):
            found = trial.values.interval(label)
            points.append((name, found.value, found.low, found.high))
    note = f"n = {len(values.examples)} · ablation: {values.ablation}"
    axes = draw_values(points, xlabel=values.metric.name, note=note, shares=values.metric.binary)
    rows = [trial.to_json() for trial in trials]
    return {
        "metric": values.metric.name,
        "ablation": values.ablation,
        "examples": len(values.examples),
        "chance": values.at_chance,
        "picture": Markup(picture(figure_of(axes))),
        "rows": rows,
    }


def _curve(tried: TriedCurve) -> dict[str, Any]:
    """The picture of a curve, and what it goes along."""
    return {"name": tried.name, "picture": Markup(picture(tried.curve.figure()))}


def _map(session: ExplorerSession, state: ExplorerState) -> Markup | None:
    """The scores that colour the map, with a cross on each head of the head set."""
    scores, layout = session.scores.known.get(state.colour), session.model.layout
    if scores is None:
        return None
    axes = draw_head_map(scores.values.tolist(), layout.counts, across=True)
    heads = [layout.head(number) for number in state.chosen(layout)]
    axes.plot([h.layer for h in heads], [h.index for h in heads], "x", color="black", markersize=4)
    return Markup(picture(figure_of(axes)))


def _prompt(session: ExplorerSession, state: ExplorerState) -> dict[str, Any]:
    """The next token of the prompt, and the text if one was written; or why there is none."""
    try:
        passes, layout = session.passes(state), session.model.layout
        controls, note = state.controls(layout, draws=5)
        under = passes.under(np.concatenate([state.gates(layout)[None], controls]))
    except HeadcountError as error:
        return {"refused": str(error)}
    rows = passes.table(under[0], under[1:])["rows"]
    rows.sort(key=lambda row: (row["role"] == "", -row["whole"]))
    return {"rows": rows[:14], "note": note, "texts": _texts(session, state), "refused": ""}


def _texts(session: ExplorerSession, state: ExplorerState) -> dict[str, str]:
    """What was written last, if it was under this state."""
    then, texts = session.written or (None, {})
    determining = ("prompt", "head_set", "ablation", "seed")
    if then is None or any(getattr(then, n) != getattr(state, n) for n in determining):
        return {}
    names = {"whole": "whole model", "set": "head set", "random": "random heads (one draw)"}
    return {name: "".join(texts[key]) for key, name in names.items()}


@cache
def _environment() -> Environment:
    how: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined}
    how |= {"trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader("headcount.explorer", "page"), **how)
    environment.filters["short"] = short
    return environment
