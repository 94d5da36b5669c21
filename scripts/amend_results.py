"""Add to committed results what newer versions record of their models, without measuring again.

    python scripts/amend_results.py smollm2-135m-q4 sparse:smollm2-135m-q4 FILE.gguf …

Each result names the checksum of its models' weights. Where a model that is given has the same
checksum, the format in which its weights are stored and its number of parameters are added to
run.json, and so is the largest value of metrics that have one. The gates of head-roles that have
this checksum give the roles of all heads in every fit. The attention profiles that token-insertion
draws are computed anew from the same prompts, in a minute or two for each model, and must agree
with what the result has of these prompts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headcount.metrics import get_metric
from headcount.models.model import Model, load_model
from headcount.rankings.causal_gates.result import CausalGates
from headcount.studies.head_roles.config import ROWS
from headcount.studies.head_roles.gates import shipped_gates
from headcount.studies.head_roles.roles import HeadRoles
from headcount.studies.token_insertion.attention import QUERIES, profiles
from headcount.studies.token_insertion.config import Config
from headcount.studies.token_insertion.figure import five_digits
from headcount.studies.token_insertion.grading import problems
from headcount.studies.token_insertion.internals import InternalsRequest
from headcount.system.files import write_json
from headcount.value_table import ValueTable

RESULTS = Path(__file__).parents[1] / "docs" / "results"
ADDED = ("parameters", "stored")


def amended(facts: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of a model, with what is known of these weights behind the heads."""
    more = known.get(facts["weights"], {})
    heads = {"heads": facts["heads"]}
    return heads | dict(more) | {k: v for k, v in facts.items() if k not in heads | more}


def add_roles(run: dict[str, Any]) -> None:
    """Add the roles of all heads to the panels of head-roles, from the gates that were used."""
    for panel in run["facts"]["panels"]:
        weights = run["model"][panel["model"]]["weights"]
        for path in sorted(shipped_gates().glob("*/*.json")):
            gates = CausalGates.load(path)
            own = ROWS.get(path.stem, path.stem) == panel["task"]
            if own and gates.parameters.get("weights") == weights:
                roles = HeadRoles.of(gates.first(run["settings"]["seeds"]))
                carriers = {role: float(has.sum(1).mean()) for role, has in roles.has.items()}
                if carriers != panel["carriers"]:
                    raise SystemExit(f"The gates in {path} are not those of {panel['task']}.")
                panel["roles"] = roles.facts()


def add_profiles(folder: Path, run: dict[str, Any], model: Model) -> None:
    """Add the profiles of one model, if its prompts come along with headcount."""
    settings, weights = run["settings"], model.identity["weights"]
    label = next((n for n, facts in run["model"].items() if facts["weights"] == weights), None)
    if label is None or settings["task"]:  # of other prompts than those of the task itself
        return
    config = Config(prompts=settings["prompts"])
    task, _ = problems(model, settings["tasks"][0], config)
    inside = run["facts"]["inside"][label]
    request = InternalsRequest(
        model,
        task.subset(settings["prompts"]),
        config.inserts(),
        inside["layer"],
        settings["head"],
        np.ones(model.layout.total),
        settings["sinks"],
    )
    alike, spans = request.alike
    heads = model.layout.layers == inside["layer"]
    number = int(inside["head"].partition(".")[2])
    series = {}
    for which in request.prompts:
        found = [own[heads] for own in profiles(model, [request.ids(which)[n] for n in alike])]
        table = np.mean(found, axis=0)
        drawn = zip(("head", "mean"), map(five_digits, (table[number], table.mean(0))), strict=True)
        series[which] = {**dict(drawn), "span": spans[which]}
        if spans[which]:
            places = [list(request.prompts[which][n].original) for n in alike]
            again = [one[number][p] for one, p in zip(found, places, strict=True)]
            about = {"model": label, "series": which, "where": inside["head"]}
            check(folder, about, alike, [one[1 : len(one) - QUERIES].mean() for one in again])
    run["facts"].setdefault("profiles", {})[label] = {
        "head": inside["head"],
        "heads": int(heads.sum()),
        "choosing": len(inside["choosing"]),
        "aligned": len(alike),
        "sinks": settings["sinks"],
        "series": series,
    }


def check(
    folder: Path, about: Mapping[str, str], alike: Sequence[int], again: Sequence[float]
) -> None:
    """Compare the attention on original tokens with what the result has of each prompt."""
    values = ValueTable.read(folder)
    (facts,) = values.facts(**about, metric="original", queries="all")
    apart = float(np.max(np.abs(np.array(again) / values.get(**facts)[0][list(alike)] - 1)))
    print(f"{', '.join(about.values())}: attention differs by at most {apart:.1e} of its size")
    if apart > 0.001:
        raise SystemExit(f"{folder}: these profiles are not those of its prompts.")


def main() -> None:
    """Amend every run.json under docs/results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", help="names, folders or .gguf files")
    paths = sorted(RESULTS.rglob("run.json"))
    runs = {path: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    for spec in parser.parse_args().models:
        model = load_model(spec, dtype="bfloat16")
        known = {model.identity["weights"]: {name: model.facts[name] for name in ADDED}}
        for path, run in runs.items():
            run["model"] = {name: amended(facts, known) for name, facts in run["model"].items()}
            if run["study"] == "token-insertion":
                add_profiles(path.parent, run, model)
            write_json(path, run)
    for path, run in runs.items():
        if run["study"] == "head-roles":
            add_roles(run)
        for metric in run["facts"].get("metrics", ()) if run["study"] == "masked-heads" else ():
            metric["most"] = get_metric(metric["key"]).most  # type: ignore[union-attr]
        write_json(path, run)
        print(path, [facts.get("stored") for facts in run["model"].values()])


if __name__ == "__main__":
    main()
