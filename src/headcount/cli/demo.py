"""`headcount demo`: a head-ablation curve of the bundled model, in minutes."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from headcount.cli.common import Answer, claim_lines, files_text, lab_from, tell_store
from headcount.curves import curve as make_curve
from headcount.models.model import load_model
from headcount.report.curve_study import curve_study
from headcount.system.folders import check_place
from headcount.tasks import make_task

MODEL = "smollm2-135m-q4"
# Two cores measure about 600 tokens of this model in a second: this is a few minutes' work.
EXAMPLES = 96
SETTINGS: dict[str, Any] = {"counts": [0, 1, 2, 4, 8, 16, 32, 64], "seeds": 5}
AT = 8  # the number of masked heads at which the claims are judged


def demo(arguments: Namespace) -> Answer | None:
    """Rank the heads by attribution on IOI, mask the best and random ones, draw both."""
    if arguments.all:
        from headcount.cli.demo_all import demo_all

        demo_all(arguments)
        return None
    out = check_place(arguments.out or "out/demo")
    say = (lambda text: None) if arguments.json else print
    say(f"Loading {MODEL} (the first time, its 93 MB are fetched and converted)")
    model = load_model(MODEL)
    layout = model.layout
    say(f"It has {layout}; checks have shown that each can be gated alone")
    task = make_task("ioi", model.tokenizer, n=EXAMPLES)
    example = task.examples[0]
    say(f'Task: "{example.prompt}" → "{example.target.strip()}", not "{example.foils[0].strip()}"')
    with lab_from(arguments) as lab:
        tell_store(arguments, lab)
        result = make_curve(model, task, lab=lab, **SETTINGS)
    facts = {"model": MODEL, "examples": EXAMPLES, **SETTINGS}
    study = curve_study(result, model, task, facts, comparisons())
    paths = study.save(out, "headcount demo", page="index.html")
    return Answer(
        {"claims": [vars(claim) for claim in study.claims], "files": paths},
        "\n".join(["", str(result), "", *claim_lines(study.claims), files_text(paths)]),
    )


def comparisons() -> list[dict[str, Any]]:
    """The claims of the demo: whether the ranking finds heads that matter more than controls."""
    controls = {"random": "random heads", "matched": "random heads of the same layers"}
    return [
        {
            "claim": f"masking the top {AT} heads costs more accuracy than masking {AT} {words}",
            "one": "top",
            "other": control,
            "count": AT,
            "below": -0.05,
        }
        for control, words in controls.items()
    ]
