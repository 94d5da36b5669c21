"""Forecast the published figures on their largest models, for the table in docs/published.md.

    python benchmarks/published.py          # counts (minutes, any machine), then writes the page
    python benchmarks/published.py --page   # the page again, from the file

The work is counted by headcount itself, for `--preset paper`: on a random model with the published
number of layers and heads (and few weights, which the count does not depend on), and on made-up
questions of the published layout, number and about the published length, as far as these are known.
Times are the counted tokens times the rates of `devices.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapes import Shape, random_llama
from torch import float32

from headcount import Lab, load_model, wrap
from headcount.engine.measure.cost import Cost
from headcount.engine.measure.devices import MEMORY, rate
from headcount.models.model import Model
from headcount.studies.run import describe_study
from headcount.system.progress import duration

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "published.json"
PAGE = ROOT / "docs" / "published.md"
START, END = "<!-- written by benchmarks/published.py -->", "<!-- end -->"
WORDS = ("time", "day", "man", "world", "life", "hand", "part", "eye", "place", "work", "week")
SKILLS = ("Retrieval", "Knowledge Recall", "Semantic Understanding", "Syntactic Understanding")
SKILLS += ("Math Calculation", "Inference", "Logical Reasoning", "Decision-making")

# What is assumed about data that are not at hand; a run with --dry-run counts the real ones.
ASSUMED = {
    "masked-heads": "576 and 144 questions of 60 tokens with 5 steps, one in 8 of each function",
    "heads-kept": "our own prompts; the sparse model at the rate of a dense one, as its kernel was "
    "not measured",
    "head-roles": "prompts of about 35 (Syntax), 75 (Common Sense) and 250 tokens (Math)",
    "token-insertion": "500 problems of 70 tokens; every answer has the longest length, 2,048",
}


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(count))


def write(folder: Path, name: str, rows: list[Any]) -> str:
    path = folder / name
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def shaped(tokenizer: Any, name: str, layers: int = 32, heads: int = 32) -> Model:
    """A random model with this many layers and heads, and hardly any weights."""
    shape: Shape = (len(tokenizer) + 8, 8 * heads, 64, layers, heads, heads, True)
    module = random_llama(shape, "cpu", float32)
    module.config.max_position_embeddings = 131_072
    return wrap(module, tokenizer, name=name)


def masked_heads(folder: Path, model: Callable[[str], Model]) -> Cost:
    rng = random.Random(0)

    def questions(count: int) -> list[Any]:
        return [
            {
                "question": words(rng, 60),
                "generated": [
                    {
                        "subquestion": words(rng, 14),
                        "answer": words(rng, 6),
                        "cognitive_skill": SKILLS[(number + step) % len(SKILLS)],
                    }
                    for step in range(5)
                ],
            }
            for number in range(count)
        ]

    files = {
        "path": write(folder, "train.jsonl", questions(576)),
        "test": write(folder, "test.jsonl", questions(144)),
    }
    return cost("masked-heads", [model("Llama-3.1-8B-Instruct")], task_settings=files)


def heads_kept(folder: Path, model: Callable[[str], Model]) -> Cost:
    pair = [model("OLMo-7B"), model("sparse OLMo-7B")]
    tasks = ("docstring", "ioi-long")
    return cost("heads-kept", pair, tasks=tasks, pairs=())


def head_roles(folder: Path, model: Callable[[str], Model]) -> Cost:
    rng = random.Random(0)
    kinds = ("linguistic_mappings", "tense", "subject_verb_agreement")
    for kind in kinds:
        rows = [
            {
                "inputs": f"{words(rng, 10)} {number}",
                "targets": [rng.choice(WORDS)],
                "multiple_choice_targets": [],
            }
            for number in range(400)
        ]
        write(folder, f"{kind}.jsonl", rows)
    options = [words(rng, 1) + str(n) for n in range(5)]
    common = [
        {
            "id": str(number),
            "question": f"{words(rng, 12)} {number}?",
            "choices": {"label": list("ABCDE"), "text": options},
            "answerKey": "ABCDE"[number % 5],
        }
        for number in range(1200)
    ]
    maths = [
        {
            "problem": f"{words(rng, 25)} {number}?",
            "generated_solution": words(rng, 85),
            "expected_answer": "1",
        }
        for number in range(1200)
    ]
    settings = {
        "validation": 0.5,
        "big-bench": {"path": str(folder)},
        "commonsense-qa": {"path": write(folder, "csqa.jsonl", common)},
        "openmath": {"path": write(folder, "maths.jsonl", maths)},
    }
    return cost("head-roles", [model("Llama-3.1-8B")], task_settings=settings)


def token_insertion(folder: Path, model: Callable[[str], Model]) -> Cost:
    rng = random.Random(0)
    rows = [
        {"problem": f"{words(rng, 68)} {number}", "answer": "1", "subject": "Algebra"}
        for number in range(500)
    ]
    path = write(folder, "math.jsonl", rows)
    chosen = model("Llama-3.1-8B-Instruct")
    settings = {"task_settings": {"math-500": {"path": path}}, "decoding": "given"}
    sampled = {"temperature": 0.6, "top_p": 0.9}  # the model's own settings
    return cost("token-insertion", [chosen], **settings, **sampled)


def cost(study: str, models: list[Model], **settings: Any) -> Cost:
    description = describe_study(study, models, preset="paper", **settings)
    return description.cost(Lab(store=None, progress=False))


COUNTS = {
    "masked-heads": (masked_heads, "Llama-3.1-8B-Instruct, four functions", 8_030_261_248, 1),
    "heads-kept": (heads_kept, "OLMo-7B and its sparse version, two panels", 6_888_095_744, 2),
    "head-roles": (head_roles, "Llama-3.1-8B, three rows", 8_030_261_248, 1),
    "token-insertion": (token_insertion, "Llama-3.1-8B-Instruct, three bars", 8_030_261_248, 1),
}


def count() -> list[dict[str, Any]]:
    tokenizer = load_model("smollm2-135m-q4").tokenizer
    rows = []
    for study, (counted, what, parameters, models) in COUNTS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = counted(Path(folder), lambda name: shaped(tokenizer, name))
        tokens: dict[str, int] = {}
        for item in found.items:
            if item.tokens:
                tokens[item.kind] = tokens.get(item.kind, 0) + item.tokens
        row = {"study": study, "what": what, "parameters": parameters, "models": models}
        rows.append({**row, "tokens": tokens})
        print(rows[-1], flush=True)
    return rows


def hours(tokens: dict[str, int], device: str, parameters: int) -> str:
    """The time of all that was measured on a device, and what was not."""
    rates = {kind: rate(device, kind, parameters) for kind in tokens}  # type: ignore[arg-type]
    missing = [kind for kind, each in rates.items() if each != each]
    known = sum(rates[kind] * number for kind, number in tokens.items() if kind not in missing)
    if not known:
        return "not measured"
    return duration(known) + "".join(f", and {kind}: not measured" for kind in missing)


def table(rows: list[dict[str, Any]]) -> str:
    header = ["figure", "what", "tokens", "weights, 16 bits", *(f"one {d}" for d in MEMORY)]
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join(['---'] * len(header))} |"]
    for row in rows:
        many = ", ".join(f"{kind} {number / 1e6:.3g} M" for kind, number in row["tokens"].items())
        weights = f"{2 * row['models'] * row['parameters'] / 1e9:.1f} GB"
        times = [hours(row["tokens"], device, row["parameters"]) for device in MEMORY]
        link = f"[{row['study']}](studies/{row['study']}.md#as-published)"
        lines.append(f"| {' | '.join([link, row['what'], many, weights, *times])} |")
    assumed = "\n".join(f"- {row['study']}: {ASSUMED[row['study']]}." for row in rows)
    return "\n".join(lines) + f"\n\nCounted for questions that are made up:\n\n{assumed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--page", action="store_true", help="count nothing")
    if not parser.parse_args().page:
        text = json.dumps({"format": "headcount published 1", "rows": count()}, indent=1)
        RESULT.write_text(f"{text}\n", encoding="utf-8")
    rows = json.loads(RESULT.read_text("utf-8"))["rows"]
    page = PAGE.read_text("utf-8")
    written = f"{START}\n\n{table(rows)}\n\n{END}"
    pattern = f"{re.escape(START)}.*?{re.escape(END)}"
    PAGE.write_text(re.sub(pattern, lambda _: written, page, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
