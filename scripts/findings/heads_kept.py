"""The tables of findings of heads-kept."""

from __future__ import annotations

from findings.tables import (
    DENSE,
    KEPT_MODELS,
    KEPT_TASKS,
    SPARSE,
    Row,
    claims,
    interval,
    kept,
    markdown,
    number,
    one,
    rows,
    table,
    verdict,
)

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
            if claim["published"] is not None or "need fewer" in claim["claim"]:
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
