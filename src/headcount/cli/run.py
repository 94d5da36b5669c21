"""`headcount run`: a published study, from the model to the figure."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headcount.cli.common import model_from, print_json, settings, store_from, tell
from headcount.errors import HeadcountError
from headcount.studies import MODELS, PRESETS, STUDIES, foresee_study, run_study
from headcount.studies.study import Study
from headcount.tasks import FUNCTIONS

# Options, and the settings of a study that they stand for.
OPTIONS = {
    "ranking": "rankings",
    "counts": "counts",
    "seeds": "seeds",
    "functions": "functions",
    "tasks": "tasks",
    "scope": "scope",
    "epsilon": "epsilon",
    "refit": "refit",
    "layer": "layer",
    "head": "head",
    "sweep": "sweep",
    "heads": "heads",
    "keep": "keep",
}


def run(arguments: Namespace) -> int:
    """Run the study and say what it found."""
    if arguments.study is None:
        known_ones = ", ".join(entry.key for entry in STUDIES)
        raise HeadcountError(f"Which study? One of {known_ones}: headcount run masked-heads.")
    entry = STUDIES[arguments.study]
    known = entry.defaults()
    chosen: dict[str, Any] = {
        name: value
        for option, name in OPTIONS.items()
        if (value := getattr(arguments, option)) is not None
    }
    if chosen.get("functions") == ["all"]:
        chosen["functions"] = list(FUNCTIONS)
    further = settings(arguments.set)
    chosen |= {name: value for name, value in further.items() if name in known}
    of_tasks = {name: value for name, value in further.items() if name not in known}
    if of_tasks:
        chosen["task_settings"] = of_tasks
    entry.bind(**chosen)  # refuses before the model is loaded
    preset = arguments.preset
    names = list(dict.fromkeys(arguments.model or MODELS[arguments.study]))
    # A preset that there is not is refused by run_study, before it loads anything.
    known_preset = preset in PRESETS[arguments.study]
    models = [model_from(arguments, name) if known_preset else name for name in names]
    if "say" in known:
        chosen["say"] = lambda text: print(text, file=sys.stderr)
    with store_from(arguments) as store:
        expected = foresee_study(arguments.study, models, preset=preset, store=store, **chosen)
        if tell(arguments, expected):
            return 0
        study = run_study(
            arguments.study,
            models,
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
    others = [path.name for path in paths[1:] if path.suffix in (".csv", ".json")]
    print(f"Beside it: {', '.join(others)}")
    print(f"All of it, to open in a browser: {paths[-1]}")
    return 0


def _tell(study: Study) -> None:
    for claim in study.claims:
        interval = f"[{claim.low:+.2f}, {claim.high:+.2f}]" if claim.low <= claim.high else "[?]"
        print(f"{claim.verdict}: {claim.claim}: {claim.measured:+.2f} {interval}")
    for note in study.notes:
        print(f"note: {note}")
