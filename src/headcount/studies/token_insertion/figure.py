"""The figures of `token-insertion`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.errors import counted, span_text
from headcount.figures.inserts import Bar, Profiles, plot_inserts, plot_profiles, plot_sweep
from headcount.figures.layout import both_widths
from headcount.models.weights import about_models, display_names
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.token_insertion.attention import uniform_profile
from headcount.studies.token_insertion.claims import SAME
from headcount.studies.token_insertion.internals import Internals
from headcount.studies.token_insertion.panels import WITHOUT, InsertPanel, drawn, panels_of
from headcount.value_table import ValueTable

UNIFORM = (
    "The dashed grey line is a uniform reader, which attends to all tokens up to its own equally."
)


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """The figure of all models on the first task, the profiles of each, and the sweep.

    The profiles beside the bars are those of the first model whose head was given, else of the
    first. A result whose profiles were not kept has none.
    """
    panels, names = drawn(panels_of(values, facts)), display_names(models)
    first = panels[0]
    title = f"Results on {facts['tasks'][first.task]}"
    bars = {names[p.model]: _bars(p, found, p.graded) for p in panels}
    changes = {names[p.model]: _bars(p, found, p.changed, " minus w/o") for p in panels}
    kept = {model: read_profiles(names[model], of) for model, of in known_profiles(facts).items()}
    shown = kept.get(_shown_beside(facts))
    at_chance = [names[panel.model] for panel in panels if panel.at_chance]
    how: dict[str, Any] = {"title": title, "at_chance": at_chance, "margin": 100 * SAME}
    figures = both_widths("figure", plot_inserts, bars, changes, shown, **how)
    captions = {"figure": _caption(panels, names, models)}
    if len(kept) > 1:
        figures["profiles"] = plot_profiles(list(kept.values()))
        captions["profiles"] = (
            "Attention that each original token receives from later tokens, in the drawn head of "
            f"each model. {_averaged(facts, kept)} {UNIFORM} {about_models(models)}."
        )
    sweep = facts["sweep"]
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
            f"Accuracy by the {sweep} of the insert. {_grading(panels[:1], models)} "
            "Whiskers are 95 % intervals of each accuracy."
        )
    return figures, captions


def known_profiles(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The drawn profiles of each model, as `profile_facts` wrote them."""
    return dict(facts.get("profiles") or {})


def _shown_beside(facts: Mapping[str, Any]) -> str:
    known = known_profiles(facts)
    return next((model for model, of in known.items() if not of["choosing"]), next(iter(known), ""))


def profile_facts(inside: Internals, sinks: int) -> dict[str, Any]:
    """What a result keeps of the profiles that are drawn, in five digits."""
    head = inside.head
    return {
        "head": str(head),
        "heads": len(inside.heads_of(head.layer)),
        "choosing": len(inside.choosing),
        "aligned": inside.aligned,
        "sinks": sinks,
        "series": {
            series: {
                "head": five_digits(table[head.index]),
                "mean": five_digits(table.mean(0)),
                "span": list(inside.spans[series]),
            }
            for series, table in inside.drawn.items()
        },
    }


def five_digits(numbers: Float[np.ndarray, "tokens"]) -> list[float | None]:
    """Numbers for run.json; None where there is none."""
    return [None if np.isnan(x) else float(f"{x:.5g}") for x in numbers]


def read_profiles(model: str, kept: Mapping[str, Any]) -> Profiles:
    """The profiles that a result keeps, ready to be drawn."""

    def shown(numbers: Sequence[float | None]) -> Float[np.ndarray, "tokens"]:
        values = np.array(numbers, dtype=float)
        values[: kept["sinks"]] = np.nan  # an attention sink would dwarf all other tokens
        return values

    series = kept["series"]
    layer = kept["head"].partition(".")[0]
    return Profiles(
        f"Head {kept['head']} of {model}",
        {name: shown(one["head"]) for name, one in series.items()},
        f"Mean over the {kept['heads']} heads of layer {layer}",
        {name: shown(one["mean"]) for name, one in series.items()},
        {name: shown(uniform_profile(len(one["head"]))[0]) for name, one in series.items()},
        {name: one["span"] for name, one in series.items()},
    )


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


def _grading(panels: Sequence[InsertPanel], models: Models) -> str:
    first = panels[0]
    runs = len(first.right(WITHOUT))
    how = "greedy decoding" if first.facts["greedy"] else counted(runs, "sampled run")
    if "decoding" in first.facts:
        runs_of = [len(panel.right(WITHOUT)) for panel in panels]
        how = f"each model's own decoding settings, {span_text(runs_of)} runs"
    n = span_text([panel.problems.n for panel in panels])
    about = about_models(models, [panel.model for panel in panels])
    return f"{about}; {n} problems, {how}, {first.facts['metric']['name']}."


def _caption(panels: Sequence[InsertPanel], names: Mapping[str, str], models: Models) -> str:
    chance = [names[panel.model] for panel in panels if panel.at_chance]
    facts = panels[0].facts
    kept = known_profiles(facts).get(_shown_beside(facts))
    parts = [
        f"Accuracy without an insert, and with {facts['insert']}; below, the paired difference to "
        f"w/o in points, with a grey band of ± {100 * SAME:g} points. {_grading(panels, models)} "
        "Whiskers are 95 % intervals over problems"
        f"{'' if facts['greedy'] else ' and runs'}: above of each accuracy, below of each "
        "difference."
    ]
    if chance:
        parts.append(
            f"Hatched, at chance: {', '.join(chance)} does not clearly beat the commonest answer."
        )
    if kept:
        parts.append(
            f"Charts: attention that each token receives from later tokens in head {kept['head']} "
            f"of {names[_shown_beside(facts)]}: the original tokens, then the full sequence with "
            "the insert shaded, and the mean over all heads of the layer. "
            f"{_averaged(facts, [_shown_beside(facts)])} {UNIFORM}"
        )
    return " ".join(" ".join(parts).split())


def _averaged(facts: Mapping[str, Any], models: Iterable[str]) -> str:
    """What profiles are means of, how their heads were chosen, and what is left out."""
    every = [known_profiles(facts)[model] for model in models]
    aligned = [one["aligned"] for one in every]
    parts = [
        f"The mean over {span_text(aligned)} prompts of one length."
        if max(aligned) > 1
        else "A single prompt."
    ]
    if all(one["choosing"] for one in every):
        parts.append(
            "The head is the one that inserts change most on "
            f"{counted(every[0]['choosing'], 'other prompt')}."
        )
    sinks = every[0]["sinks"]
    if sinks:
        first = "token is" if sinks == 1 else f"{sinks} tokens are"
        parts.append(f"The first {first} left out.")
    return " ".join(parts)
