"""Commands to go on with, made of what a run was and what it found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from headcount.report.head_data import top_heads
from headcount.report.read import Result, models_of
from headcount.tasks import TASKS

OTHER = "Qwen/Qwen3-0.6B"  # stands for the reader's own model


def go_on(result: Result, *, brief: bool = False) -> list[tuple[str, str]]:
    """What each command is for, and the command; the `brief` ones are about the study itself."""
    found = []
    if result.run.get("command"):
        found.append(("This result again; what is stored is not computed twice.", _own(result)))
    if result.study == "curve":
        found.append(("Four published studies, and one page over all.", "headcount demo --all"))
    else:
        run = f"headcount run {shlex.quote(result.study)}"
        found += [
            ("The same on a model of your own.", f"{run} --model {OTHER}"),
            ("In full size, on a GPU where there is one.", f"{run} --preset full"),
        ]
    best = top_heads(result)
    if best is None or not best[2]:
        return found
    _, task, heads = best
    model = shlex.quote(_model(result.run))
    if result.study == "token-insertion":  # its scores say what changes, not what matters
        layer, _, head = heads[0].partition(".")
        drawn = f"headcount run token-insertion --model {model} --layer {layer} --head {head}"
        return [*found, ("The attention of the head that changes most.", drawn)]
    named = " ".join(heads)
    if task in TASKS.entries:
        found.append(
            (
                f"What {task} loses without the {len(heads)} heads that rank highest here.",
                f"headcount ablate --model {model} --task {task} --heads {named} --metric logprob",
            )
        )
    if brief:
        return found
    if task in TASKS.entries:
        found.append(
            (
                "Do other rankings find the same heads?",
                f"headcount compare --model {model} --task {task} "
                "--methods attribution integrated-gradients",
            )
        )
    found += [
        (
            "Let the model write without these heads.",
            f"headcount generate --model {model} --heads {named} "
            "--prompt 'The capital of France is'",
        ),
        (
            "Keep the model without them as an ordinary checkpoint.",
            f"headcount export --model {model} --heads {named} --out without",
        ),
    ]
    return found


def _own(result: Result) -> str:
    return str(result.run["command"])


def _model(run: Mapping[str, Any]) -> str:
    """As the command line takes it: what was asked for, else the model's name."""
    asked = (run.get("asked") or {}).get("models")
    if asked:
        return str(asked[0])
    words = _words(str(run.get("command", "")))
    if "--model" in words[:-1]:
        return words[words.index("--model") + 1]
    return next(iter(models_of(run)), "smollm2-135m")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote that is not closed
        return []
