"""The tables of findings of masked-heads."""

from __future__ import annotations

import json
import re

from findings.tables import (
    DENSE,
    FUNCTIONS,
    MODELS,
    RESULTS,
    Row,
    claims,
    interval,
    markdown,
    masked,
    number,
    one,
    rows,
    table,
    verdict,
)

PUBLISHED_PANELS = ("retrieval", "knowledge-recall", "math", "inference")


CONTROLS = {"random": "RandomK", "matched": "layer-matched"}


SIXTEEN = "16"  # 5.9 % of 270 heads and 4.8 % of 336, nearest to the published 64 of 1,024


MARGIN = -0.05  # of the claims of masked-heads about differences


MASKED_CLAIMS = {
    "TopK lies more than": "TopK more than 0.05 below RandomK, four published panels",
    "under TopK, accuracy falls": "accuracy falls faster than the second metric",
    "RandomK is flat": "RandomK is flat: its loss at 32 heads minus a quarter of TopK's",
    "the collapse sets in": "the collapse sets in between 3.1 and 6.3 % of the heads",
    "Knowledge Recall falls first": "Knowledge Recall falls first",
    "random heads": "TopK costs more than 0.05 more than RandomK, all eight functions",
    "random heads of the same layers": "the same against layer-matched heads",
}


def functions_with_templates() -> dict[str, str]:
    """The functions, with the number of templates that their test items have in every result."""
    path = RESULTS / f"masked-heads/{DENSE}/run.json"
    notes = " ".join(json.loads(path.read_text("utf-8"))["notes"])
    found = {t: re.search(rf"{t}: \d+ examples in (\d+)", notes) for t in FUNCTIONS.values()}
    return {task: f"{t} ({found[t][1]} templates)" for task, t in FUNCTIONS.items()}  # type: ignore[index]


def accuracy(model: str, task: str, series: str, count: str) -> Row:
    """A point of a curve of masked-heads."""
    return one(
        f"masked-heads/{model}/curves.csv",
        metric="exact_match",
        task=task,
        series=series,
        count=count,
    )


@table("masked-differences")
def masked_differences() -> str:
    """TopK minus both controls at the published share, and how many differences are clear."""
    body: list[list[str]] = []
    clear: dict[tuple[str, str], tuple[int, int]] = {}
    columns = [(model, control) for model in MODELS for control in CONTROLS]
    for task, title in functions_with_templates().items():
        line = [title]
        for column in columns:
            model, control = column
            (row,) = masked(
                model, "differences", task=task, count=SIXTEEN, difference=f"top minus {control}"
            )
            alone, together = (float(row[f"high{kind}"]) < MARGIN for kind in ("", " together"))
            was_alone, was_together = clear.get(column, (0, 0))
            clear[column] = was_alone + alone, was_together + together
            line.append(f"**{interval(row)}**" if alone else interval(row))
        body.append(line)
    for which, title in enumerate(("clear by their own intervals", "clear by joint intervals")):
        body.append([title, *(f"{clear[column][which]} of {len(FUNCTIONS)}" for column in columns)])
    header = [f"{MODELS[model].split(' (')[0]}: TopK − {CONTROLS[c]}" for model, c in columns]
    return markdown(["function", *header], body)


@table("masked-clear")
def masked_clear() -> str:
    """In how many functions TopK costs clearly more than each control, by model."""
    body = []
    for model, name in MODELS.items():
        line = [name]
        for control in CONTROLS:
            found = masked(model, "differences", count=SIXTEEN, difference=f"top minus {control}")
            values = [float(row["value"]) for row in found]
            line.append(f"{number(min(values))} to {number(max(values))}")
            for kind in ("", " together"):
                clear = sum(float(row[f"high{kind}"]) < MARGIN for row in found)
                line.append(f"{clear} of {len(found)}")
        body.append(line)
    header = ["model"]
    for control in CONTROLS.values():
        header += [f"TopK − {control}", "clear, own intervals", "clear, joint intervals"]
    return markdown(header, body)


def masked_accuracies(model: str) -> str:
    """Accuracy of the whole model, and with 16 heads masked."""
    body = [
        [
            title,
            interval(accuracy(model, task, "top", "0")),
            *(interval(accuracy(model, task, s, SIXTEEN)) for s in ("top", "random", "matched")),
            accuracy(model, task, "top", SIXTEEN)["n"],
        ]
        for task, title in FUNCTIONS.items()
    ]
    header = ["function", "all heads", "TopK masked", "RandomK masked", "layer-matched masked"]
    return markdown([*header, "items"], body)


@table("masked-smollm2")
def masked_smollm2() -> str:
    """Accuracies of SmolLM2-135M."""
    return masked_accuracies(DENSE)


@table("masked-qwen-0.5b")
def masked_qwen_small() -> str:
    """Accuracies of the 0.5B model."""
    return masked_accuracies("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M")


@table("masked-qwen-1.5b")
def masked_qwen_large() -> str:
    """Accuracies of the 1.5B model."""
    return masked_accuracies("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M")


@table("masked-ranks")
def masked_ranks() -> str:
    """The exact rank of TopK among draws from all heads: accuracies, and p."""
    body, small = [], []
    for task, title in FUNCTIONS.items():
        line = [title]
        for model in MODELS:
            row = one(f"masked-heads/{model}/rank-of-topk.csv", task=task, metric="exact_match")
            accuracies = " / ".join(number(row[k]) for k in ("TopK", "lowest draw", "median draw"))
            line += [accuracies, number(row["p"], 3)]
        body.append(line)
    for model in MODELS:
        found = rows(f"masked-heads/{model}/rank-of-topk.csv", metric="exact_match")
        least = min(float(row["p"]) for row in found)
        count = sum(float(row["p"]) == least for row in found)
        small += ["functions with the smallest possible p", f"{count} of {len(found)}"]
    header = []
    for name in MODELS.values():
        header += [f"{name.split(' (')[0]}: TopK / lowest / median", "p"]
    return markdown(["function", *header], [*body, ["", *small]])


@table("masked-claims")
def masked_claims() -> str:
    """The verdict of every claim on every model."""
    judged = {model: claims(f"masked-heads/{model}") for model in MODELS}
    body = []
    for index, (start, title) in enumerate(MASKED_CLAIMS.items()):
        line = [title]
        for model in MODELS:
            claim = judged[model][index]
            if start not in claim["claim"]:
                raise SystemExit(f"Claim {index} of {model} is not about {start!r}.")
            line.append(verdict(claim))
        body.append(line)
    return markdown(["claim", *MODELS.values()], body)


@table("masked-shape")
def masked_shape() -> str:
    """Mean scaled accuracy over the four published panels, by number of masked heads."""
    body = []
    for model, name in MODELS.items():
        facts = json.loads((RESULTS / f"masked-heads/{model}/run.json").read_text("utf-8"))["facts"]
        for series, title in {"top": "TopK", **CONTROLS}.items():
            line = [name, title]
            for count in ("4", "8", "16", "32"):
                scaled = []
                for task in PUBLISHED_PANELS:
                    floor = facts["floors"][task]["exact_match"]
                    at, whole = (
                        float(accuracy(model, task, s, c)["value"])
                        for s, c in ((series, count), ("top", "0"))
                    )
                    scaled.append((at - floor) / (whole - floor))
                line.append(number(sum(scaled) / len(scaled)))
            line.append(", ".join(f"{100 * c / facts['total']:.1f}" for c in (4, 8, 16, 32)))
            body.append(line)
    return markdown(["model", "masked", "4", "8", "16", "32", "% of the heads"], body)


@table("masked-other-way")
def masked_other_way() -> str:
    """All cells in which TopK kept more accuracy than a control."""
    body = [
        [name, FUNCTIONS[row["task"]], row["count"], CONTROLS[control], interval(row, sign="+")]
        for model, name in MODELS.items()
        for control in CONTROLS
        for row in masked(model, "differences", difference=f"top minus {control}")
        if float(row["value"]) > 0
    ]
    return markdown(["model", "function", "heads", "control", "TopK − control"], body)
