"""`headcount demo --all`: the four studies in their quick form, and one page about them all."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
import traceback
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.cli.common import print_json, store_from
from headcount.cli.timetable import Timetable, minutes, overall
from headcount.errors import HeadcountError
from headcount.models.model import Model, load_model
from headcount.report import write_page
from headcount.report.folder import versions
from headcount.store import Store
from headcount.studies import MODELS, PRESETS, STUDIES, foresee_study, run_study
from headcount.system.files import to_json

PRESET = "quick"
BESIDE = 15.0  # seconds of each study that go into resampling, figures and pages
ORDER = ("masked-heads", "heads-kept", "head-roles", "token-insertion")


@dataclass
class _Run:
    """What goes through all studies."""

    out: Path
    store: Store | None
    progress: bool
    tell: Callable[[str], None]
    models: dict[str, Model]


def demo_all(arguments: Namespace) -> int:
    """Run what is not finished, make every page again, and say what came of each study."""
    out = Path(arguments.out or "out/demo-all")
    tell = _tell(arguments)
    done = [name for name in ORDER if finished(out / name, name)]
    failures: dict[str, str] = {}
    pages: list[str] = []
    index = out / "index.html"
    with store_from(arguments) as store:
        run = _Run(out, store, not arguments.quiet, tell, {})
        if len(done) < len(ORDER):
            tell("Loading the models (the first time, they are fetched and converted)")
        table = Timetable({name: _expected(run, name) for name in ORDER if name not in done})
        if table.waiting:
            tell(
                f"{len(table.waiting)} of {len(ORDER)} studies to run: about "
                f"{minutes(table.left(0))} on this machine. If it is cut, the same command goes on."
            )
        with overall(table, show=not arguments.quiet):
            for place, name in enumerate(ORDER, start=1):
                so = "" if name in done else f", about {minutes(table.waiting[name] * table.pace)}"
                tell(f"\n[{place}/{len(ORDER)}] {name}{so}: {STUDIES[name].summary}")
                start = time.monotonic()
                if name not in done:
                    table.start(name, start)
                failure = _attempt(run, name, again=name in done)
                table.finish(time.monotonic(), whole=failure is None)
                if failure is not None:
                    failures[name] = failure
                    tell(f"not finished: {failure}")
                else:
                    pages.append(name)
                    _say(tell, out / name, None if name in done else time.monotonic() - start)
                if pages:  # made anew after every study: to be read while the rest runs
                    write_page([out / one for one in pages], index, failures=failures)
    if not pages:
        raise HeadcountError(next(iter(failures.values())))
    if arguments.json:
        print_json({"page": index, "studies": _summaries(out, pages), "failures": failures})
    else:
        tell(f"\nAll of it, to open in a browser: {index}")
    if failures:
        names = ", ".join(failures)
        print(f"headcount: not finished: {names}; the same command tries again.", file=sys.stderr)
    return 2 if failures else 0


def finished(folder: Path, study: str) -> bool:
    """Whether the folder holds this very study, whole and by these versions."""
    try:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(run.get("asked") == _asked(study) and run.get("versions") == versions())


def _asked(study: str) -> dict[str, Any]:
    """What a study was asked for, as JSON has it."""
    settings = PRESETS[study][PRESET]
    asked = {"preset": PRESET, "settings": settings, "models": list(MODELS[study])}
    return dict(json.loads(to_json(asked)))


def _attempt(run: _Run, name: str, *, again: bool) -> str | None:
    """Run a study, or only make its page `again`; why it could not be done, if so."""
    try:
        if again:
            folder = run.out / name
            write_page([folder], folder / "report.html")
        else:
            _study(run, name)
    except HeadcountError as error:
        return str(error)
    except OSError:  # no space left: the others would fail as well
        raise
    except Exception as error:  # a mistake of ours must not lose the other studies
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return None


def _study(run: _Run, name: str) -> None:
    models = [_model(run, spec) for spec in MODELS[name]]
    says = "say" in STUDIES[name].defaults()
    study = run_study(
        name,
        models,
        preset=PRESET,
        store=run.store,
        progress=run.progress,
        **({"say": run.tell} if says else {}),
    )
    folder = run.out / name
    command = f"headcount run {name} --preset {PRESET} --out {shlex.quote(folder.as_posix())}"
    study.save(folder, command, asked=_asked(name))


def _model(run: _Run, spec: str) -> Model:
    if spec not in run.models:
        run.models[spec] = load_model(spec)
    return run.models[spec]


def _expected(run: _Run, name: str) -> float:
    """About how many seconds a study takes here, less what the store holds."""
    try:
        models = [_model(run, spec) for spec in MODELS[name]]
        ahead = foresee_study(name, models, preset=PRESET, store=run.store)
    except HeadcountError:  # the study itself will say so, and the others go on
        return BESIDE
    seconds = 0.0 if isinstance(ahead.stopped, HeadcountError) else ahead.seconds()
    return BESIDE + (seconds if math.isfinite(seconds) else 0.0)


def _tell(arguments: Namespace) -> Callable[[str], None]:
    """Print past the bars; to standard error where standard output is for JSON."""
    from tqdm import tqdm

    file = sys.stderr if arguments.json else sys.stdout

    def tell(text: str) -> None:
        tqdm.write(text, file=file)
        file.flush()

    return (lambda text: None) if arguments.json and arguments.quiet else tell


def _say(tell: Callable[[str], None], folder: Path, seconds: float | None) -> None:
    claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    counts = Counter(claim["verdict"] for claim in claims)
    words = ", ".join(f"{counts[word]} {word}" for word in counts)
    how = "was finished before" if seconds is None else f"took {minutes(seconds)}"
    some = f"{len(claims)} claim{'s' * (len(claims) != 1)}"
    tell(f"{some}: {words} · {how} · {folder / 'report.html'}")


def _summaries(out: Path, names: list[str]) -> dict[str, Any]:
    return {
        name: {
            "folder": out / name,
            "claims": json.loads((out / name / "claims.json").read_text(encoding="utf-8")),
        }
        for name in names
    }
