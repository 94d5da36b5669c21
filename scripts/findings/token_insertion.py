"""The tables of findings of token-insertion."""

from __future__ import annotations

import csv

from findings.tables import (
    MODELS,
    Row,
    claims,
    drawn,
    fixed,
    judged,
    markdown,
    one,
    rows,
    span,
    table,
)

TOKENS = {"three-models": "word problems", f"{[*MODELS][2]}-math-500": "MATH-500"}


INSERTS = ("w/ Mless", "w/ Mful")


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
