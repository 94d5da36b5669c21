"""Draw the forms of the four published figures, for the gallery of the documentation.

    python scripts/draw_published.py

The published curves are not ours to print, and we do not have their numbers. What is drawn is their
form (panels, axes, ticks, colours, legends) with those points that can be read off the figures, to
about 5 % of an axis. Points of one curve are joined by straight lines; nothing is interpolated, and
what cannot be read is left empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from headcount.figures import style

OUT = Path(__file__).parents[1] / "docs" / "images" / "gallery"
SMALL = 5.5
Points = Sequence[tuple[float, float]]

# "Cognitive Mirrors", Figure 3 (Llama-3.1-8B-Instruct): masked heads and score.
MASKED: Mapping[str, Mapping[str, Points]] = {
    "Retrieval": {
        "TopK Accuracy": [(16, 0.95), (64, 0.55), (128, 0.0)],
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
ROLES: Mapping[str, Sequence[Mapping[str, Points]]] = {
    "Syntax": [
        {"facilitation": [(0, 0), (50, -3.2)], "interference": [(0, 0), (15, 1), (50, 0)]},
        {"facilitation": [(0, 0), (50, -2.2)]},
        {"facilitation": [(0, 0), (50, -2.8)], "interference": [(0, 0), (30, 0.8)]},
        {"facilitation": [(0, 0), (50, -1.2)]},
    ],
    "Common Sense": [
        {"facilitation": [(0, 0), (50, -3.0)], "interference": [(0, 0), (25, 0.5)]},
        {"facilitation": [(0, 0), (50, -2.0)], "interference": [(0, 0), (25, 1.0)]},
        {"facilitation": [(0, 0), (50, -2.5)], "interference": [(0, 0), (20, 1.5)]},
        {"facilitation": [(0, 0), (50, -1.0)], "interference": [(0, 0), (20, 1.2)]},
    ],
    "Math": [
        {"facilitation": [(0, 0), (50, -150)], "irrelevance": [(0, 0), (50, -10)]},
        {"facilitation": [(0, 0), (50, -100)]},
        {"facilitation": [(0, 0), (50, -150)]},
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
    figure = style.new_figure(style.PAGE, 2.1)
    for axes, (title, lines) in zip(
        figure.subplots(1, 4, sharey=True), MASKED.items(), strict=True
    ):
        for name, points in lines.items():
            colour = style.METRICS["Comet" in name]
            dashes = "-" if name.startswith("TopK") else "--"
            axes.plot(*zip(*points, strict=True), dashes, marker="o", color=colour, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks([16, 32, 64, 128], ["16", "32", "64", "128"])
        axes.minorticks_off()
        axes.set(title=title, xlabel="# Masked Heads", ylim=(-0.03, 1.03))
        axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
        axes.grid(True)
    first = figure.axes[0]
    first.set_ylabel("Score")
    style.legend_above(figure, *first.get_legend_handles_labels(), ncols=4)
    return figure


@style.for_print
def kept() -> Any:
    figure = style.new_figure(style.PAGE, 1.9)
    for axes, (title, panel) in zip(figure.subplots(1, 4, sharey=True), KEPT.items(), strict=True):
        models, ends, height, label, ticks = panel
        axes.plot(ends, [height] * 2, color="black", linestyle="--", linewidth=0.9)
        for model, end in zip(models, ends, strict=True):
            axes.plot([end], [height], "o", color=COLOURS[model], label=model)
        axes.annotate(label, (sum(ends) / 2, height + 0.03), ha="center", fontsize=6.5)
        axes.set(title=title, xlabel="Number of Heads Kept", xlim=(0, ticks[-1] * 1.2 or 1))
        axes.set(xticks=ticks, yticks=[0, 0.5, 1], ylim=(-0.05, 1.1))
        axes.legend(loc="lower right", fontsize=SMALL + 0.5)
    figure.axes[0].set_ylabel("Explained Effect")
    return figure


@style.for_print
def roles() -> Any:
    figure = style.new_figure(style.PAGE, 4.2)
    grid = figure.subplots(3, 4, sharex=True, sharey="row")
    for row, (task, panels) in zip(grid, ROLES.items(), strict=True):
        for axes, lines in zip(row, panels, strict=True):
            axes.axhline(0, color="#aaaaaa", linewidth=0.6)
            for role, points in lines.items():
                axes.plot(*zip(*points, strict=True), marker="o", color=style.ROLES[role])
            axes.set_xlim(0, 50)
            axes.grid(True)
        row[0].set_ylim(*((-160, 25) if task == "Math" else (-3.5, 1.7)))
        row[-1].annotate(task, (1.04, 0.5), xycoords="axes fraction", rotation=270, va="center")
    for axes, model in zip(grid[0], MODELS, strict=True):
        axes.set_title(model)
    figure.supxlabel("Number of Ablated Heads", fontsize=7.5)
    figure.supylabel("Δ Log Probability of Target Response", fontsize=7.5)
    handles = [
        grid[0, 0].plot([], [], color=colour, label=role.title())[0]
        for role, colour in style.ROLES.items()
    ]
    figure.legend(handles=handles, title="Metric", loc="outside right center", frameon=False)
    return figure


@style.for_print
def inserts() -> Any:
    figure = style.new_figure(style.PAGE, 2.9)
    grid = figure.add_gridspec(2, 2)
    bars = figure.add_subplot(grid[:, 0])
    names = ("w/o", "w/ Mless", "w/ Mful")
    for place, name in enumerate(names):
        heights = [values[place] for values in BARS.values()]
        x = [group + 0.27 * (place - 1) for group in range(len(BARS))]
        bars.bar(x, heights, 0.25, color=style.INSERTS[name], label=name)
    bars.set_xticks(range(len(BARS)), list(BARS), fontsize=6)
    bars.set(title="Results on Math-500", ylim=(30, 78), yticks=[30, 40, 50, 60, 70])
    bars.legend(loc="upper right")
    for row, (series, end, colours) in enumerate(ATTENTION):
        _empty(figure.add_subplot(grid[row, 1]), series, end, colours)
    return figure


def _empty(axes: Axes, series: Sequence[str], end: int, colours: Sequence[str]) -> None:
    for name, colour in zip(series, colours, strict=True):
        axes.plot([], [], color=colour, label=name)
    axes.set(title="Average attention on Head 14", xlim=(0, end), ylim=(0, 0.1))
    axes.set_yticks([0, 0.05, 0.1])
    axes.text(0.5, 0.4, "spikes that cannot be read off", transform=axes.transAxes, ha="center")
    axes.legend(loc="upper left", ncols=3)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    forms = {"masked-heads": masked, "heads-kept": kept, "head-roles": roles}
    for name, draw in {**forms, "token-insertion": inserts}.items():
        for path in style.save_figure(draw(), OUT, f"published-{name}"):
            if path.suffix != ".png":
                path.unlink()
        print(OUT / f"published-{name}.png")


if __name__ == "__main__":
    main()
