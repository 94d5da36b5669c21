"""Measure a sample of committed results again, and compare: for whenever the engine has changed.

    python scripts/check_results.py                          # every study under docs/results
    python scripts/check_results.py docs/results/heads-kept/smollm2-135m-q4

Each study runs once more with the settings that its folder names, narrowed to one task and one or
two counts, from the ranking on and with nothing from a store. Rows that both have are compared.
Where one differs by more than is allowed, the exit code is 1: then either the engine is wrong, or
its numbers have changed for a reason, and `MEASUREMENT` in engine/measure/plan.py must be raised
and the results made again.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.models.model import Model, load_model
from headcount.studies import STUDIES, study_config
from headcount.studies.run import run_study

RESULTS = Path(__file__).parents[1] / "docs" / "results"
# What tells rows of a study's table from each other; a study has some of these columns.
KEYS = ("model", "task", "series", "score", "metric", "count", "ranking", "ablation", "place")
KEYS += ("positions",)  # of needle
KEYS += ("ranked", "without")  # of transfer, which needs two tasks
KEYS += ("form", "kept")  # of contrast
KEYS += ("places",)  # of teamwork
KEYS += ("alpha",)  # of steering
# Written answers are right or wrong, and a tie between two tokens may break otherwise elsewhere.
WRITTEN, READ, READ_IN_HALF = 0.03, 0.005, 0.03


@dataclass(frozen=True)
class Compared:
    """A value of the committed table and the same one measured again."""

    row: Mapping[str, str]
    committed: float
    measured: float
    half: bool = False  # measured in half precision, which another machine rounds otherwise

    @property
    def allowed(self) -> float:
        """How far the two may be apart."""
        of_logits = ("explained_effect", "logprob", "logit")
        read = READ_IN_HALF if self.half else READ
        return read if self.row["metric"].startswith(of_logits) else WRITTEN

    @property
    def same(self) -> bool:
        """Whether they agree; two unknown values do."""
        if math.isnan(self.committed) and math.isnan(self.measured):
            return True
        return abs(self.committed - self.measured) <= self.allowed

    def __str__(self) -> str:
        where = " · ".join(self.row[key] for key in KEYS if key in self.row and key != "model")
        return f"{where}: {self.committed:.4f} → {self.measured:.4f} (± {self.allowed:g})"


def narrowed(study: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a committed run, with less of everything that may be less."""
    known = {field.name for field in fields(study_config(study))}
    chosen: dict[str, Any] = {}
    for name, value in run["settings"].items():
        if name in known:
            chosen[name] = value["key"] if isinstance(value, dict) and "key" in value else value
    chosen.pop("redistribution", None)  # written down in other words than it is asked for
    if "task_settings" in known:
        chosen["task_settings"] = run["settings"].get("task") or {}
    for name in ("functions", "tasks", "rankings", "lengths", "left_out", "keep", "alphas"):
        if chosen.get(name):
            chosen[name] = chosen[name][: 2 if study == "transfer" else 1]
    if chosen.get("counts"):
        counts = [count for count in chosen["counts"] if count]
        chosen["counts"] = counts[1:2] or counts
    if study == "silent-heads":
        chosen["shares"] = chosen["shares"][:1]
    if study == "teamwork":
        chosen["top"] = 4
    if study in ("masked-heads", "heads-kept", "silent-heads"):
        chosen["seeds"] = 1  # of random draws, which are then not compared
    if study == "masked-heads":
        chosen |= {"rerankings": 0, "anywhere": 0}
    if study == "token-insertion":
        chosen |= {"prompts": 0, "sweep": ""}
    return chosen


def comparable(row: Mapping[str, str]) -> bool:
    """Whether a committed row means the same in a narrowed run: not where draws are averaged."""
    return row["series"] not in ("random", "matched")


def its_model(folder: Path, name: str = "", device: str | None = None) -> Model:
    """The first model that a folder names, or the one of this name, in the folder's precision."""
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))["model"]
    first = next(iter(facts))
    return load_model(name or first, dtype=str(facts[first]["dtype"]), device=device)


def compare(folder: Path, model: Model) -> list[Compared]:
    """Run a folder's study again in small, and compare what both have."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    study = run["study"]
    facts = run["model"]
    weights = model.identity["weights"]
    label = next((name for name, one in facts.items() if one["weights"] == weights), None)
    if label is None:
        raise HeadcountError(
            f"{folder} was measured on other weights than those of {model.name}: name its own "
            "model with --model."
        )
    settings = narrowed(study, run)
    again = run_study(study, model, **settings, lab=Lab(store=None))
    with (folder / "curves.csv").open(newline="", encoding="utf-8") as file:
        # of a folder that compares models, only the rows of the one that runs again
        ours = [row for row in csv.DictReader(file) if row.get("model", label) == label]
    committed = {_key(row): row for row in ours if comparable(row)}
    found = []
    for row in again.rows:
        texts = {name: str(value) for name, value in row.items()}
        old = committed.get(_key(texts))
        if old is not None:
            values = float(old["value"]), float(row["value"])
            found.append(Compared(old, *values, half=facts[label]["dtype"] != "float32"))
    return found


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[key] for key in KEYS if key in row and key != "model")


def check(folder: Path, model: Model) -> bool:
    """Compare one folder and say so; whether all of it agrees."""
    found = compare(folder, model)
    different = [one for one in found if not one.same]
    for one in different:
        print(f"  DIFFERENT {one}")
    furthest = max((abs(one.committed - one.measured) for one in found), default=math.nan)
    print(
        f"{folder}: {len(found) - len(different)} of {len(found)} values agree "
        f"(the furthest differs by {furthest:.1e})",
        flush=True,
    )
    return bool(found) and not different


def studies() -> list[Path]:
    """The folders that can be measured again: benchmarks of lm-eval need their documents."""
    folders = sorted(path.parent for path in RESULTS.rglob("run.json"))
    return [
        f for f in folders if json.loads((f / "run.json").read_text("utf-8"))["study"] in STUDIES
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Check every folder; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="default: all under docs/results")
    parser.add_argument("--model", help="default: the one that the folder names")
    parser.add_argument("--device")
    arguments = parser.parse_args(argv)
    folders = arguments.folders or studies()
    try:
        how = arguments.model or "", arguments.device
        agree = [check(folder, its_model(folder, *how)) for folder in folders]
    except (HeadcountError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
