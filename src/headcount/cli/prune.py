"""The command `headcount prune`: a smaller checkpoint, and what it costs."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from headcount.cli.common import (
    Answer,
    announce,
    claim_lines,
    command_line,
    lab_from,
    model_from,
    table,
)
from headcount.cli.parser import chosen_settings, parse_settings
from headcount.cli.run import settings_and_task_settings
from headcount.curves.healed import PrunedShape
from headcount.models.export import check_new
from headcount.models.groups import check_size, choose_size, geometry_of
from headcount.models.prune import Pruned, size_lines, stock_sizes, write_pruned
from headcount.report.study import Study
from headcount.studies.description import Description
from headcount.studies.pruned.config import TEXT, Config, PruneSettings
from headcount.studies.pruned.estimates import MEAN
from headcount.studies.pruned.study import KIND, PrunedStudy, healing
from headcount.system.folders import check_place

SIZES = ("keep_groups", "keep_heads_per_group", "cache")


def prune(arguments: Namespace) -> Answer:
    """Choose the heads, measure the pruned model beside random ones, and write it."""
    asked: dict[str, Any] = {name: getattr(arguments, name) for name in SIZES}
    check_size(**asked)  # all of this refuses before a model is loaded
    out = check_place(check_new(arguments.out))
    chosen = chosen_settings(arguments, PruneSettings)
    chosen |= settings_and_task_settings(parse_settings(arguments.set), Config)
    config = KIND.configure("quick", **chosen)
    with lab_from(arguments) as lab:
        model = model_from(arguments)
        whole = geometry_of(model)
        size = choose_size(model.name, whole, stock_sizes(model), **asked)
        groups = size.groups < whole.groups
        config = replace(
            config,
            keep_groups=(size.groups,) if groups else (),
            keep_heads_per_group=() if groups else (size.per_group,),
        )
        if not arguments.quiet:
            share = f"{size.groups / whole.groups:.3g} of the cache"
            told = f"{model.name} has {whole}. Kept: {whole.kept(size)}, {share}."
            print(told, file=sys.stderr, flush=True)
        study = PrunedStudy(model, config)
        description = Description(study.requests(), study.conclude, before=study.prove)
        if forecast := announce(arguments, lab, description.requests.values()):
            return forecast
        with lab.remembering() as remembering:
            result = description.carry_out(remembering)
            shape = PrunedShape(study.pruning, size)
            gates = shape.gates(study.pruning.result(remembering))
            module = shape.made(remembering, healing(config))
            pruned = write_pruned(model, module, gates, out, changed=config.heal_steps > 0)
    paths = result.save(out / "measured", command_line(arguments))
    return Answer(
        {
            "folder": out,
            "kept": asdict(size),
            "difference": pruned.difference,
            "before": asdict(pruned.before),
            "after": asdict(pruned.after),
            "points": list(result.rows),
            "sizes": list(result.tables["Sizes"]),
            "claims": [asdict(claim) for claim in result.claims],
            "files": paths,
        },
        "\n".join(_lines(pruned, result)),
    )


def _lines(pruned: Pruned, result: Study) -> Iterator[str]:
    """The sizes, what they cost, and the verdicts."""
    yield from size_lines(pruned.before, pruned.after)
    (row,) = result.tables["Sizes"]
    for what in ("reading", "writing"):
        ends = f"[{row[f'{what} low']:.2f}, {row[f'{what} high']:.2f}]"
        yield f"tokens per second, {what}: {row[what]:.2f} times the whole model's {ends}"
    yield ""
    yield table(["heads", "loss", "95 % interval", "accuracy", "95 % interval"], _costs(result))
    yield ""
    yield from claim_lines(result.claims)
    yield ""
    yield f"The checkpoint: {pruned.folder} (headcount doctor {pruned.folder})"
    yield (
        "It was loaded again. Its logits are those of the model it was made from: the largest "
        f"difference is {pruned.difference:.1e} of the largest logit."
    )
    yield f"What was measured, on one page: {pruned.folder / 'measured' / 'report.html'}"


def _costs(result: Study) -> Iterator[list[str]]:
    """Loss and mean accuracy of the whole model, and of the best and random heads."""
    losses = [row for row in result.rows if row["task"] == TEXT]
    means = [row for row in result.rows if row["task"] == MEAN]
    for loss, accuracy in zip(losses, means, strict=True):
        name = " ".join(filter(None, [loss["series"], loss["treatment"]]))
        cells = [
            cell
            for row in (loss, accuracy)
            for cell in (f"{row['value']:.3f}", f"[{row['low']:.3f}, {row['high']:.3f}]")
        ]
        yield [name, *cells]
