"""`headcount lm-eval`: standard benchmarks under head sets."""

from __future__ import annotations

from argparse import Namespace

from headcount.cli.common import (
    Answer,
    announce,
    command_line,
    files_text,
    lab_from,
    model_from,
    table,
)
from headcount.cli.parser import chosen_settings
from headcount.errors import HeadcountError
from headcount.heads import HeadSet, read_list
from headcount.integrations.lm_eval.settings import BenchmarkSettings
from headcount.registry import make_settings
from headcount.system.folders import check_place
from headcount.tasks.lm_eval_docs import load_benchmarks


def lm_eval(arguments: Namespace) -> Answer:
    """Run benchmarks under head sets, write a folder of results, and print all scores."""
    given = chosen_settings(arguments, BenchmarkSettings)
    chosen = make_settings("lm-eval", BenchmarkSettings, given)
    if bool(arguments.heads) == bool(arguments.scores):
        raise HeadcountError("Give either --heads, or --scores with a file that rank --out wrote.")
    found = read_list(arguments.scores) if arguments.scores else None
    heads = HeadSet(arguments.heads)
    out = check_place(arguments.out)
    # Refuses before a model is loaded.
    loaded = load_benchmarks(arguments.tasks, chosen.include_path, chosen.num_fewshot)
    from headcount.integrations.lm_eval.request import BenchmarksRequest, scores_of
    from headcount.rankings import fit_list

    with lab_from(arguments) as lab:
        model = model_from(arguments)
        fitted = found and fit_list(found, model, other_model=arguments.other_model)
        request = BenchmarksRequest(model, loaded, fitted or scores_of(heads, model), chosen)
        if forecast := announce(arguments, lab, [request]):
            return forecast
        study = request.result(lab)
    paths = study.save(out, command_line(arguments))
    cells = [
        [
            *(row[name] for name in ("task", "metric", "series", "count")),
            f"{row['value']:.3f}",
            f"[{row['low']:.3f}, {row['high']:.3f}]",
        ]
        for row in study.rows
    ]
    header = ["benchmark", "score", "heads", "count", "value", "95 % interval"]
    text = "\n".join([table(header, cells), *study.notes, files_text(paths)])
    return Answer(list(study.rows), text, study.notes)
