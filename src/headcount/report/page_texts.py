"""What a page says beside a result: the question, its source, captions, and commands to go on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from headcount.report.head_rows import top_heads
from headcount.report.read import Result
from headcount.tasks import TASKS

OTHER = "Qwen/Qwen3-0.6B"  # stands for the reader's own model
QUESTIONS = {
    "masked-heads": (
        "Do the heads that rank highest for a skill matter more than as many random ones?"
    ),
    "heads-kept": "How many heads must stay to explain what the model does?",
    "head-roles": "Which heads help with a task, which do not matter, and which are in the way?",
    "token-insertion": (
        "What do meaningless tokens in a prompt do to the answers, and to attention?"
    ),
    "curve": "What is lost as more and more heads are masked?",
}
SOURCES = {
    "masked-heads": "After “Cognitive Mirrors” (Ma et al., NeurIPS 2025), Figure 3.",
    "heads-kept": (
        "After “Sparse Attention Post-Training for Mechanistic Interpretability” (Draye et al., "
        "2025)."
    ),
    "head-roles": "After “Causal Head Gating” (Nam et al., NeurIPS 2025), Figure 2.",
    "token-insertion": (
        "After “Meaningless Tokens, Meaningful Gains” (Shi et al., 2025), Figure 10."
    ),
}
CAPTIONS = {
    "rankings": "Accuracy under other rankings of the heads.",
    "zero": "The same with zero in the place of absent heads.",
    "plain": "The same from the whole model instead of soft gates.",
    "roles": "The role of each head, by the mean of its scores.",
    "sweep-length": "Accuracy against the length of the insert.",
    "sweep-position": "Accuracy against the place of the insert.",
}
# Each verdict, and the sign beside its word.
VERDICTS = {
    "supported": "✓",
    "refuted": "✗",
    "undecided": "?",
    "not comparable": "≠",
    "not tested": "–",
}


def next_commands(result: Result, *, brief: bool = False) -> list[tuple[str, str]]:
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
    others = f"headcount compare {on_task} --ranking attribution integrated-gradients"
    prompt = "--prompt 'The capital of France is'"
    write = f"headcount generate --model {model} --heads {named} {prompt}"
    keep = f"headcount export --model {model} --heads {named} --out without"
    known = task in TASKS  # a task of the user's own may need more than its name
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
    return next(iter(run["model"]), "smollm2-135m-q4")
