"""Draw the forms of the four published figures beside ours, for the gallery of the documentation.

    python scripts/draw_published.py

The published curves are not ours to print, and we do not have their numbers. What is drawn is their
form (axes, ticks, colours, legends) with those points that can be read off the figures, to about
5 % of an axis, in the width of a column: panels of one row stand two by two. Straight lines join
the points of a curve, nothing is interpolated, and what cannot be read is left empty. Right of each
form stands the committed figure of ours, which `draw_results.py` draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from PIL import Image

from headcount.figures import layout, style

DOCS = Path(__file__).parents[1] / "docs"
OUT, RESULTS = DOCS / "images" / "gallery", DOCS / "results"
OURS = {  # the committed figure that stands beside each form
    "masked-heads": "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M/figure-column.png",
    "heads-kept": "smollm2-135m-q4/figure-column.png",
    "head-roles": "smollm2-135m-q4/figure.png",
    "token-insertion": "three-models/figure-column.png",
}
Points = Sequence[tuple[float, float]]

# "Cognitive Mirrors", Figure 3 (Llama-3.1-8B-Instruct): masked heads and score.
MASKED: Mapping[str, Mapping[str, Points]] = {
    "Retrieval": {
        "TopK Accuracy": [(16, 0.95), (32, 0.95), (64, 0.55), (128, 0.0)],
        "RandomK Accuracy": [(16, 0.95), (128, 0.85)],
        "TopK Comet": [(16, 0.95), (128, 0.4)],
        "RandomK Comet": [(16, 0.95), (128, 0.9)],
    },
    "Knowledge Recall": {
        "TopK Accuracy": [(16, 0.8), (32, 0.3), (64, 0.45), (128, 0.0)],
        "RandomK Accuracy": [(16, 0.8), (128, 0.75)],
        "TopK Comet": [(16, 0.95), (128, 0.4)],
        "RandomK Comet": [(16, 0.95), (128, 0.85)],
    },
    "Math Calculation": {
        "TopK Accuracy": [(16, 0.95), (64, 0.7), (128, 0.35)],
        "RandomK Accuracy": [(16, 0.95), (128, 0.8)],
        "TopK Comet": [(16, 0.95), (64, 0.95), (128, 0.6)],
        "RandomK Comet": [(16, 0.95), (128, 0.85)],
    },
    "Inference": {
        "TopK Accuracy": [(16, 0.85), (32, 0.75), (64, 0.85), (128, 0.5)],
        "RandomK Accuracy": [(16, 0.85), (128, 0.7)],
        "TopK Comet": [(16, 0.95), (128, 0.85)],
        "RandomK Comet": [(16, 0.95), (128, 0.9)],
    },
}
# "Sparse Attention Post-Training for Mechanistic Interpretability": the models, the ends of the
# dashed line (heads kept by each model), its height, its label, and the end of the axis.
KEPT: Mapping[str, tuple[tuple[str, str], tuple[float, float], float, str, list[int]]] = {
    "Greater Than": (("GPT-2", "Sparse GPT-2"), (50, 30), 0.85, "0.6x", [0, 50, 100]),
    "IOI": (("GPT-2", "Sparse GPT-2"), (100, 50), 0.9, "2.0x", [0, 50, 100]),
    "Docstring": (
        ("OLMo-7B", "Sparse OLMo-7B"), (350, 270), 0.95, "1.3x", [0, 250, 500, 750, 1000],
    ),
    "IOI Long": (
        ("OLMo-7B", "Sparse OLMo-7B"), (400, 250), 0.9, "1.6x", [0, 250, 500, 750, 1000],
    ),
}  # fmt: skip
COLOURS = {"GPT-2": "#1f77b4", "Sparse GPT-2": "#ff7f0e", "OLMo-7B": "#2ca02c"}
COLOURS["Sparse OLMo-7B"] = "#e377c2"
# "Causal Head Gating", Figure 2: ablated heads and Δ log-probability, by row and column.
MODELS = ("L3.2-1B", "L3.2-3B", "L3.2-3B-I", "L3.1-8B")
NEAR_0: Points = [(0, 0), (50, 0)]  # "stays near 0"
ROLES: Mapping[str, Sequence[Mapping[str, Points]]] = {
    "Syntax": [
        {"facilitation": [(0, 0), (50, -3.2)], "interference": [(0, 0), (15, 1), (50, 0)]},
        {"facilitation": [(0, 0), (50, -2.2)], "interference": NEAR_0},
        {"facilitation": [(0, 0), (50, -2.8)], "interference": [(0, 0), (30, 0.8)]},
        {"facilitation": [(0, 0), (50, -1.2)], "interference": NEAR_0},
    ],
    "Common Sense": [
        {"facilitation": [(0, 0), (50, -3.0)], "interference": [(0, 0), (25, 0.5)]},
        {"facilitation": [(0, 0), (50, -2.0)], "interference": [(0, 0), (25, 1.0)]},
        {"facilitation": [(0, 0), (50, -2.5)], "interference": [(0, 0), (20, 1.5)]},
        {"facilitation": [(0, 0), (50, -1.0)], "interference": [(0, 0), (20, 1.2)]},
    ],
    "Math": [
        {
            "facilitation": [(0, 0), (50, -150)],
            "irrelevance": [(0, 0), (50, -10)],
            "interference": NEAR_0,
        },
        {"facilitation": [(0, 0), (50, -100)], "interference": NEAR_0},
        {"facilitation": [(0, 0), (50, -150)], "interference": NEAR_0},
        {"facilitation": [(0, 0), (50, -80)], "interference": [(0, 0), (25, 20)]},
    ],
}
# "Meaningless Tokens, Meaningful Gains", Figure 10: accuracy in per cent.
BARS = {
    "Qwen2.5-Math-1.5B": (64, 66, 66),
    "Qwen2.5-Math-7B": (73, 75, 74),
    "Llama3.1-8B Instruct": (44, 46, 48),
}
ATTENTION = (
    (("None", "Mless", "Mful"), 60, ("#1f77b4", "#d62728", "#2ca02c")),
    (("Mless", "Mful"), 120, ("#1f77b4", "#d62728")),
)


@style.for_print
def masked() -> Any:
    figure, grid = layout.panel_grid(4, style.COLUMN, 1.65, 0.6, sharey=True)
    for axes, (title, lines) in zip(grid, MASKED.items(), strict=True):
        for name, points in lines.items():
            colour = style.METRICS["Comet" in name]
            dashes = "-" if name.startswith("TopK") else "--"
            axes.plot(*zip(*points, strict=True), dashes, marker="o", color=colour, label=name)
        layout.log_axis(axes, [16, 32, 64, 128], ["16", "32", "64", "128"], base=2)
        axes.set(title=title, ylim=(-0.03, 1.03), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1.0])
        axes.grid(True)
    layout.outer_labels(grid, "# Masked Heads", "Score")
    style.legend_above(figure, *grid[0].get_legend_handles_labels(), ncols=4)
    return figure


@style.for_print
def kept() -> Any:
    figure, grid = layout.panel_grid(4, style.COLUMN, 1.7, 0.2, sharey=True)
    for axes, (title, panel) in zip(grid, KEPT.items(), strict=True):
        models, ends, height, label, ticks = panel
        axes.plot(ends, [height] * 2, color="black", linestyle="--", linewidth=0.9)
        for model, end in zip(models, ends, strict=True):
            axes.plot([end], [height], "o", color=COLOURS[model], label=model)
        axes.annotate(label, (sum(ends) / 2, height + 0.03), ha="center", fontsize=6.5)
        axes.set(title=title, xlim=(0, ticks[-1] * 1.2 or 1))
        axes.set(xticks=ticks, yticks=[0, 0.5, 1], ylim=(-0.05, 1.1))
        axes.tick_params(axis="x", labelsize=6)
        axes.legend(loc="lower right", fontsize=6)
    layout.outer_labels(grid, "Number of Heads Kept", "Explained Effect")
    return figure


@style.for_print
def roles() -> Any:
    figure = style.new_figure(style.COLUMN, 3.9)
    grid = figure.subplots(3, 4, sharex=True, sharey="row")
    for row, (task, panels) in zip(grid, ROLES.items(), strict=True):
        for axes, lines in zip(row, panels, strict=True):
            axes.axhline(0, color="#aaaaaa", linewidth=0.6)
            for role, points in ({"irrelevance": NEAR_0} | lines).items():
                wide = 2.6 if role == "irrelevance" else 1.0  # it lies below interference near 0
                look: dict[str, Any] = {"color": style.ROLES[role], "linewidth": wide}
                axes.plot(*zip(*points, strict=True), marker="o", **look)
            axes.set(xlim=(-3, 53), xticks=range(0, 51, 10))
            axes.set_xticklabels(["0", "", "20", "", "40", ""], fontsize=6)
            axes.grid(True)
        row[0].set_ylim(*((-160, 25) if task == "Math" else (-3.5, 1.7)))
        row[0].set_yticks([-150, -100, -50, 0] if task == "Math" else [-3, -2, -1, 0, 1])
        row[-1].annotate(task, (1.06, 0.5), xycoords="axes fraction", rotation=270, va="center")
    for axes, model in zip(grid[0], MODELS, strict=True):
        axes.set_title(model, fontsize=6.5)
    figure.supxlabel("Number of Ablated Heads", fontsize=7.5)
    figure.supylabel("Δ Log Probability of Target Response", fontsize=7.5)
    handles = [
        grid[0, 0].plot([], [], color=colour, label=role.title())[0]
        for role, colour in style.ROLES.items()
    ]
    names = [role.title() for role in style.ROLES]
    style.legend_above(figure, handles, names, ncols=3, title="Metric")
    return figure


@style.for_print
def inserts() -> Any:
    figure = style.new_figure(style.COLUMN, 5.2)
    bars, *charts = figure.subplots(3, 1, height_ratios=[1.7, 1, 1])
    for place, name in enumerate(("w/o", "w/ Mless", "w/ Mful")):
        heights = [values[place] for values in BARS.values()]
        x = [group + 0.27 * (place - 1) for group in range(len(BARS))]
        bars.bar(x, heights, 0.25, color=style.INSERTS[name], label=name)
    bars.set_xticks(range(len(BARS)), [fill(name, 14) for name in BARS])
    bars.set(title="Results on Math-500", ylim=(30, 78), yticks=[30, 40, 50, 60, 70])
    bars.legend(loc="upper right", fontsize=6.5)
    for axes, (series, end, colours) in zip(charts, ATTENTION, strict=True):
        _empty(axes, series, end, colours)
    return figure


def _empty(axes: Axes, series: Sequence[str], end: int, colours: Sequence[str]) -> None:
    for name, colour in zip(series, colours, strict=True):
        axes.plot([], [], color=colour, label=name)
    axes.set(title="Average attention on Head 14", xlim=(0, end), ylim=(0, 0.1))
    axes.set_yticks([0, 0.02, 0.04, 0.06, 0.08, 0.1])
    axes.text(0.5, 0.4, "spikes that cannot be read off", transform=axes.transAxes, ha="center")
    axes.legend(loc="upper left", ncols=3, fontsize=6.5)


def beside(form: Path, ours: Path, out: Path) -> None:
    """Both pictures in one, the published form on the left, as wide as a page."""
    with Image.open(form) as left, Image.open(ours) as right:
        pair = Image.new("RGB", (left.width + right.width + 40, max(left.height, right.height)))
        pair.paste("white", (0, 0, *pair.size))
        pair.paste(left.convert("RGB"), (0, 0))
        pair.paste(right.convert("RGB"), (left.width + 40, 0))
        packed = pair.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=3)
        packed.save(out, dpi=(200, 200), optimize=True)


def main() -> None:
    """Draw all forms, and each beside ours."""
    OUT.mkdir(parents=True, exist_ok=True)
    forms = {"masked-heads": masked, "heads-kept": kept, "head-roles": roles}
    for name, draw in {**forms, "token-insertion": inserts}.items():
        drawn = style.save_figure(draw(), OUT, f"published-{name}")
        beside(drawn[0], RESULTS / name / OURS[name], OUT / f"{name}.png")
        for path in drawn:
            path.unlink()
        print(OUT / f"{name}.png")


if __name__ == "__main__":
    main()
