"""`headcount run`: a published study, from the model to the figure."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headcount.commands.common import model_from, print_json, settings, store_from
from headcount.studies import PRESETS, STUDIES, run_study
from headcount.studies.study import Study
from headcount.tasks import FUNCTIONS

# Options whose names differ from those of the study's settings.
RENAMED = {"ranking": "rankings"}


def run(arguments: Namespace) -> int:
    """Run the study and say what it found."""
    entry = STUDIES[arguments.study]
    known = entry.defaults()
    chosen: dict[str, Any] = {}
    for option in ("ranking", "counts", "seeds", "functions", "scope", "epsilon"):
        value = getattr(arguments, option)
        if value is not None:
            chosen[RENAMED.get(option, option)] = value
    if chosen.get("functions") == ["all"]:
        chosen["functions"] = list(FUNCTIONS)
    further = settings(arguments.set)
    chosen |= {name: value for name, value in further.items() if name in known}
    of_tasks = {name: value for name, value in further.items() if name not in known}
    if of_tasks:
        chosen["task_settings"] = of_tasks
    entry.bind(**chosen)  # refuses before the model is loaded
    preset = arguments.preset
    # A preset that there is not is refused by run_study, before it loads anything.
    model = model_from(arguments) if preset in PRESETS[arguments.study] else arguments.model
    with store_from(arguments) as store:
        study = run_study(
            arguments.study,
            model,
            preset=preset,
            store=store,
            progress=not arguments.quiet,
            **chosen,
        )
    command = "headcount " + shlex.join(sys.argv[1:])
    paths = study.save(Path(arguments.out or f"out/{arguments.study}"), command)
    if arguments.json:
        print_json({"claims": [asdict(claim) for claim in study.claims], "files": paths})
        return 0
    _tell(study)
    print(f"\nThe picture: {paths[0]}")
    others = [path.name for path in paths[1:] if path.suffix in (".csv", ".json", ".html")]
    print(f"Beside it: {', '.join(others)}")
    return 0


def _tell(study: Study) -> None:
    for claim in study.claims:
        interval = f"[{claim.low:+.2f}, {claim.high:+.2f}]" if claim.low <= claim.high else "[?]"
        print(f"{claim.verdict}: {claim.claim}: {claim.measured:+.2f} {interval}")
    for note in study.notes:
        print(f"note: {note}")
