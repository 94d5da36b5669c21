"""Draw all committed figures again: after a change of how figures look.

    python scripts/draw_results.py                    # everything
    python scripts/draw_results.py heads-kept         # one kind of results

Studies are made again from their values (`headcount report FOLDER --again`), figures across models
from their folders, and those of post-training from their logs. No model is loaded. The forms of the
published figures in the gallery have a script of their own, `draw_published.py`.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

from headcount.figures.edges import Log, plot_edges
from headcount.figures.style import save_figure
from headcount.models.weights import display_names
from headcount.report.across import STUDIES as ACROSS
from headcount.report.across import write_across
from headcount.sparse.checkpoint import FACTS, SHIPPED
from headcount.studies.again import make_again

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def tidy(folder: Path) -> None:
    """Leave only what is committed: no SVG and no PDF."""
    for path in [*folder.glob("*.svg"), *folder.glob("*.pdf")]:
        path.unlink()


def read_log(path: Path) -> Log:
    """The log of a training run."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {name: float(text) for name, text in row.items() if text}
            for row in csv.DictReader(file)
        ]


def post_training(folder: Path) -> None:
    """Draw a training run of the bundled model from its logs."""
    log, control = (read_log(folder / f"{name}log.csv") for name in ("", "control-"))
    nothing = dict.fromkeys(log[0] | {"averaged_edges": 0}, float("nan"))
    model, _, run = folder.name.partition("-q4-")
    facts = json.loads((RESULTS / "head-roles" / f"{model}-q4" / "run.json").read_text("utf-8"))
    named = display_names(facts["model"])[f"{model}-q4"]
    known = folder / FACTS  # that of the bundled model lies beside its weights
    known = known if known.exists() else SHIPPED / f"{model}-q4" / FACTS
    share = json.loads(known.read_text("utf-8"))["training"]["open_edges"]
    title = f"{named}, {run}: {share:.2%} of the edges stay open"
    rows = [nothing | dict(row) for row in log]
    save_figure(plot_edges(rows, control=control, title=title), folder)


def main() -> None:
    """Draw every kind of result, or some."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kinds = sorted(path.name for path in RESULTS.iterdir() if path.is_dir())
    parser.add_argument("kinds", nargs="*", help=f"such as {' '.join(kinds[:2])} (all)")
    for kind in parser.parse_args().kinds or kinds:
        runs = sorted(path.parent for path in (RESULTS / kind).glob("*/run.json"))
        for folder in runs:
            make_again(folder)
        if kind in ACROSS and len(runs) > 1:
            write_across(runs, RESULTS / kind)
            for name in ("", "-column"):
                (RESULTS / kind / f"figure{name}.png").rename(RESULTS / kind / f"across{name}.png")
        logs = [] if runs else sorted(path.parent for path in (RESULTS / kind).glob("*/log.csv"))
        for folder in logs:
            post_training(folder)
        for folder in [RESULTS / kind, *runs, *logs]:
            tidy(folder)
        print(kind, len(runs) + len(logs), flush=True)


if __name__ == "__main__":
    main()
