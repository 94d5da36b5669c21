"""Let rankings compete for planted circuits, and write docs/results/contest/planted-NAME.

    python scripts/contest_planted.py           # a few minutes on one core
    python scripts/contest_planted.py usual     # one circuit

The circuits are those of tests/planted_circuit.py: a chain, pairs of backups, a head that works
against the answer, and heads that do nothing. So the right heads to keep and to mask are known.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from headcount import Lab
from headcount.curves.contest import contest
from headcount.report.contest_study import contest_study

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from planted_circuit import plant_circuit  # noqa: E402

OUT = ROOT / "docs" / "results" / "contest"
CIRCUITS: dict[str, dict[str, Any]] = {
    "usual": {},
    "deep": {"chain": ("0.0", "1.1", "3.2", "4.0"), "pairs": (("0.1", "4.3"),), "layers": 5},
}
RANKINGS = (
    "attribution",
    "integrated-gradients",
    "ablation",
    "denoising",
    "shapley",
    "iterative",
    "ensemble",
    "greedy",
    "budget-gates",
    "random",
)
EXAMPLES = 48


def main() -> None:
    """Run the contests of all circuits, or of those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("circuits", nargs="*", help=f"of {', '.join(CIRCUITS)} (all)")
    for name in parser.parse_args().circuits or CIRCUITS:
        circuit = plant_circuit(**CIRCUITS[name], n=EXAMPLES)
        task = replace(circuit.task, name=f"planted-{name}")
        settings = {"budget-gates": {"updates": 150, "budgets": (circuit.kept, circuit.masked)}}
        found = contest(
            circuit.model,
            task,
            RANKINGS,
            metric="logit_difference",
            seeds=20,
            settings=settings,
            truth=circuit.truth,
            lab=Lab(store=None),
        )
        about = {"metric": "logit_difference", "ablation": "zero", "circuit": CIRCUITS[name]}
        study = contest_study(found, circuit.model, {**about, "rankings": settings})
        folder = OUT / f"planted-{name}"
        study.save(folder, f"python scripts/contest_planted.py {name}")
        for path in [*folder.glob("*.svg"), *folder.glob("*.pdf"), *folder.glob("*.html")]:
            path.unlink()
        for path in folder.glob("scores/*.npz"):
            path.unlink()
        print(folder)


if __name__ == "__main__":
    main()
