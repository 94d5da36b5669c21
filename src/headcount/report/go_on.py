"""Commands to go on with, made of what a run was and what it found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from headcount.report.head_data import top_heads
from headcount.report.read import Result
from headcount.tasks import TASKS

OTHER = "Qwen/Qwen3-0.6B"  # stands for the reader's own model


def go_on(result: Result, *, brief: bool = False) -> list[tuple[str, str]]:
    """What each command is for, and the command; the `brief` ones are about the study itself."""
    again = str(result.run["command"])
    commands = [("This result again; what is stored is not computed twice.", again)] * bool(again)
    if result.study == "curve":
        commands.append(("Four published studies, and one page over all.", "headcount demo --all"))
    else:
        run = f"headcount run {shlex.quote(result.study)}"
        commands += [
            ("The same on a model of your own.", f"{run} --model {OTHER}"),
            ("In full size, on a GPU where there is one.", f"{run} --preset full"),
        ]
    best = top_heads(result)
    if best is None or not best[2]:
        return commands
    _, task, heads = best
    model = shlex.quote(_model(result.run))
    if result.study == "token-insertion":  # its scores say what changes, not what matters
        layer, _, head = heads[0].partition(".")
        drawn = f"headcount run token-insertion --model {model} --layer {layer} --head {head}"
        return [*commands, ("The attention of the head that changes most.", drawn)]
    named = " ".join(heads)
    on_task = f"--model {model} --task {task}"
    without = f"What {task} loses without the {len(heads)} heads that rank highest here."
    ablate = f"headcount ablate {on_task} --heads {named} --metric logprob"
    others = f"headcount compare {on_task} --methods attribution integrated-gradients"
    prompt = "--prompt 'The capital of France is'"
    write = f"headcount generate --model {model} --heads {named} {prompt}"
    keep = f"headcount export --model {model} --heads {named} --out without"
    known = task in TASKS.entries  # a task of the user's own may need more than its name
    commands += [(without, ablate)] * known
    if not brief:
        commands += [("Do other rankings find the same heads?", others)] * known
        commands += [("Let the model write without these heads.", write)]
        commands += [("Keep the model without them as an ordinary checkpoint.", keep)]
    return commands


def _model(run: Mapping[str, Any]) -> str:
    """As the command line takes it: what the run's own command says, else the model's name."""
    try:
        words = shlex.split(run["command"])
    except ValueError:  # a quote that is not closed
        words = []
    if "--model" in words[:-1]:
        return words[words.index("--model") + 1]
    return next(iter(run["model"]), "smollm2-135m")
