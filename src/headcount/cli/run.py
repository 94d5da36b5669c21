"""`headcount run`: a published study, from the model to the figure."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.cli.common import (
    Answer,
    announce,
    claim_lines,
    command_line,
    files_text,
    lab_from,
    model_from,
)
from headcount.cli.parser import chosen_settings, parse_settings
from headcount.rankings import RANKINGS
from headcount.studies import StudyKind, study_kind
from headcount.system.files import safe_name
from headcount.system.folders import check_place

if TYPE_CHECKING:
    from headcount.lab import Lab


def run(arguments: Namespace) -> Answer:
    """Run the study, write its folder, and print its claims.

    A study whose figure shows one model runs once for each model, into folders of their names.
    """
    kind = study_kind(arguments.study)
    preset = kind.preset(arguments.preset)
    pairs = settings_and_task_settings(parse_settings(arguments.set), kind.config)
    chosen = chosen_settings(arguments, kind.config) | pairs
    config = kind.configure(arguments.preset, **chosen)  # refuses before a model is loaded
    names = list(dict.fromkeys(arguments.model or preset.models or kind.models))
    preset.check_models(names)
    apart = kind.one_model and len(names) > 1
    out = arguments.out or f"out/{arguments.study}"
    folders = [f"{out}/{_folder_name(name)}" for name in names] if apart else [out]
    places = [check_place(folder) for folder in folders]
    with lab_from(arguments) as lab:
        answers = [
            _run_on(arguments, lab, kind, config, group, place)
            for group, place in zip([[n] for n in names] if apart else [names], places, strict=True)
        ]
    if not apart:
        return answers[0]
    texts = [f"{name}\n{answer.text}" for name, answer in zip(names, answers, strict=True)]
    return Answer([answer.document for answer in answers], "\n\n".join(texts))


def _folder_name(model: str) -> str:
    """The folder for the results of one of several models.

    >>> _folder_name("meta-llama/Llama-3.2-1B"), _folder_name("./my-model/")
    ('meta-llama-Llama-3.2-1B', 'my-model')
    """
    is_path = model.startswith((".", "/", "~")) or Path(model).exists()
    return safe_name(Path(model).name if is_path else model)


def _run_on(
    arguments: Namespace, lab: Lab, kind: StudyKind, config: Any, names: list[str], out: Path
) -> Answer:
    """Run the study on these models, or with --dry-run tell what it would measure."""
    preset = kind.preset(arguments.preset)
    models = [model_from(arguments, name, preset.loading) for name in names]
    description = kind.describe(models, config)
    if forecast := announce(arguments, lab, description.requests.values()):
        return forecast
    study = preset.told(description.carry_out(lab), arguments.preset)
    paths = study.save(out, command_line(arguments))
    notes = [f"note: {note}" for note in study.notes]
    return Answer(
        {"claims": [asdict(claim) for claim in study.claims], "files": paths},
        "\n".join([*claim_lines(study.claims), *notes, files_text(paths)]),
    )


def settings_and_task_settings(given: dict[str, Any], config: type) -> dict[str, Any]:
    """The settings given by --set; those that the study does not have go to its tasks.

    Those under the name of a ranking go to the ranking, if the study takes any.
    """
    known = {item.name for item in fields(config)}
    if "task_settings" not in known:
        return given
    own = {name: value for name, value in given.items() if name in known}
    of_tasks = {name: value for name, value in given.items() if name not in known}
    if "ranking_settings" in known:
        of_rankings = {n: of_tasks.pop(n) for n in list(of_tasks) if n in RANKINGS}
        own |= {"ranking_settings": of_rankings} if of_rankings else {}
    return own | ({"task_settings": of_tasks} if of_tasks else {})
