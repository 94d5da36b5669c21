"""`headcount run`: a published study, from the model to the figure."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from headcount.cli.common import (
    announce,
    command_line,
    lab_from,
    model_from,
    print_files,
    print_json,
)
from headcount.cli.options import chosen_settings, parse_settings
from headcount.errors import HeadcountError
from headcount.report.study import Study
from headcount.studies import STUDIES, study_kind


def run(arguments: Namespace) -> int:
    """Run the study and say what it found."""
    if arguments.study is None:
        raise HeadcountError(
            f"Which study? One of {', '.join(STUDIES)}: headcount run masked-heads."
        )
    kind = study_kind(arguments.study)
    chosen = chosen_settings(arguments, kind.config) | settings_and_task_settings(
        parse_settings(arguments.set), kind.config
    )
    config = kind.configure(arguments.preset, **chosen)  # refuses before a model is loaded
    names = list(dict.fromkeys(arguments.model or kind.models))
    with lab_from(arguments) as lab:
        models = [model_from(arguments, name) for name in names]
        description = kind.describe(models, config)
        if announce(arguments, lab, description.requests.values()):
            return 0
        study = description.carry_out(lab)
    paths = study.save(Path(arguments.out or f"out/{arguments.study}"), command_line())
    if arguments.json:
        print_json({"claims": [asdict(claim) for claim in study.claims], "files": paths})
        return 0
    _tell(study)
    print_files(paths)
    return 0


def settings_and_task_settings(given: dict[str, Any], config: type) -> dict[str, Any]:
    """NAME=VALUE pairs: those that the study does not have are settings of its tasks."""
    known = {item.name for item in fields(config)}
    own = {name: value for name, value in given.items() if name in known}
    of_tasks = {name: value for name, value in given.items() if name not in known}
    return own | ({"task_settings": of_tasks} if of_tasks else {})


def _tell(study: Study) -> None:
    for claim in study.claims:
        interval = f"[{claim.low:+.2f}, {claim.high:+.2f}]" if claim.low <= claim.high else "[?]"
        print(f"{claim.verdict}: {claim.claim}: {claim.measured:+.2f} {interval}")
    for note in study.notes:
        print(f"note: {note}")
