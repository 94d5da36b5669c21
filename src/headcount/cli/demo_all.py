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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headcount.cli.common import lab_from, print_json
from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.models.model import Model, load_model
from headcount.report import write_page
from headcount.report.study import versions
from headcount.studies import STUDIES, study_kind
from headcount.studies.description import Description, resume_key
from headcount.system.progress import duration

PRESET = "quick"
BESIDE = 15.0  # seconds of each study that go into resampling, figures and pages


@dataclass(eq=False)
class _Run:
    """What goes through all studies: where results go, who measures, and the models loaded."""

    out: Path
    lab: Lab
    tell: Callable[[str], None]
    models: dict[str, Model]

    def describe(self, name: str) -> tuple[Description, str]:
        """A study, and the key by which its finished folder is known again."""
        kind = study_kind(name)
        for spec in kind.models:
            if spec not in self.models:
                self.models[spec] = load_model(spec)
        models, config = [self.models[spec] for spec in kind.models], kind.configure(PRESET)
        return kind.describe(models, config), resume_key(name, config, models)

    def finished(self, name: str, key: str) -> bool:
        """Whether the folder holds this very study, whole and by these versions."""
        try:
            run = json.loads((self.out / name / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(run.get("asked") == key and run.get("versions") == versions())

    def carry_out(self, name: str, description: Description, key: str) -> None:
        """Run a study into its folder."""
        study = description.carry_out(replace(self.lab, say=self.tell))
        folder = self.out / name
        command = f"headcount run {name} --preset {PRESET} --out {shlex.quote(folder.as_posix())}"
        study.save(folder, command, asked=key)


def demo_all(arguments: Namespace) -> int:
    """Run what is not finished, make every page again, and say what came of each study."""
    out = Path(arguments.out or "out/demo-all")
    tell = _teller(arguments)
    failures: dict[str, str] = {}
    pages: list[str] = []
    index = out / "index.html"
    with lab_from(arguments) as lab:
        run = _Run(out, lab, tell, {})
        tell("Loading the models (the first time, they are fetched and converted)")
        left = {name: _seconds(run, name) for name in STUDIES}
        if waiting := [seconds for seconds in left.values() if seconds]:
            tell(
                f"{len(waiting)} of {len(STUDIES)} studies to run: about {duration(sum(waiting))} "
                "on this machine. If it is cut, the same command goes on."
            )
        for place, (name, summary) in enumerate(STUDIES.items(), start=1):
            ahead = f", about {duration(left[name])}" if left[name] else ""
            tell(f"\n[{place}/{len(STUDIES)}] {name}{ahead}: {summary}")
            start = time.monotonic()
            failure = _attempt(run, name)
            if failure is not None:
                failures[name] = failure
                tell(f"not finished: {failure}")
            else:
                pages.append(name)
                _tell_verdicts(tell, out / name, time.monotonic() - start if left[name] else None)
            if pages:  # made anew after every study: to be read while the rest runs
                write_page([out / page for page in pages], index, failures=failures)
            rest = sum(list(left.values())[place:])
            if rest:
                tell(f"about {duration(rest)} left in all")
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


def _seconds(run: _Run, name: str) -> float:
    """About how many seconds a study takes here, minus what the store holds; 0 if finished."""
    try:
        description, key = run.describe(name)
        if run.finished(name, key):
            return 0.0
        seconds = description.cost(run.lab).seconds()
    except HeadcountError:  # the study itself will say so, and the others go on
        return BESIDE
    return BESIDE + (seconds if math.isfinite(seconds) else 0.0)


def _attempt(run: _Run, name: str) -> str | None:
    """Run a study, or only make its page again; why it could not be done, if so."""
    folder = run.out / name
    try:
        description, key = run.describe(name)
        if run.finished(name, key):
            write_page([folder], folder / "report.html")
        else:
            run.carry_out(name, description, key)
    except HeadcountError as error:
        return str(error)
    except OSError:  # no space left: the others would fail as well
        raise
    except Exception as error:  # a mistake of ours must not lose the other studies
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return None


def _teller(arguments: Namespace) -> Callable[[str], None]:
    """Print past the bars; to standard error where standard output is for JSON."""
    from tqdm import tqdm

    file = sys.stderr if arguments.json else sys.stdout

    def tell(text: str) -> None:
        tqdm.write(text, file=file)
        file.flush()

    return (lambda text: None) if arguments.json and arguments.quiet else tell


def _tell_verdicts(tell: Callable[[str], None], folder: Path, seconds: float | None) -> None:
    claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    counts = Counter(claim["verdict"] for claim in claims)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    how = "was finished before" if seconds is None else f"took {duration(seconds)}"
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
