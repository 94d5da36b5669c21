"""`headcount run`: a published study, from the model to the figure."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, fields
from typing import Any

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
from headcount.studies import study_kind
from headcount.system.folders import check_place


def run(arguments: Namespace) -> Answer:
    """Run the study, write its folder, and print its claims."""
    kind = study_kind(arguments.study)
    pairs = settings_and_task_settings(parse_settings(arguments.set), kind.config)
    chosen = chosen_settings(arguments, kind.config) | pairs
    config = kind.configure(arguments.preset, **chosen)  # refuses before a model is loaded
    names = dict.fromkeys(arguments.model or kind.models)
    out = check_place(arguments.out or f"out/{arguments.study}")
    with lab_from(arguments) as lab:
        description = kind.describe([model_from(arguments, name) for name in names], config)
        if forecast := announce(arguments, lab, description.requests.values()):
            return forecast
        study = description.carry_out(lab)
    paths = study.save(out, command_line(arguments))
    notes = [f"note: {note}" for note in study.notes]
    return Answer(
        {"claims": [asdict(claim) for claim in study.claims], "files": paths},
        "\n".join([*claim_lines(study.claims), *notes, files_text(paths)]),
    )


def settings_and_task_settings(given: dict[str, Any], config: type) -> dict[str, Any]:
    """The settings given by --set; those that the study does not have go to its tasks."""
    known = {item.name for item in fields(config)}
    if "task_settings" not in known:
        return given
    own = {name: value for name, value in given.items() if name in known}
    of_tasks = {name: value for name, value in given.items() if name not in known}
    return own | ({"task_settings": of_tasks} if of_tasks else {})
