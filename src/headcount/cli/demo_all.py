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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from headcount.cli.common import Answer, lab_from, tell_store
from headcount.errors import HeadcountError, counted
from headcount.lab import Lab
from headcount.models.model import Model, load_model
from headcount.report import read_result, write_page
from headcount.report.study import versions
from headcount.studies import DEMO, PUBLISHED, study_kind
from headcount.studies.description import Description, resume_key
from headcount.system.folders import check_place
from headcount.system.progress import duration

PRESET = "quick"
OVERHEAD = 15.0  # seconds of each study for resampling, figures and pages


class _Plan(NamedTuple):
    """The plan of one study; `seconds` is 0 if the study was finished before."""

    description: Description
    key: str  # identifies the folder of the finished study
    seconds: float


@dataclass(eq=False)
class _Demo:
    """The state of a run of all studies: its folder, lab and models, its plans and failures."""

    out: Path
    lab: Lab
    tell: Callable[[str], None]
    models: dict[str, Model] = field(default_factory=dict)
    plans: dict[str, _Plan] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def surviving(self, name: str) -> Iterator[None]:
        """Record why a study failed, so that the other studies still run."""
        try:
            yield
        except HeadcountError as error:
            self.failures[name] = str(error)
        except OSError:  # no space left: the others would fail as well
            raise
        except Exception as error:  # an error in headcount
            traceback.print_exc()
            self.failures[name] = f"{type(error).__name__}: {error}"

    def plan(self, name: str) -> None:
        """Describe a study, and estimate how long it takes on this machine."""
        kind = study_kind(name)
        for spec in kind.models:
            if spec not in self.models:
                self.models[spec] = load_model(spec)
        models, config = [self.models[spec] for spec in kind.models], kind.configure(PRESET)
        description, key = kind.describe(models, config), resume_key(name, config, models)
        seconds = 0.0
        if not finished(self.out / name, key):
            measuring = description.cost(self.lab).seconds()
            seconds = OVERHEAD + (measuring if math.isfinite(measuring) else 0.0)
        self.plans[name] = _Plan(description, key, seconds)

    def carry_out(self, name: str) -> None:
        """Run a study into its folder, or only make the page of a finished one again."""
        plan, folder, start = self.plans[name], self.out / name, time.monotonic()
        if not plan.seconds:
            write_page([folder], folder / "report.html")
            how = "was finished before"
        else:
            study, where = plan.description.carry_out(self.lab), shlex.quote(folder.as_posix())
            command = f"headcount run {name} --preset {PRESET} --out {where}"
            study.save(folder, command, asked=plan.key)
            how = f"took {duration(time.monotonic() - start)}"
        claims = read_claims(folder)
        counts = Counter(claim["verdict"] for claim in claims)
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        self.tell(f"{counted(len(claims), 'claim')}: {words} · {how} · {folder / 'report.html'}")

    def left(self, names: list[str]) -> float:
        """The estimated seconds of these studies."""
        return sum(self.plans[name].seconds for name in names if name in self.plans)


def demo_all(arguments: Namespace) -> None:
    """Run the studies that are not finished, make all pages again, and print the verdicts."""
    out, names, pages = check_place(arguments.out or "out/demo-all"), list(DEMO), []
    index, stream = out / "index.html", sys.stderr if arguments.json else sys.stdout

    def tell(text: str) -> None:
        if not (arguments.json and arguments.quiet):
            print(text, file=stream, flush=True)

    with lab_from(arguments) as lab:
        lab.say = tell
        tell_store(arguments, lab)
        demo = _Demo(out, lab, tell)
        tell("Loading the models (the first time, they are fetched and converted)")
        for name in names:
            with demo.surviving(name):
                demo.plan(name)
        if waiting := demo.left(names):
            many = sum(plan.seconds > 0 for plan in demo.plans.values())
            tell(
                f"{many} of {len(names)} studies to run: about {duration(waiting)} on this "
                "machine. If it is interrupted, the same command goes on."
            )
        for number, name in enumerate(names, start=1):
            seconds = demo.left([name])
            ahead = f", about {duration(seconds)}" if seconds else ""
            tell(f"\n[{number}/{len(names)}] {name}{ahead}: {PUBLISHED[name]}")
            if name in demo.plans:
                with demo.surviving(name):
                    demo.carry_out(name)
                    pages.append(name)
            if name in demo.failures:
                tell(f"not finished: {demo.failures[name]}")
            if pages:  # readable while the other studies run
                write_page([out / page for page in pages], index, failures=demo.failures)
            if rest := demo.left(names[number:]):
                tell(f"about {duration(rest)} left in all")
    failures = demo.failures
    if not pages:
        raise HeadcountError(next(iter(failures.values())))
    studies = {name: {"folder": out / name, "claims": read_claims(out / name)} for name in pages}
    document = {"page": index, "studies": studies, "failures": failures}
    text = f"\nEverything on one page, for a browser: {index}"
    Answer(document, text).print(as_json=arguments.json)
    if failures:
        raise HeadcountError(f"not finished: {', '.join(failures)}; the same command tries again.")


def finished(folder: Path, key: str) -> bool:
    """Whether the folder holds the complete result with this key, made by these versions."""
    try:
        run = read_result(folder).run
    except (OSError, HeadcountError):
        return False
    return bool(run.get("asked") == key and run.get("versions") == versions())


def read_claims(folder: Path) -> list[dict[str, Any]]:
    """The claims of a finished study."""
    claims: list[dict[str, Any]] = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    return claims
