"""The texts of a page: each study's question and source, captions, and commands to try next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from headcount.report.head_rows import top_heads
from headcount.report.read import Result
from headcount.tasks import TASKS

OTHER = "Qwen/Qwen3-0.6B"  # an example of another model, for the commands
QUESTIONS = {
    "masked-heads": ("Do the heads that rank highest for a skill matter more than random heads?"),
    "heads-kept": "How many heads must be kept to explain what the model does?",
    "edges-kept": "How many attention edges must be kept to explain what the model does?",
    "transfer": "Are the heads that matter for a task heads of this task, or of every task?",
    "needle": "Which heads find one sentence in a long text, and does that hold at every length?",
    "head-roles": "Which heads help with a task, which do not matter, and which interfere?",
    "token-insertion": (
        "How do meaningless tokens in a prompt change the answers and the attention?"
    ),
    "silent-heads": "How many heads do nothing, and which score of activity finds them?",
    "contrast": "Can a model keep one form of a skill and forget another, by its heads?",
    "teamwork": "Which heads back each other up, and which do the same?",
    "steering": "Do heads that are pushed towards right answers make more answers right?",
    "pruned": "What does a smaller checkpoint lose, and does it matter which heads are kept?",
    "curve": "How much does the model lose as more and more heads are masked?",
    "contest": "Which ranking finds the heads that are needed, and at what cost?",
    "lm-eval": "What do standard benchmarks lose without the best heads of a ranking?",
}
SOURCES = {
    "masked-heads": "After “Cognitive Mirrors” (Ma et al., NeurIPS 2025), Figure 3.",
    "heads-kept": (
        "After “Sparse Attention Post-Training for Mechanistic Interpretability” (Draye et al., "
        "2025)."
    ),
    "edges-kept": (
        "After “Sparse Attention Post-Training for Mechanistic Interpretability” (Draye et al., "
        "2025)."
    ),
    "transfer": "After “Cognitive Mirrors” (Ma et al., NeurIPS 2025): its heads, tested elsewhere.",
    "needle": (
        "After “Retrieval Head Mechanistically Explains Long-Context Factuality” (Wu et al., "
        "ICLR 2025)."
    ),
    "head-roles": "After “Causal Head Gating” (Nam et al., NeurIPS 2025), Figure 2.",
    "token-insertion": (
        "After “Meaningless Tokens, Meaningful Gains” (Shi et al., 2025), Figure 10."
    ),
    "contrast": "After “Causal Head Gating” (Nam et al., NeurIPS 2025).",
    "teamwork": (
        "After “Interpretability in the Wild” (Wang et al., ICLR 2023) and “The Hydra Effect” "
        "(McGrath et al., 2023)."
    ),
    "steering": "After “Cognitive Mirrors” (Ma et al., NeurIPS 2025): its positive direction.",
    "silent-heads": (
        "After “Identifying and Evaluating Inactive Heads in Pretrained LLMs” (Sandoval-Segura et "
        "al., ICLR 2026)."
    ),
}
CAPTIONS = {
    "rankings": "TopK accuracy with several rankings of the heads.",
    "zero": "Explained effect against heads kept, with zero ablation of all other heads.",
    "plain": "Effect of ablating heads in the whole model, without soft gates.",
    "roles": "The role of each head, by its mean score over seeds.",
    "sweep-length": "Accuracy against the length of the insert.",
    "sweep-position": "Accuracy against the place of the insert.",
}
# The symbol that the page shows next to each verdict.
VERDICTS = {
    "supported": "✓",
    "refuted": "✗",
    "undecided": "?",
    "not comparable": "≠",
    "not tested": "–",
}


def next_commands(result: Result, *, brief: bool = False) -> list[tuple[str, str]]:
    """Commands to try next, each with its purpose; `brief` leaves out those about single heads."""
    again = str(result.run["command"])
    commands = [("Make this result again; stored values are reused.", again)] * bool(again)
    if result.study in ("curve", "contest", "lm-eval"):
        commands.append(("Run four published studies.", "headcount demo --all"))
    else:
        run = f"headcount run {shlex.quote(result.study)}"
        commands += [
            ("Run this study on another model.", f"{run} --model {OTHER}"),
            ("Run this study in full size, if possible on a GPU.", f"{run} --preset full"),
        ]
    best = top_heads(result)
    if best is None or not best[2]:
        return commands
    _, task, heads = best
    model = shlex.quote(_model(result.run))
    if any(facts.get("unit") == "kv" for facts in result.run["model"].values()):
        model += " --unit kv"  # the names are those of key/value heads
    if result.study == "token-insertion":  # its scores say which heads change, not which matter
        layer, _, head = heads[0].partition(".")
        drawn = f"headcount run token-insertion --model {model} --layer {layer} --head {head}"
        return [*commands, ("Draw the attention of the head that changes most.", drawn)]
    named = " ".join(heads)
    on_task = f"--model {model} --task {task}"
    best_heads = "head that ranks" if len(heads) == 1 else f"{len(heads)} heads that rank"
    without = f"Measure what {task} loses without the {best_heads} highest here."
    ablate = f"headcount ablate {on_task} --heads {named} --metric logprob"
    others = f"headcount compare {on_task} --ranking attribution integrated-gradients"
    prompt = "--prompt 'The capital of France is'"
    write = f"headcount generate --model {model} --heads {named} {prompt}"
    keep = f"headcount export --model {model} --heads {named} --out without"
    known = task in TASKS  # a task of the user's own may need more than its name
    commands += [(without, ablate)] * known
    if result.study == "curve" and known:
        another = f"headcount curve --model {OTHER} --task {task}"
        by_hand = f"headcount explore --model {model} --heads {named}"
        commands += [("Draw this curve of another model.", another)]
        commands += [("Switch these heads off by hand: pip install 'headcount[explore]'.", by_hand)]
    if not brief:
        commands += [("Check whether other rankings find the same heads.", others)] * known
        commands += [("Let the model write without these heads.", write)]
        commands += [("Save the model without these heads as an ordinary checkpoint.", keep)]
    return commands


def _model(run: Mapping[str, Any]) -> str:
    """The model for `--model`: that of the run's own command, else the name of the model."""
    try:
        words = shlex.split(run["command"])
    except ValueError:  # a quote that is not closed
        words = []
    if "--model" in words[:-1]:
        return words[words.index("--model") + 1]
    return next(iter(run["model"]), "smollm2-135m-q4")
