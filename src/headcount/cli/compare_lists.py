"""`headcount compare FILE FILE`: how many heads lists have in common, and how many by chance."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping

from headcount.cli.common import Answer, table
from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, HeadList, HeadScores, is_list, list_name, read_list
from headcount.rankings.agreement import Agreement, agreement
from headcount.report.study import versions


def compare_lists(arguments: Namespace) -> Answer:
    """Compare finished lists without measuring anything; no weights are read."""
    found = _read(arguments.files)
    layout = _layout(found, arguments)
    scores = {
        name: one.scores(layout) if isinstance(one, HeadList) else one
        for name, one in found.items()
    }
    result = agreement(scores, arguments.counts)
    models = {name: str(one.parameters.get("model", "")) for name, one in scores.items()}
    named = {model.rstrip("/").split("/")[-1].lower() for model in models.values() if model}
    notes = []
    if len(named) > 1:
        told = "; ".join(f"{name}: {model}" for name, model in models.items() if model)
        notes.append(f"The lists are for models of different names ({told}).")
    document = {"models": models, "notes": notes, **result.to_json(), "versions": versions()}
    return Answer(document, "\n\n".join([*_texts(result, layout), *notes]), notes)


def _read(files: list[str]) -> dict[str, HeadScores | HeadList]:
    found: dict[str, HeadScores | HeadList] = {}
    for file in files:
        if not is_list(file):
            raise HeadcountError(
                f"{file} is not a list of heads: give files of scores or lists (.json, .yaml, "
                ".tsv), or names of rankings with --ranking."
            )
        if (name := list_name(file)) in found:
            raise HeadcountError(f'The list "{name}" is given twice: give each list once.')
        found[name] = read_list(file)
    if len(found) < 2:
        raise HeadcountError("Give at least two lists to compare.")
    return found


def _layout(found: Mapping[str, HeadScores | HeadList], arguments: Namespace) -> HeadLayout:
    """The layout of the first file that tells it, or that of the model that was named."""
    units = {one.unit if isinstance(one, HeadList) else one.layout.unit for one in found.values()}
    if len(units) > 1:
        raise HeadcountError("Some lists are of query heads, and others of key/value heads.")
    for one in found.values():
        if isinstance(one, HeadScores):
            return one.layout
    if not any(word.partition("=")[0] == "--model" for word in arguments.words):
        raise HeadcountError(
            "None of these lists tells how many heads the model has: name it with --model (only "
            "its config is read)."
        )
    from headcount.models.unloaded import unloaded_model

    how = {name: getattr(arguments, name) for name in ("revision", "trust_remote_code")}
    layout: HeadLayout = unloaded_model(arguments.model, **how).layout
    return layout


def _texts(result: Agreement, layout: HeadLayout) -> list[str]:
    rows = []
    for o in result.overlaps:
        size = str(o.count) if o.count == o.other_count else f"{o.count} and {o.other_count}"
        least = min(o.count, o.other_count)
        rows.append(
            [
                f"{o.one} / {o.other}",
                size,
                o.common,
                f"{o.chance * least:.1f} [{o.chance_low * least:.0f}, {o.chance_high * least:.0f}]",
                f"{o.p_value:.2g}",
                f"{o.layer_chance * least:.1f}",
                f"{o.layer_p_value:.2g}",
            ]
        )
    header = ["lists", "best", "common", "by chance [95 %]", "p", "same layers", "p"]
    texts = [f"Of {layout}:", table(header, rows)]
    correlations = [
        f"{one} / {other}: {result.correlation[a, b]:.2f}"
        for a, one in enumerate(result.names)
        for b, other in enumerate(result.names)
        if a < b and not math.isnan(result.correlation[a, b])
    ]
    if correlations:
        texts.append("Spearman correlation of all scores: " + ", ".join(correlations))
    told = "p: how likely two random draws of so many heads have as many in common, from all heads "
    return [*texts, f"{told}or from the same layers (exact)."]
