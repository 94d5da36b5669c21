"""Write the tables of findings on the pages of studies, from the committed results.

python scripts/write_findings.py           # writes the pages of PAGES
python scripts/write_findings.py --check   # exit code 1 where a page does not fit its results

A table stands between two marks of a page: `<!-- finding NAME: written by
scripts/write_findings.py -->` and `<!-- end of finding -->`. Each NAME is a function here.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import findings_lists

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
PAGES = [
    *(DOCS / "studies").glob("*.md"),
    DOCS / "rankings.md",
    DOCS / "cache-budget.md",
    DOCS / "lm-eval.md",
    DOCS / "head-lists.md",
]
MARKED = re.compile(
    r"(<!-- finding (\S+): written by scripts/write_findings\.py -->).*?(<!-- end of finding -->)",
    re.DOTALL,
)
# The models of the committed results: folder or name in the tables, and what pages call them.
MODELS = {
    "smollm2-135m-q4": "SmolLM2-135M (Q4_1)",
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M": "Qwen2.5-Coder-0.5B (Q4_K_M)",
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M": "Qwen2.5-Coder-1.5B (Q4_K_M)",
}
Row = Mapping[str, str]
TABLES: dict[str, Callable[[], str]] = {}


def table(name: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Register the function that writes the table NAME."""

    def register(function: Callable[[], str]) -> Callable[[], str]:
        TABLES[name] = function
        return function

    return register


def rows(path: str, **wanted: str) -> list[Row]:
    """The rows of a committed table (under docs/results) that have these entries."""
    data = (RESULTS / path).read_bytes()
    text = (gzip.decompress(data) if path.endswith(".gz") else data).decode()
    lines = csv.DictReader(text.splitlines())
    return [row for row in lines if wanted.items() <= row.items()]


def one(path: str, **wanted: str) -> Row:
    """The only such row."""
    found = rows(path, **wanted)
    if len(found) != 1:
        raise SystemExit(f"{len(found)} rows of {path} have {wanted}, not one.")
    return found[0]


def claims(folder: str) -> list[dict[str, Any]]:
    """The judged claims of a result."""
    found: list[dict[str, Any]] = json.loads((RESULTS / folder / "claims.json").read_text("utf-8"))
    return found


def interval(row: Mapping[str, Any], digits: int = 2, *, sign: str = "") -> str:
    """A value with its interval: 0.38 [0.25, 0.50]."""
    ends = [float(row[name]) + 0.0 for name in ("value", "low", "high")]
    value, low, high = (f"{end:{sign}.{digits}f}".replace("-", "−") for end in ends)
    return f"{value} [{low}, {high}]"


def markdown(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table of a page."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# masked-heads and heads-kept
FUNCTIONS = {
    "retrieval": "Retrieval",
    "knowledge-recall": "Knowledge Recall",
    "semantic": "Semantic Understanding",
    "syntactic": "Syntactic Understanding",
    "math": "Math Calculation",
    "inference": "Inference",
    "logical": "Logical Reasoning",
    "decision": "Decision-making",
}
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
KEPT_TASKS = {
    "greater-than": "Greater Than",
    "ioi": "IOI",
    "docstring": "Docstring",
    "ioi-long": "IOI Long",
}
DENSE, SPARSE = "smollm2-135m-q4", "sparse:smollm2-135m-q4"
# Model of heads-kept → its folder, and what the page calls it.
KEPT_MODELS = {
    DENSE: (DENSE, "SmolLM2-135M"),
    SPARSE: (DENSE, "its sparse version"),
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M": ("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M", "Qwen 0.5B"),
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M": ("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M", "Qwen 1.5B"),
}
ORDERS = (
    "patching",
    "attribution",
    "integrated-gradients",
    "patching, absolute",
    "attribution, absolute",
    "integrated-gradients, absolute",
    "random",
)
ABLATIONS = ("mean", "clean-mean", "resampled", "zero")


def number(value: str | float, digits: int = 2) -> str:
    """A value of a table, with the minus sign of the pages."""
    return f"{float(value) + 0.0:.{digits}f}".replace("-", "−")


def masked(model: str, table_name: str, **wanted: str) -> list[Row]:
    """Rows about accuracy in a table of a result of masked-heads."""
    return rows(f"masked-heads/{model}/{table_name}.csv", metric="exact_match", **wanted)


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


def verdict(claim: Mapping[str, Any]) -> str:
    """A verdict with the measured value, the panel that decides, and what would be found."""
    if claim["measured"] is None:
        return f"*{claim['verdict']}*"
    ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
    text = f"*{claim['verdict']}*: {interval(ends)}"
    if decides := re.search(r"hold together: (.*)\.$", claim["reason"]):
        text += f", {decides[1]}"
        for model in sorted(KEPT_MODELS, key=len, reverse=True):
            text = text.replace(model, KEPT_MODELS[model][1])
    if claim["detectable"] is not None:
        text += f"; detectable {number(claim['detectable'])}"
    return text


def found_at_least(claim: Mapping[str, Any]) -> str:
    """How far beyond its margin a truth must lie to be found 8 times in 10, if undecided."""
    return "–" if claim["detectable"] is None else number(claim["detectable"])


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


def kept(model: str, name: str, **wanted: str) -> list[Row]:
    """Rows of a table of heads-kept that are about a model."""
    return rows(f"heads-kept/{KEPT_MODELS[model][0]}/{name}.csv", model=model, **wanted)


def area(row: Row, name: str) -> str:
    """CMD or CPR with its interval."""
    return interval({"value": row[name], "low": row[f"{name} low"], "high": row[f"{name} high"]})


def areas(model: str, task: str, order: str, ablation: str = "mean") -> Row:
    """The areas of one order on the linear axis."""
    (row,) = kept(model, "areas", task=task, order=order, ablation=ablation, axis="linear")
    return row


@table("kept-best")
def kept_best() -> str:
    """The order that was best on validation prompts, beside random order."""
    body, clear = [], 0
    for task, title in KEPT_TASKS.items():
        for model, (_, name) in KEPT_MODELS.items():
            (row,) = kept(model, "best-order", task=task)
            random = areas(model, task, "random")
            apart = float(row["CMD high"]) < float(random["CMD low"])
            clear += apart
            body.append(
                [
                    title,
                    name,
                    row["order"],
                    area(row, "CMD"),
                    area(random, "CMD"),
                    "yes" if apart else "no",
                    area(row, "CPR"),
                    f"{float(row['heads']):.0f} of {row['of']}",
                    f"{float(row['two-sided']):.0f}",
                ]
            )
    body.append(["all", "", "", "", "", f"{clear} of {len(body)}", "", "", ""])
    header = ["task", "model", "best order", "CMD", "CMD, random", "apart", "CPR"]
    return markdown([*header, "heads for 0.9", "two-sided"], body)


@table("kept-orders")
def kept_orders() -> str:
    """CMD and CPR of every order."""
    body, nearer = [], dict.fromkeys(ORDERS, 0)
    for task, title in KEPT_TASKS.items():
        for model, (_, name) in KEPT_MODELS.items():
            found = {order: areas(model, task, order) for order in ORDERS}
            cells = [f"{number(row['CMD'])} / {number(row['CPR'])}" for row in found.values()]
            body.append([title, name, *cells])
            for order, row in found.items():
                nearer[order] += float(row["CMD"]) < float(found["random"]["CMD"])
    counted = [f"{nearer[order]} of {len(body)}" for order in ORDERS[:-1]]
    body.append(["CMD below that of random order", "", *counted, ""])
    return markdown(["task", "model", *ORDERS], body)


@table("kept-1.5b")
def kept_large() -> str:
    """Curves of the 1.5B model: patching order, another order, random order."""
    model = "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M"
    columns = [
        ("docstring", "patching"),
        ("docstring", "integrated-gradients, absolute"),
        ("docstring", "random"),
        ("ioi", "patching"),
        ("ioi", "random"),
    ]
    body = []
    for count in ("34", "67", "101", "134", "168", "202", "235", "302"):
        line = [f"{count} ({100 * int(count) / 336:.0f} %)"]
        for task, order in columns:
            (row,) = kept(model, "curves", task=task, ranking=order, ablation="mean", count=count)
            line.append(interval(row))
        body.append(line)
    return markdown(["heads kept", *(f"{KEPT_TASKS[t]}, {order}" for t, order in columns)], body)


@table("kept-ends")
def kept_ends() -> str:
    """The metric without any head and with all heads: what the explained effect divides by."""
    body = []
    for task, title in KEPT_TASKS.items():
        line = [title]
        for model in KEPT_MODELS:
            (row,) = kept(model, "heads-needed", task=task, order="patching", ablation="mean")
            line.append(f"{number(row['no head'])} → {number(row['all heads'])}")
        body.append(line)
    return markdown(["task", *(name for _, name in KEPT_MODELS.values())], body)


@table("kept-dense-sparse")
def kept_dense_sparse() -> str:
    """CMD of the dense minus CMD of the sparse model, by order, on both axes."""
    body = []
    for axis in ("linear", "log"):
        for order in ORDERS:
            line = [axis, order]
            for task in KEPT_TASKS:
                row = one(
                    f"heads-kept/{DENSE}/areas-compared.csv",
                    task=task,
                    order=order,
                    axis=axis,
                    area="CMD",
                    ablation="mean",
                )
                clear = float(row["low together"]) > 0 or float(row["high together"]) < 0
                text = interval(row, sign="+")
                line.append(f"**{text}**" if clear else text)
            body.append(line)
    return markdown(["axis", "order", *KEPT_TASKS.values()], body)


@table("kept-claims")
def kept_claims() -> str:
    """The verdicts of the claims that are ours, on every result."""
    body = []
    for model, (folder, name) in KEPT_MODELS.items():
        if model == SPARSE:
            continue
        for claim in claims(f"heads-kept/{folder}"):
            if claim["published"] is not None:
                continue
            if claim["claim"].startswith("heads kept by the order"):
                title = "best order − random order, linear axis, every task and model"
                about = f"{name} and {KEPT_MODELS[SPARSE][1]}" if model == DENSE else name
            else:
                axis = "linear" if "linear axis" in claim["claim"] else "log"
                title = f"sparse − dense, patching order, {axis} axis, every task"
                about = "the pair"
            body.append([title, about, verdict(claim)])
    return markdown(["difference of CMD, claimed below −0.02", "models", "verdict"], body)


@table("kept-ratio-range")
def kept_ratio_range() -> str:
    """The range of ratios over all orders and thresholds, and how many are clear."""
    body = []
    for task, title in KEPT_TASKS.items():
        path = f"heads-kept/{DENSE}/ratio-by-threshold.csv"
        found = rows(path, task=task, ablation="mean")
        line = [title]
        for low, high in ((0.0, 0.5), (0.5, 0.75), (0.75, 1.0)):
            own = [float(r["ratio"]) for r in found if low < float(r["threshold"]) <= high]
            line.append(f"{number(min(own))} to {number(max(own))}")
        above = sum(float(row["ratio low"]) > 1 for row in found)
        below = sum(float(row["ratio high"]) < 1 for row in found)
        body.append([*line, *(f"{some} of {len(found)}" for some in (above, below))])
    header = ["task", "τ = 0.3 to 0.5", "τ = 0.55 to 0.75", "τ = 0.8 to 0.95"]
    return markdown([*header, "clearly above 1", "clearly below 1"], body)


@table("kept-ratios")
def kept_ratios() -> str:
    """Heads needed by the dense model over heads needed by the sparse one."""
    thresholds = ("0.3", "0.5", "0.7", "0.8", "0.9", "0.95")
    body = []
    for task, title in KEPT_TASKS.items():
        for order in ("patching", "patching, absolute", "integrated-gradients, absolute"):
            line = [title, order]
            for threshold in thresholds:
                row = one(
                    f"heads-kept/{DENSE}/ratio-by-threshold.csv",
                    task=task,
                    order=order,
                    ablation="mean",
                    threshold=threshold,
                )
                names = ("ratio", "ratio low", "ratio high")
                ends = dict(zip(("value", "low", "high"), (row[n] for n in names), strict=True))
                line.append(interval(ends) + " (not reached)" * (row["censored"] == "True"))
            body.append(line)
    return markdown(["task", "order", *(f"τ = {t}" for t in thresholds)], body)


@table("kept-effects")
def kept_effects() -> str:
    """Heads with a patching effect: helping and hindering ones."""
    body = []
    for task, title in KEPT_TASKS.items():
        line = [title]
        for model in KEPT_MODELS:
            (row,) = kept(model, "heads-with-an-effect", task=task, ranking="patching")
            line.append(f"{row['heads']} of {row['of']} ({row['helping']} + {row['hindering']})")
        body.append(line)
    return markdown(["task", *(name for _, name in KEPT_MODELS.values())], body)


@table("kept-ablations")
def kept_ablations() -> str:
    """CMD of the patching order, by what replaces absent heads."""
    body = []
    for task, title in KEPT_TASKS.items():
        for model, (_, name) in KEPT_MODELS.items():
            found = [areas(model, task, "patching", ablation) for ablation in ABLATIONS]
            body.append([title, name, *(area(row, "CMD") for row in found)])
    return markdown(["task", "model", *ABLATIONS], body)


def page(path: Path) -> str:
    """The page with its tables."""

    def write(found: re.Match[str]) -> str:
        start, name, end = found.groups()
        if name not in TABLES:
            raise SystemExit(f"{path.name} asks for the finding {name}, which has no function.")
        return f"{start}\n\n{TABLES[name]()}\n\n{end}"

    return MARKED.sub(write, path.read_text(encoding="utf-8"))


# contrast, and stability by cause
CONTRAST = "contrast/smollm2-135m-q4-quick"
FORMS = ("in-context", "instruction")
SERIES_OF_GATES = {
    "gates": "gates",
    "heads": "heads",
    "random heads": "random heads",
    "layer-matched heads": "layer-matched",
}


def skill_name(key: str) -> str:
    """The name of a small skill: Present-Past."""
    return "-".join(word.capitalize() for word in key.split("-"))


@table("contrast-whole")
def contrast_whole() -> str:
    """What the whole model can do, in both forms."""
    found = rows(f"{CONTRAST}/whole-model.csv")
    body = []
    for skill in dict.fromkeys(row["task"] for row in found):
        own = {row["form"]: row for row in found if row["task"] == skill}
        cells = [
            cell
            for form in FORMS
            for cell in (number(own[form]["accuracy to rank"]), interval(own[form]))
        ]
        able = all(own[form]["above chance"] == "yes" for form in FORMS)
        body.append([skill_name(skill), *cells, "yes" if able else "no"])
    header = [f"{form}, {split}" for form in FORMS for split in ("to rank", "test")]
    return markdown(["skill", *header, "in fits"], body)


@table("contrast-changes")
def contrast_changes() -> str:
    """The change of both forms under the gates, their heads, and random heads."""
    body = []
    found = rows(f"{CONTRAST}/curves.csv")
    for metric, name in (("logprob_per_token", "log p per token"), ("accuracy", "accuracy")):
        for skill, kept in dict.fromkeys((row["task"], row["kept"]) for row in found):
            for form in FORMS:
                own = {"metric": metric, "task": skill, "kept": kept, "form": form}
                here = {row["series"]: row for row in found if own.items() <= row.items()}
                role = "kept" if form == kept else "forgotten"
                cells = [interval(here[series]) for series in SERIES_OF_GATES]
                body.append([skill_name(skill), f"{form}, {role}", name, *cells])
    return markdown(["skill left out", "form", "change of", *SERIES_OF_GATES.values()], body)


@table("contrast-gates")
def contrast_gates() -> str:
    """How many heads the gates shut, and how far fits agree."""
    body = [
        [
            skill_name(row["task"]),
            row["kept"],
            ", ".join(map(skill_name, row["fitted to"].split(", "))),
            f"{number(row['heads shut'], 0)} ({row['fewest']} to {row['most']})",
            number(row["shared by two fits"]),
            number(row["by chance"]),
            number(row["undecided"]),
        ]
        for row in rows(f"{CONTRAST}/gates.csv")
    ]
    header = ["skill left out", "form kept", "fitted to", "heads shut", "shared by two fits"]
    return markdown([*header, "by chance", "share of gates undecided"], body)


@table("contrast-claims")
def contrast_claims() -> str:
    """The verdicts."""
    body = [
        [
            claim["claim"].split(" (measured")[0],
            interval({**claim, "value": claim["measured"]}),
            claim["verdict"],
            found_at_least(claim),
        ]
        for claim in claims(CONTRAST)
    ]
    return markdown(["claim", "measured", "verdict", "would be found"], body)


@table("stability-ioi")
def stability_ioi() -> str:
    """The variance table of attribution on IOI."""
    found = json.loads((RESULTS / "stability" / "attribution-ioi.json").read_text("utf-8"))
    body = [
        [
            part["cause"],
            ", ".join(part["levels"]),
            *(number(part[name]) for name in ("share", "correlation", "overlap")),
        ]
        for part in found["parts"]
    ]
    body.append(["heads", "", number(found["heads"]), "", f"by chance {number(found['chance'])}"])
    last = f"best {found['top']} in common"
    return markdown(["cause", "levels", "share of variance", "rank correlation", last], body)


# token-insertion and head-roles

TOKENS = {"three-models": "word problems", f"{[*MODELS][2]}-math-500": "MATH-500"}
INSERTS = ("w/ Mless", "w/ Mful")
ROLES = "head-roles/smollm2-135m-q4"
PANELS = ("Syntax", "Common Sense", "Math")
# What a claim of token-insertion says, in the order of claims.json; its name here, and its margin.
TOKEN_CLAIMS = (
    ("raises accuracy", "the insert raises accuracy", "above 0"),
    ("changes accuracy by less", "the insert changes accuracy little †", "within ± 0.02"),
    ("lowers the attention peaks", "lower peaks than a uniform reader's, drawn head", "below 0.95"),
    ("keeps the timing", "the same timing, drawn head", "above 0.8"),
    ("lowers the attention peaks", "lower peaks, mean over layer 0 †", "below 0.95"),
    ("in all other layers", "lower peaks, all other layers †", "below 0.95"),
    ("receives small weights", "small weights of the span, drawn head", "below 0.9"),
    ("receives near-uniform", "near-uniform weights, drawn head", "below 0.25"),
    ("receives small weights", "small weights of the span, mean over layer 0 †", "below 0.9"),
    ("receives near-uniform", "near-uniform weights, mean over layer 0 †", "below 0.25"),
    ("in layer 0, the fitted λ", "λ < 1, layer 0", "below 0.95"),
    ("in layer 0, outputs vary less", "outputs vary less, layer 0 †", "below 0.95"),
    ("but layer 0, the fitted λ", "λ < 1, all other layers", "below 0.95"),
    ("but layer 0, outputs vary less", "outputs vary less, all other layers †", "below 0.95"),
)
ROLE_CLAIMS = (
    ("facilitation falls", "facilitation falls, by more than 0.1"),
    ("irrelevance stays", "irrelevance stays, within a quarter of that fall"),
    ("interference rises", "interference rises at first, by more than 0.05"),
    ("interference does not fall early", "interference does not fall early"),
    ("the first of two", "the first description holds"),
    ("the second description", "the second description holds"),
    ("roles tell more than chance", "facilitation falls further than a random order"),
    ("Math is by far the most sensitive task, in sum", "Math is the most sensitive, in sum"),
    (
        "Math is by far the most sensitive task, by the token",
        "Math is the most sensitive, by token",
    ),
    ("the largest model falls least", "the largest model falls least"),
)


def fixed(value: Any, digits: int = 2, sign: str = "") -> str:
    """A number of a table, with a real minus."""
    return f"{float(value) + 0.0:{sign}.{digits}f}".replace("-", "−")


def span(row: Row, of: str = "", ends: str = "", digits: int = 2, scale: float = 1) -> str:
    """An interval whose columns have other names: VALUE, LOW, HIGH of a prefix."""
    low, high = (f"{ends or of} {end}".strip() for end in ("low", "high"))
    parts = {"value": row[of or "value"], "low": row[low], "high": row[high]}
    return interval({name: scale * float(part) for name, part in parts.items()}, digits)


def tokens_groups() -> list[tuple[str, str, str]]:
    """Folder, model and problems of each group of bars."""
    return [
        (f"token-insertion/{folder}", model, problems)
        for folder, problems in TOKENS.items()
        for model in dict.fromkeys(
            row["model"] for row in rows(f"token-insertion/{folder}/curves.csv")
        )
    ]


def percent(row: Row, digits: int = 1) -> str:
    """An accuracy or a difference in per cent, with its interval."""
    return span(row, digits=digits, scale=100)


def by_template(folder: str, model: str) -> str:
    """The lowest and the highest accuracy of a template without an insert."""
    csv.field_size_limit(10**7)  # one field has the answers to all problems
    about = {"model": model, "sample": "problems"}
    (found,) = rows(f"{folder}/values.csv.gz", series="w/o", metric="maths", **about)
    right: dict[str, list[float]] = {}
    problems = rows(f"{folder}/examples.csv.gz", **about)
    for row, value in zip(problems, found["values"].split(), strict=True):
        right.setdefault(row["template"], []).append(float(value))
    shares = [100 * sum(values) / len(values) for values in right.values()]
    return f"{min(shares):.1f} to {max(shares):.1f} ({len(shares)})"


@table("tokens-accuracy")
def tokens_accuracy() -> str:
    """Accuracy of each model in the three conditions."""
    body = []
    for folder, model, problems in tokens_groups():
        found = [one(f"{folder}/curves.csv", model=model, series=s) for s in ("w/o", *INSERTS)]
        cut = ", ".join(row["truncated"] for row in found)
        templates = by_template(folder, model)
        cells = [MODELS[model], problems, found[0]["n"], *map(percent, found)]
        body.append([*cells, templates, cut])
    header = (
        *("model", "problems", "n", "w/o, %", "w/ Mless, %", "w/ Mful, %"),
        *("w/o by template, % (templates)", "answers cut off"),
    )
    return markdown(header, body)


def gain_verdicts(without: Row, difference: Row) -> tuple[str, str]:
    """Whether an insert raises the accuracy of one model, and whether it changes it little."""
    low, high = (float(difference[end]) for end in ("low", "high"))
    raises = "supported" if low > 0 else "refuted" if high <= 0 else "undecided"
    if not 0.44 - 0.15 <= float(without["value"]) <= 0.73 + 0.15:
        raises = "not comparable"
    little = "supported" if low > -0.02 and high < 0.02 else "undecided"
    return raises, "refuted" if low > 0.02 or high < -0.02 else little


@table("tokens-differences")
def tokens_differences() -> str:
    """The paired difference of each insert, with exact tests and verdicts."""
    body = []
    for folder, model, problems in tokens_groups():
        without = one(f"{folder}/curves.csv", model=model, series="w/o")
        for series in INSERTS:
            row = one(f"{folder}/answers-that-change.csv", model=model, series=series)
            together = f"[{fixed(100 * float(row['low together']))}, "
            together += f"{fixed(100 * float(row['high together']))}]"
            turned = f"{row['turn right']}, {row['turn wrong']}"
            least = fixed(100 * float(row["detectable"]), 1)
            p_value = f"{float(row['p']):#.2g}"
            verdicts = gain_verdicts(without, row)
            name = f"{MODELS[model]}, {problems}"
            body.append(
                [name, series, percent(row, 2), together, turned, p_value, least, *verdicts]
            )
    header = (
        *("model, problems", "insert", "difference, points", "all differences of the run together"),
        *("turned right, wrong", "McNemar's exact p", "smallest effect found, points"),
        *("raises accuracy", "within ± 2 points"),
    )
    return markdown(header, body)


def against_uniform(folder: str, model: str, series: str, where: str, measure: str) -> Row:
    """A measure beside a uniform reader's, with all later tokens as queries."""
    wanted = {"queries": "all", "where": where, "measure": measure}
    return one(f"{folder}/against-a-uniform-reader.csv", model=model, series=series, **wanted)


def drawn(folder: str, model: str) -> str:
    """The head that is drawn."""
    return one(f"{folder}/choice-of-the-head.csv", model=model, chosen="yes")["head"]


@table("tokens-peaks")
def tokens_peaks() -> str:
    """Height and timing of the peaks, beside a uniform reader."""
    peaks, timing = "peaks, with the insert / without", "correlation of the profiles"
    body = []
    for folder, model, problems in tokens_groups():
        for series in INSERTS:
            head = drawn(folder, model)
            found = [
                against_uniform(folder, model, series, where, peaks)
                for where in (head, "layer 0", "other layers")
            ]
            same = against_uniform(folder, model, series, head, timing)
            body.append(
                [
                    *(f"{MODELS[model]}, {problems}", series, span(found[0])),
                    *(fixed(found[0]["uniform reader"]), span(found[0], "over uniform", "over")),
                    *(span(found[1]), span(found[2])),
                    f"{fixed(same['value'])}, {fixed(same['uniform reader'])}",
                ]
            )
    header = (
        *("model, problems", "insert", "drawn head", "uniform reader", "drawn head / uniform"),
        *("mean over layer 0", "all other layers", "timing: drawn head, uniform reader"),
    )
    return markdown(header, body)


@table("tokens-outputs")
def tokens_outputs() -> str:
    """The affine description of attention outputs, in layer 0 and in all others."""
    body = []
    for folder, model, problems in tokens_groups():
        for series in INSERTS:
            found = rows(f"{folder}/affine-check.csv", model=model, series=series)
            (first,) = (row for row in found if row["layer"] == "0")
            others = [row for row in found if row is not first]
            ranges = [
                " to ".join(fixed(end(float(row[name]) for row in others)) for end in (min, max))
                for name in ("lambda", "spread")
            ]
            own = [span(first, name) for name in ("lambda", "spread")]
            body.append([f"{MODELS[model]}, {problems}", series, *own, *ranges])
    header = (
        *("model, problems", "insert", "λ, layer 0", "standard deviation, layer 0"),
        *("λ, lowest and highest other layer", "standard deviation, the same"),
    )
    return markdown(header, body)


@table("tokens-span")
def tokens_span() -> str:
    """The weight of the inserted span, beside a uniform reader."""
    measure = "weight, inserted / original tokens"
    body = []
    for folder, model, problems in tokens_groups():
        for series in INSERTS:
            head, layer, others = (
                against_uniform(folder, model, series, where, measure)
                for where in (drawn(folder, model), "layer 0", "other layers")
            )
            ratios = [span(row, "over uniform", "over") for row in (head, layer, others)]
            weights = [fixed(head["value"]), fixed(head["uniform reader"])]
            body.append([f"{MODELS[model]}, {problems}", series, *weights, *ratios])
    header = (
        *("model, problems", "insert", "drawn head", "uniform reader", "drawn head / uniform"),
        *("mean over layer 0 / uniform", "all other layers / uniform"),
    )
    return markdown(header, body)


@table("tokens-head")
def tokens_head() -> str:
    """The drawn head on the prompts that chose it, and on the others."""
    choosing, judging = "change, prompts that choose", "change, prompts that judge"
    body = []
    for folder, model, problems in tokens_groups():
        found = rows(f"{folder}/choice-of-the-head.csv", model=model)
        (head,) = (row for row in found if row["chosen"])
        cells = [MODELS[model], problems, head["head"]]
        for column in (choosing, judging):
            order = sorted(found, key=lambda row: -float(row[column]))
            second = next(row for row in order if row is not head)
            cells.append(f"{1000 * float(head[column]):.2f}, {1000 * float(second[column]):.2f}")
        cells.append(f"{order.index(head) + 1} of {len(order)}")
        body.append(cells)
    header = (
        *("model", "problems", "drawn head", "change × 1,000 where it is chosen, next head"),
        *("change × 1,000 where it is judged, next head", "its rank where it is judged"),
    )
    return markdown(header, body)


def judged(claim: Mapping[str, Any]) -> str:
    """A verdict with what was measured."""
    if claim["measured"] is None:
        return str(claim["verdict"])
    ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
    return f"{claim['verdict']}: {interval(ends, 3)}"


@table("tokens-claims")
def tokens_claims() -> str:
    """All claims, by problems and insert."""
    columns = []
    for folder in TOKENS:
        for series in INSERTS:
            found = [
                c for c in claims(f"token-insertion/{folder}") if c["claim"].startswith(series)
            ]
            for claim, (start, _, _) in zip(found, TOKEN_CLAIMS, strict=True):
                if start not in claim["claim"]:
                    raise SystemExit(f"{folder}: {claim['claim']} is not: {start}")
            columns.append([judged(claim) for claim in found])
    names = [[name, margin] for _, name, margin in TOKEN_CLAIMS]
    body = [[*name, *cells] for name, cells in zip(names, zip(*columns, strict=True), strict=True)]
    titles = [f"{problems}, {s}" for problems in ("three models", "MATH-500") for s in INSERTS]
    return markdown(("claim", "margin", *titles), body)


def change(task: str, series: str, count: int, metric: str = "logprob change") -> Row:
    """Δ of a role at a count."""
    wanted = {"task": task, "series": series, "count": str(count), "metric": metric}
    return one(f"{ROLES}/curves.csv", **wanted)


@table("roles-fall")
def roles_fall() -> str:
    """The fall of facilitation, beside a random order and the published end points."""
    body = []
    for task in PANELS:
        wanted = {"task": task, "series": "facilitation"}
        published: dict[str, list[str]] = {}
        for row in rows(f"{ROLES}/end-points.csv", **wanted):
            point = row["published"].removeprefix("end point ").replace("-", "−")
            published.setdefault(row["count"], []).append(f"{point} ({row['published model']})")
        for count in sorted(map(int, published)):
            row = change(task, "facilitation", count)
            random = change(task, "random order", count)
            share = f"{count} ({100 * float(row['share']):.1f} %)"
            beside = ", ".join(published[str(count)])
            body.append([task, share, interval(row), interval(random), beside])
    header = (
        *("task", "heads ablated", "Δ facilitation", "Δ random order"),
        "published Δ facilitation at this share",
    )
    return markdown(header, body)


@table("roles-others")
def roles_others() -> str:
    """Irrelevance and interference, as shares of the fall of facilitation."""
    body = []
    for task in PANELS:
        for role in ("irrelevance", "interference"):
            cells = [task, role, f"{float(change(task, role, 20)['carriers']):.0f}"]
            for count in (20, 50):
                row, fall = change(task, role, count), change(task, "facilitation", count)
                share = float(row["value"]) / abs(float(fall["value"]))
                cells += [interval(row), fixed(share, 2, "+")]
            body.append(cells)
    header = (
        *("task", "role", "heads that carry it", "Δ, 20 heads", "of the fall"),
        *("Δ, 50 heads", "of the fall"),
    )
    return markdown(header, body)


@table("roles-interference")
def roles_interference() -> str:
    """Interference from soft gates and from the whole model."""
    body = []
    for task in PANELS:
        peak = one(f"{ROLES}/peaks-of-interference.csv", task=task)
        ends = [fixed(peak[f"{end} together"]) for end in ("low", "high")]
        cells = [task, f"{float(change(task, 'interference', 2)['carriers']):.0f}"]
        for count in (2, 12, 20):
            cells.append(interval(change(task, "interference", count)))
        whole = "logprob change, plain model"
        plain = [interval(change(task, "interference", count, whole)) for count in (12, 20)]
        body.append([*cells, f"[{', '.join(ends)}]", *plain])
    header = (
        *("task", "heads that interfere", "Δ, 2 heads", "Δ, 12 heads", "Δ, 20 heads"),
        *("the highest Δ, all counts and panels together", "whole model, 12 heads"),
        "whole model, 20 heads",
    )
    return markdown(header, body)


@table("roles-sensitivity")
def roles_sensitivity() -> str:
    """The fall of facilitation in sum and by the token."""
    facts = json.loads((RESULTS / ROLES / "run.json").read_text("utf-8"))["facts"]
    tokens = {panel["task"]: panel["tokens"] for panel in facts["panels"]}
    body = []
    for task in PANELS:
        cells = [task, f"{sum(tokens[task]) / len(tokens[task]):.1f}"]
        for count in (20, 50):
            for metric in ("logprob change", "logprob change per token"):
                cells.append(interval(change(task, "facilitation", count, metric)))
        body.append(cells)
    header = (
        *("task", "tokens of a target", "sum, 20 heads", "by token, 20 heads"),
        *("sum, 50 heads", "by token, 50 heads"),
    )
    return markdown(header, body)


@table("roles-seeds")
def roles_seeds() -> str:
    """Shares of heads that carry a role: in one seed, in all seeds and in any."""

    def percents(*values: str) -> list[str]:
        return [f"{100 * float(value):.1f}" for value in values]

    body = []
    for row in rows(f"{ROLES}/role-shares.csv"):
        over = one(f"{ROLES}/roles-over-seeds.csv", task=row["task"], role=row["role"])
        share, low, high = percents(row["share"], row["lowest"], row["highest"])
        always, by_chance, anyhow = percents(
            over["always"], over["always if seeds were independent"], over["any"]
        )
        body.append(
            [
                *(row["task"], row["role"], f"{share} ({low} to {high})", row["published"] or "–"),
                *(always, by_chance, over["published always"] or "–"),
                *(anyhow, over["published any"] or "–"),
            ]
        )
    header = (
        *("task", "role", "in a seed, % (lowest to highest)", "published", "in all seeds, %"),
        *("in all, if seeds were independent", "published", "in any seed, %", "published"),
    )
    return markdown(header, body)


@table("roles-descriptions")
def roles_descriptions() -> str:
    """The two descriptions of the published figure, side by side."""
    found = rows(f"{ROLES}/two-descriptions.csv")
    body = [[row["what"].partition(" (tests/")[0], row["first"], row["second"]] for row in found]
    return markdown(("", "the first", "the second"), body)


@table("roles-claims")
def roles_claims() -> str:
    """All claims of head-roles."""
    body = []
    for number, (claim, (start, name)) in enumerate(
        zip(claims(ROLES), ROLE_CLAIMS, strict=True), start=1
    ):
        if not claim["claim"].startswith(start):
            raise SystemExit(f"{ROLES}: {claim['claim']} is not: {start}")
        places = re.search(r"(?:Farthest from .*?: )(.*?)(?: \(smollm2-135m-q4\))", claim["reason"])
        ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
        measured = "–" if claim["measured"] is None else interval(ends)
        where = places.group(1) if places else "–"
        body.append([str(number), name, claim["verdict"], measured, where])
    return markdown(("", "claim", "verdict", "measured", "in the panel that decides"), body)


TRANSFER = "transfer/smollm2-135m-q4-quick"


def named(row: Row, name: str, *, bold: bool = False) -> str:
    """The interval of this name in a row of a table of transfer."""
    ends = {"value": row[name], "low": row[f"{name} low"], "high": row[f"{name} high"]}
    return f"**{interval(ends)}**" if bold else interval(ends)


@table("transfer-matrix")
def transfer_matrix() -> str:
    """By how much the best heads of each function cost each function more than random heads."""
    found = {(row["ranked on"], row["tested on"]): row for row in rows(f"{TRANSFER}/transfer.csv")}
    keys = list(dict.fromkeys(one for one, _ in found))
    body = [
        [
            FUNCTIONS[one],
            *(
                f"{number(row['loss'])}; "
                + named(row, "difference", bold=float(row["difference low"]) > 0)
                for other in keys
                for row in [found[one, other]]
            ),
        ]
        for one in keys
    ]
    return markdown(["ranked on ↓, tested on →", *(FUNCTIONS[key] for key in keys)], body)


@table("transfer-specificity")
def transfer_specificity() -> str:
    """Own loss, row and column of each function, and the specificity beyond random heads."""
    body = [
        [
            FUNCTIONS[row["task"]],
            *(number(row[name]) for name in ("own loss", "others, its heads", "it, others' heads")),
            *(named(row, name) for name in ("specificity", "layer-matched", "difference")),
            named(row, "interaction"),
        ]
        for row in rows(f"{TRANSFER}/specificity.csv")
    ]
    header = ["function", "own loss", "others, its heads", "it, others' heads", "specificity"]
    return markdown([*header, "of layer-matched heads", "difference", "interaction"], body)


@table("transfer-shared")
def transfer_shared() -> str:
    """What both functions lose with and without the heads that they share."""
    body = [
        [
            f"{FUNCTIONS[row['ranked on']]} without {FUNCTIONS[row['without']]}",
            row["shared heads"].replace(" ", ", "),
            f"{number(row['loss on the other'])} → {number(row['without shared heads'])}",
            named(row, "spared"),
            f"{number(row['own loss'])} → {number(row['own loss without shared heads'])}",
            named(row, "given up"),
        ]
        for row in rows(f"{TRANSFER}/without-shared-heads.csv")
    ]
    header = ["heads of", "left out", "loss of the other", "spared", "own loss", "given up"]
    return markdown(header, body)


@table("transfer-claims")
def transfer_claims() -> str:
    """All claims of transfer."""
    body = [[re.sub(r" \(measured.*", "", c["claim"]), verdict(c)] for c in claims(TRANSFER)]
    return markdown(["claim", "verdict"], body)


# silent-heads

SILENT, EVERY = "silent-heads/smollm2-135m-q4-quick", "mean over tasks"
ACTIVITY = {  # scores of activity, as the page names them
    "relative-norm": "layer-relative norm (published best)",
    "output-norm": "output norm",
    "first-token": "first-token attention",
    "value-norm": "first-token value",
    "entropy": "attention entropy",
    "written": "write share (ours)",
}
RANDOM_HEADS = {"random": "random heads †", "matched": "random heads by layer †"}
# What a claim of silent-heads starts with, in the order of claims.json; with its margin.
SILENT_CLAIMS = (
    (
        "at least 12%",
        "12 % of the heads at less than 1 % loss of accuracy, as published",
        "below 0.01",
    ),
    ("at least 12%", "the same, on these tasks", "below 0.01"),
    ("the layer-relative norm is the best", "the published best is best, as published", "above 0"),
    ("the layer-relative norm is the best", "the same, on these tasks, by accuracy", "above 0"),
    ("the layer-relative norm is the best", "the same, by margin", "above 0"),
    ("heads chosen for each input", "per input beats constant, by accuracy", "above 0"),
    ("heads chosen for each input", "per input beats constant, by margin", "above 0"),
    ("heads chosen for each input", "per input beats random heads, by accuracy", "above 0"),
    ("heads chosen for each input", "per input beats random heads, by margin", "above 0"),
)


def silent_rows() -> list[tuple[str, str, str]]:
    """Name, series and score of each line of the tables."""
    scores = [(name, "per-input", score) for score, name in ACTIVITY.items()]
    return scores + [(name, series, next(iter(ACTIVITY))) for series, name in RANDOM_HEADS.items()]


@table("silent-loss")
def silent_loss() -> str:
    """What zeroing at least 12 % of the heads costs, by score."""
    body = []
    for name, series, score in silent_rows():
        row = one(f"{SILENT}/loss.csv", task=EVERY, series=series, score=score)
        parts = ("zeroed", "loss", "loss of margin")
        body.append([name, *(span(row, part, digits=1, scale=100) for part in parts)])
    return markdown(
        ("heads chosen by", "heads zeroed, %", "loss of accuracy, %", "loss of margin, %"), body
    )


@table("silent-areas")
def silent_areas() -> str:
    """The area under each curve, per input and with constant heads."""
    body = []
    for name, series, score in silent_rows():
        cells = [name]
        for metric in ("accuracy", "margin"):
            for form in (series, "constant") if series == "per-input" else (series,):
                about = {"task": EVERY, "series": form, "score": score, "metric": metric}
                cells.append(span(one(f"{SILENT}/areas.csv", **about)))
            cells += ["–"] * (series != "per-input")
        body.append(cells)
    header = ("accuracy, per input", "accuracy, constant", "margin, per input", "margin, constant")
    return markdown(("heads chosen by", *header), body)


@table("silent-claims")
def silent_claims() -> str:
    """Every claim with its verdict."""
    body = []
    for claim, (start, name, margin) in zip(claims(SILENT), SILENT_CLAIMS, strict=True):
        if not claim["claim"].startswith(start):
            raise SystemExit(f"{SILENT}: {claim['claim']} is not: {start}")
        ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
        decides = re.search(r"hold together: (.*?)\.", claim["reason"])
        where = decides.group(1) if decides else "–"
        body.append([name, margin, interval(ends), claim["verdict"], where])
    return markdown(("claim", "margin", "measured", "verdict", "what decides"), body)


NEEDLE = "needle/smollm2-135m-q4-quick"
NEEDLE_CLAIMS = (  # the beginning of each claim, and its name on the page
    ("at every length: masking the best heads costs more than 0.05", "TopK − RandomK, accuracy"),
    ("at every length: masking the best heads costs more than 0.05", "TopK − matched, accuracy"),
    ("at every length: masking the best heads costs more than 0.5", "TopK − RandomK, log p"),
    ("at every length: masking the best heads costs more than 0.5", "TopK − matched, log p"),
    ("at every length: masking the best heads only", "late − 0.75 · whole cost, accuracy"),
    ("at every length: masking the best heads only", "late − 0.75 · whole cost, log p"),
    ("the best heads matter more", "longest − shortest, TopK − matched, log p"),
)


def needle_scores(metric: str) -> str:
    """A score by length: the whole model, and the heads masked everywhere or at the answer."""
    body = []
    for whole in rows(f"{NEEDLE}/curves.csv", metric=metric, count="0"):
        cells = [f"{int(whole['length']):,}", interval(whole)]
        for positions in ("all", "answer"):
            for series in ("top", "random", "matched"):
                wanted = {"positions": positions, "series": series, "task": whole["task"]}
                found = rows(f"{NEEDLE}/curves.csv", metric=metric, **wanted)
                cells += [interval(row) for row in found if row["count"] != "0"]
        body.append(cells)
    header = ("tokens", "all heads", "TopK", "RandomK", "layer-matched")
    late = tuple(f"{name}, at the answer" for name in header[2:])
    return markdown((*header, *late), body)


@table("needle-accuracy")
def needle_accuracy() -> str:
    """Accuracy by length."""
    return needle_scores("accuracy")


@table("needle-logprob")
def needle_logprob() -> str:
    """Log-probability of the answer by length."""
    return needle_scores("logprob")


@table("needle-claims")
def needle_claims() -> str:
    """All claims of needle."""
    body = []
    for claim, (start, name) in zip(claims(NEEDLE), NEEDLE_CLAIMS, strict=True):
        if not claim["claim"].startswith(start):
            raise SystemExit(f"{NEEDLE}: {claim['claim']} is not: {start}")
        where = re.search(r"together: (.*?)\.$", claim["reason"])
        decides = where.group(1) if where else "–"
        body.append([name, judged(claim), decides, found_at_least(claim)])
    header = ("claim", "verdict", "at the length that decides", "would be found")
    return markdown(header, body)


@table("needle-heads")
def needle_heads() -> str:
    """The heads with the highest retrieval score."""
    found = rows(f"{NEEDLE}/heads.csv.gz", score="retrieval-score")
    best = sorted(found, key=lambda row: -float(row["value"]))[:8]
    body = [[f"{row['layer']}.{row['head']}", interval(row)] for row in best]
    return markdown(("head", "retrieval score"), body)


# teamwork

TEAMWORK = "teamwork/smollm2-135m-q4-quick"
TEAM_CLAIMS = (  # words of each claim in order, and its name on the page
    ("back each other up", "some two back each other up"),
    ("overlap", "some two overlap"),
    ("works against the answer holds back", "some one against the answer holds back"),
)
TEAM_TOGETHER = (
    ("together cost more than the sum", "the ten together cost more than the sum"),
    ("more than for as many random", "… by more than ten random heads do"),
    ("repair more than", "share of a head's cost that is repaired"),
    ("than as many other best heads", "… beyond what as many others would repair"),
)


@table("teamwork-pairs")
def teamwork_pairs() -> str:
    """Every pair that is judged backup, relief or overlap, by intervals that hold together."""
    body = []
    for row in rows(f"{TEAMWORK}/pairs.csv"):
        if row["verdict"] not in ("additive", "undecided"):
            wide = {"value": row["interaction"]}
            wide |= {end: row[f"{end} together"] for end in ("low", "high")}
            losses = [number(row[name]) for name in ("loss of one", "loss of other", "joint loss")]
            pair = f"{row['one']} and {row['other']}"
            body.append([KEPT_TASKS[row["task"]], pair, *losses, interval(wide), row["verdict"]])
    header = ("task", "heads", "loss of one", "of the other", "of both", "interaction", "verdict")
    return markdown(header, sorted(body, key=lambda line: line[-1]))


@table("teamwork-verdicts")
def teamwork_verdicts() -> str:
    """How many pairs of each task have which verdict."""
    found = rows(f"{TEAMWORK}/pairs.csv")
    words = ("backup", "relief", "overlap", "additive", "undecided")
    body = []
    for task in dict.fromkeys(row["task"] for row in found):
        judged_so = [row["verdict"] for row in found if row["task"] == task]
        body.append([KEPT_TASKS[task], *(str(judged_so.count(word)) for word in words)])
    return markdown(("task", *words), body)


@table("teamwork-repair")
def teamwork_repair() -> str:
    """What heads with repairers cost with these on and off."""
    body = [
        [
            row["head"],
            row["repairers"].replace(" ", ", "),
            *(named(row, name) for name in ("loss", "loss without repairers", "share repaired")),
            named(row, "by others"),
        ]
        for row in rows(f"{TEAMWORK}/self-repair.csv", task="ioi")
        if row["repairers"]
    ]
    header = ("head", "repaired by", "loss", "loss with these off", "share repaired")
    return markdown((*header, "as many others would"), body)


@table("teamwork-sets")
def teamwork_sets() -> str:
    """Joint loss and sum of single losses by size of the set."""
    body = []
    for task in ("ioi", "greater-than"):
        for row in rows(f"{TEAMWORK}/sets.csv", task=task, series="top"):
            random = one(f"{TEAMWORK}/sets.csv", task=task, series="random", count=row["count"])
            cells = [named(row, name) for name in ("joint loss", "sum of single losses", "ratio")]
            body.append([KEPT_TASKS[task], row["count"], *cells, named(random, "difference")])
    header = ("task", "heads", "joint loss", "sum of single losses", "ratio")
    return markdown((*header, "random heads: joint − sum"), body)


@table("teamwork-claims")
def teamwork_claims() -> str:
    """All claims of teamwork."""
    tasks = ("IOI", "Greater Than")
    expected = [(w, f"{task}: {name}") for task in tasks for w, name in TEAM_CLAIMS]
    body = []
    for claim, (words, name) in zip(claims(TEAMWORK), [*expected, *TEAM_TOGETHER], strict=True):
        if words not in claim["claim"]:
            raise SystemExit(f"{TEAMWORK}: {claim['claim']} is not about: {words}")
        text = claim["verdict"] if claim["measured"] is None else verdict(claim)
        body.append([name, text])
    return markdown(("claim", "verdict"), body)


# pruned
PRUNED = {
    "smollm2-135m-q4": "pruned/smollm2-135m-q4-quick",
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M": "pruned/Qwen2.5-Coder-1.5B-Instruct-Q4_K_M-quick",
}
KEPT_UNITS = {"groups": "key/value groups", "heads": "query heads of each group"}


def kept_words(row: Row, of: Mapping[tuple[str, str], str]) -> str:
    """What is kept, in words."""
    return f"{row['count']} of {of[row['kept'], row['count']]} {KEPT_UNITS[row['kept']]}"


def all_of(folder: str) -> dict[tuple[str, str], str]:
    """How many groups, or heads of a group, there are in all, by what is kept."""
    run = json.loads((RESULTS / folder / "run.json").read_text("utf-8"))
    return {(s["kept"], str(s["count"])): str(s["of"]) for s in run["facts"]["sizes"]}


def pruned_sizes(folder: str) -> str:
    """What each size saves, and how much faster it is."""
    of, body = all_of(folder), []
    for row in rows(f"{folder}/sizes.csv"):
        saved = [f"{100 * (1 - float(row[f'{what} share'])):.1f} %" for what in SAVED]
        faster = [span(row, what) for what in ("reading", "writing")]
        body.append([kept_words(row, of), *saved, *faster])
    header = ("parameters saved", "cache saved", "reading, times as fast", "writing")
    return markdown(("kept", *header), body)


SAVED = ("parameters", "cache_bytes")


def pruned_costs(folder: str, metric: str, task: str) -> str:
    """A mean under every head set of every size: the best heads and random ones."""
    of, body = all_of(folder), []
    whole = one(f"{folder}/curves.csv", task=task, metric=metric, series="whole")
    body.append(["all heads", interval(whole)])
    found = rows(f"{folder}/curves.csv", task=task, metric=metric)
    points = {(r["series"], r["treatment"], r["kept"], r["count"]): r for r in found}
    columns = list(dict.fromkeys(key[:2] for key in points if key[0] != "whole"))
    for size in rows(f"{folder}/sizes.csv"):
        place = size["kept"], size["count"]
        body.append([kept_words(size, of), *(interval(points[c + place]) for c in columns)])
    body[0] += ["" for _ in columns[1:]]
    return markdown(("kept", *(" ".join(column) for column in columns)), body)


def pruned_claims(folder: str) -> str:
    """Every claim with its verdict."""
    body = []
    for claim in claims(folder):
        words = claim["claim"].split(" (measured")[0]
        ends = {"value": claim["measured"], "low": claim["low"], "high": claim["high"]}
        decides = re.search(r"hold together: (.*?)\.", claim["reason"])
        where = decides.group(1) if decides else "–"
        body.append([words, interval(ends), claim["verdict"], where])
    return markdown(("claim", "measured", "verdict", "what decides"), body)


for _name, _folder in PRUNED.items():
    _short = "pruned" if _name.startswith("smollm2") else "pruned-qwen"
    table(f"{_short}-sizes")(partial(pruned_sizes, _folder))
    table(f"{_short}-loss")(partial(pruned_costs, _folder, "loss", "text"))
    table(f"{_short}-accuracy")(partial(pruned_costs, _folder, "accuracy", "mean over tasks"))
    table(f"{_short}-claims")(partial(pruned_claims, _folder))


CACHE = "cache-budget"
CACHE_RANKINGS = {  # folders of one curve on the needle task, by ranking
    "gates": "streaming-gates",
    "ablation": "ablation",
    "attribution": "attribution",
    "retrieval": "retrieval-score",
}
CACHE_FOLDERS = {  # what was measured, by folder
    **{f"smollm2-135m-q4-needle-{end}": f"needle, {r}" for end, r in CACHE_RANKINGS.items()},
    "smollm2-135m-q4-needle-512": "needle of 512 tokens, attribution",
    "smollm2-135m-q4-knowledge-recall": "Knowledge Recall, attribution",
    "smollm2-135m-q4-text": "text, attribution",
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M-needle-192": "1.5B, needle of 192 tokens, attribution",
}


def cache_curve(folder: str, series: str = "top") -> dict[int, Row]:
    """The points of one series of a curve, by the number of heads kept in full."""
    found = rows(f"{CACHE}/{folder}/curves.csv", series=series)
    return {int(row["count"]): row for row in found}


@table("cache-needle")
def cache_needle() -> str:
    """Accuracy on the needle task by heads kept in full, for each ranking."""
    curves = [cache_curve(f"smollm2-135m-q4-needle-{end}") for end in CACHE_RANKINGS]
    curves.append(cache_curve("smollm2-135m-q4-needle-gates", "anywhere"))
    body = [
        [str(count), f"{float(row['cache']):.0%}", *(interval(curve[count]) for curve in curves)]
        for count, row in curves[0].items()
    ]
    return markdown(("heads in full", "cache kept", *CACHE_RANKINGS.values(), "random"), body)


@table("cache-others")
def cache_others() -> str:
    """Another task, text, longer prompts and another model."""
    body = []
    for folder, what in list(CACHE_FOLDERS.items())[len(CACHE_RANKINGS) :]:
        best, drawn = (cache_curve(folder, series) for series in ("top", "anywhere"))
        for count, row in best.items():
            share = f"{float(row['cache']):.0%}"
            body.append([what, str(count), share, interval(row), interval(drawn[count])])
    return markdown(("what", "heads in full", "cache kept", "TopK", "random"), body)


@table("cache-equal")
def cache_equal() -> str:
    """The smallest cache at equal score."""
    body = []
    for folder, what in CACHE_FOLDERS.items():
        for row in rows(f"{CACHE}/{folder}/cache-at-equal-score.csv"):
            lost = interval({**row, "value": row["lost"]})
            smaller = [f"{float(row[name]):.2f}" for name in ("smaller", "long_smaller")]
            name = "TopK" if row["series"] == "top" else "random"
            body.append([what, name, row["count"], lost, *smaller])
    header = ("what", "heads", "in full", "score lost", "smaller", "smaller at 32,768 tokens")
    return markdown(header, body)


@table("lm-eval-scores")
def lm_eval_scores() -> str:
    """The scores of all benchmarks, with the best heads and with random ones masked."""
    body = []
    for model, name in MODELS.items():
        folder = f"lm-eval/{model}"
        if not (RESULTS / folder).is_dir():
            continue
        for row in rows(f"{folder}/curves.csv", series="top"):
            about = {key: row[key] for key in ("task", "metric", "count")}
            others = [one(f"{folder}/curves.csv", series=s, **about) for s in ("random", "matched")]
            cells = [
                name,
                f"{row['task']}, {row['metric']}",
                row["count"],
                *map(interval, [row, *others]),
            ]
            gap = {"difference": "TopK minus RandomK", **about}
            masked = row["count"] != "0"
            body.append(
                [*cells, interval(one(f"{folder}/differences.csv", **gap)) if masked else ""]
            )
    header = ("model", "benchmark", "heads masked", "TopK", "RandomK", "layer-matched")
    return markdown((*header, "TopK minus RandomK"), body)


TABLES |= {name: partial(f, sys.modules[__name__]) for name, f in findings_lists.TABLES.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Write all pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args(argv)
    wrong = 0
    for path in sorted(PAGES):
        text = page(path)
        if text != path.read_text(encoding="utf-8"):
            wrong += 1
            print(f"{path.name} does not fit its results" if arguments.check else f"wrote {path}")
            if not arguments.check:
                path.write_text(text, encoding="utf-8")
    return int(arguments.check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
