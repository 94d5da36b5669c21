"""The command `headcount export --as adapter`: head sets as LoRA adapters."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from headcount.cli.common import Answer, head_set, model_from
from headcount.curves.curve import DRAWN, CurveRequest, CurveSettings
from headcount.errors import HeadcountError, counted
from headcount.heads import HeadLayout, HeadScores, listed_counts, read_list
from headcount.metrics import get_metric
from headcount.models.adapter_folder import INDEX, AdapterFolder, export_adapters
from headcount.models.model import Model
from headcount.models.unloaded import unloaded_model
from headcount.rankings import fit_list, fitting
from headcount.registry import make_settings
from headcount.system.folders import check_place

FEW = 8  # adapters that are printed
# Options that a checkpoint has no use for.
OF_ADAPTERS = ("scores", "other_model", "counts", "series", "seeds", "max_rank", "base", "unloaded")


def one_head_set(arguments: Namespace) -> list[list[str]]:
    """The one head set of a checkpoint; several, and the options of adapters, are refused."""
    for name in OF_ADAPTERS:
        if getattr(arguments, name) != arguments.parser.get_default(name):
            option = f"--{name.replace('_', '-')}"
            raise HeadcountError(f"{option} is an option of adapters: add --as adapter.")
    if len(arguments.heads) != 1:
        raise HeadcountError(
            "A checkpoint holds one head set: give its heads once, as in --heads 3.4 11.2, or "
            "write several as adapters (--as adapter)."
        )
    heads: list[list[str]] = arguments.heads
    return heads


def write_adapters(arguments: Namespace) -> Answer:
    """Write an adapter for each head set, and say how a server is told of them."""
    check_place(arguments.out)  # refuses before a model is loaded
    if bool(arguments.heads) == bool(arguments.scores):
        raise HeadcountError(
            "Give the heads of each adapter (--heads 3.4 11.2), or a file of scores (--scores "
            "FILE), from which the best heads and random ones are taken."
        )
    if arguments.counts and not arguments.scores:
        raise HeadcountError("--counts takes the best heads of a ranking: give --scores as well.")
    given = [head_set(words, arguments) for words in arguments.heads]  # refuses what is no head
    found = read_list(arguments.scores) if arguments.scores else None
    names = {"counts": arguments.counts, "seeds": arguments.seeds}
    names |= {"series": arguments.series} if arguments.series else {}
    names |= {"epsilon": arguments.gate, "mode": "keep" if arguments.keep else "mask"}
    settings = make_settings("export", CurveSettings, names)
    if arguments.unloaded:
        how = {name: getattr(arguments, name) for name in ("revision", "trust_remote_code")}
        model = unloaded_model(arguments.model, **how)
    else:
        model = model_from(arguments)
    chosen: dict[Any, Any] = dict(enumerate(given))
    left_out: tuple[str, ...] = ()
    if found is not None:
        scores = fit_list(found, model, other_model=arguments.other_model)
        counts = arguments.counts or listed_counts(scores, [8, 16, 32])
        chosen, left_out = head_sets_of(model, scores, replace(settings, counts=counts))
    made = export_adapters(
        model,
        chosen,
        arguments.out,
        base=arguments.base,
        max_rank=arguments.max_rank,
        progress=not arguments.json,
    )
    text = [_text(made, model), *left_out]
    return Answer(_document(made), "\n".join(text), left_out)


def head_sets_of(
    model: Model, scores: HeadScores, settings: CurveSettings
) -> tuple[dict[Any, np.ndarray], tuple[str, ...]]:
    """The head sets that a curve along these scores measures, by series, count and draw.

    With a sentence for each series and count that the model has too few heads for.
    """
    task: Any = None  # no head set of these depends on it
    if "reranked" in settings.series:
        raise HeadcountError("Resampled rankings need a task: leave the series reranked out.")
    request = CurveRequest(model, task, fitting(scores, model), get_metric("logprob"), settings)
    chosen: dict[Any, np.ndarray] = {}
    draws: Counter[Any] = Counter()
    for entry in request.entries(scores):
        label: Any = entry.label
        drawn = (draws[label],) if label[0] in DRAWN else ()
        draws[label] += 1
        gates = np.asarray(entry.gates)
        if (gates != 1).any():
            chosen[(*label, *drawn)] = gates
    return chosen, request.points[1]


def _document(made: AdapterFolder) -> dict[str, Any]:
    return {
        "folder": str(made.path),
        "base": made.base,
        "max_lora_rank": made.served_rank,
        "adapters": [
            {
                "name": one.name,
                "rank": one.rank,
                "error": one.error,
                "compared": one.compared,
                "heads": _heads(one, made),
            }
            for one in made.adapters.values()
        ],
    }


def _heads(one: Any, made: AdapterFolder) -> dict[str, float]:
    layout: HeadLayout = made.layout
    changed = np.flatnonzero(one.gates != 1).tolist()
    return {str(layout.head(number)): float(one.gates[number]) for number in changed}


def _text(made: AdapterFolder, model: Model) -> str:
    """The adapters, how exact they are, and the options of vLLM that serve them."""
    adapters = [*made.adapters.values()]
    lines = [f"{counted(len(adapters), 'adapter')} for {made.base} in {made.path}"]
    for one in adapters[:FEW]:
        changed, error = counted(int((one.gates != 1).sum()), "head"), f"error {one.error:.1e}"
        lines.append(f"  {one.name}: {changed}, rank {one.rank}, {error} of the {one.compared}")
    if len(adapters) > FEW:
        lines.append(f"  … and {len(adapters) - FEW} more: {made.path / INDEX}")
    compared = {one.compared for one in adapters}
    if "logits" in compared:
        lines.append("Logits: the model with the adapter, loaded again, against the gated model.")
    if "weights" in compared:
        lines += [
            "Weights: W + B·A against W·diag(g), without loading the model; its heads were proven "
            "on a small model of the same config with random weights."
        ]
    words = model.precision
    if "dequantised" in words:
        lines += [f"Of {words}: an engine that serves the quantised file rounds in its own way."]
    first = adapters[0].name
    lines += [
        "",
        f"vllm serve {made.base} --enable-lora --max-lora-rank {made.served_rank} --lora-modules "
        f"{first}={made.path / first}" + (" …" if len(adapters) > 1 else ""),
    ]
    return "\n".join(lines)
