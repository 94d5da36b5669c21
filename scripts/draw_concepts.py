"""Draw the pictures of docs/concepts.md from measurements of the bundled model.

    python scripts/draw_concepts.py        writes docs/images/concepts/*.png

Some five minutes on one core the first time; what was measured is kept in headcount's store.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headcount import Curve, Head, HeadScores, Store, Task, curve, evaluate, load_model, make_task
from headcount.claims import judge
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.rankings import rank
from headcount.stats import Interval, bootstrap, paired_difference

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "images" / "concepts"
MODEL, EXAMPLES = "smollm2-135m-q4", 64
PROMPT = "Then, Mary and John went to the garden. John gave a lamp to"
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
COLOURS = {"supported": GREEN, "undecided": GREY, "refuted": ORANGE}
MARGIN = 0.05  # fixed beforehand, as in the studies


def main() -> None:
    model = load_model(MODEL)
    task = make_task("ioi", model.tokenizer, n=EXAMPLES)
    with Store.open(None) as store:
        scores = rank(model, task, "attribution", lab=Lab(store))
        save("ranking", draw_ranking(scores))
        looks = ("attention-retrieval", "attention-previous")  # at the answer; at the token before
        heads = [rank(model, task, ranking, lab=Lab(store)).top(1)[0] for ranking in looks]
        save("head", draw_heads(heads))
        save("gate", draw_gates(model, task, scores.top(8), store))
        drawn = curve(model, task, scores, counts=[0, 1, 2, 4, 8, 16], seeds=5, lab=Lab(store))
        save("curve", drawn.figure())
        save("claim", draw_claims(drawn))


def save(name: str, figure: Figure) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / f"{name}.png", dpi=120, metadata={"Software": None})
    print(f"{name}.png: {(PICTURES / f'{name}.png').stat().st_size / 1000:.0f} kB")


@torch.no_grad()
def draw_heads(heads: Sequence[Head]) -> Figure:
    """Where heads look: attention from each token (row) to those before it (column)."""
    eager = load_model(MODEL, attention="eager")
    ids = eager.tokenizer(PROMPT, return_tensors="pt").input_ids.to(eager.device)
    attention = eager.module(ids, output_attentions=True).attentions  # per layer (1, heads, t, t)
    words = [eager.tokenizer.decode(one) for one in ids[0]]
    figure = Figure(figsize=(4.1 * len(heads), 4.7), layout="constrained")
    for axes, head in zip(figure.subplots(1, len(heads)), heads, strict=True):
        axes.imshow(attention[head.layer][0, head.index].cpu().numpy(), cmap="Blues", vmin=0)
        axes.set_title(f"head {head}: layer {head.layer}, number {head.index}", fontsize=10)
        axes.set_xticks(range(len(words)), words, rotation=90, fontsize=8)
        axes.set_yticks(range(len(words)), words, fontsize=8)
    figure.supylabel("from this token", fontsize=9)
    figure.supxlabel("to this one", fontsize=9)
    return figure


def draw_ranking(scores: HeadScores) -> Figure:
    """Layer × head, blue for heads that help."""
    figure = Figure(figsize=(6.6, 3.0), layout="constrained")
    axes = figure.add_subplot()
    grid = scores.values.reshape(len(scores.layout.counts), -1).T  # (heads, layers)
    most = float(np.abs(grid).max())
    image = axes.imshow(grid, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    for head in scores.top(8):
        axes.text(head.layer, head.index, "×", color="black", ha="center", va="center")
    axes.set_xlabel("layer")
    axes.set_ylabel("head")
    figure.colorbar(image, label="score", pad=0.01)
    axes.set_title("270 heads by attribution on IOI; × the best eight", fontsize=10)
    return figure


def draw_gates(model: Model, task: Task, heads: Sequence[Head], store: Store) -> Figure:
    """The answer's lead over the foil as the gates of some heads move, with each ablation."""
    values = np.linspace(0, 1.5, 7)
    gates = np.ones((len(values), model.layout.total), dtype=np.float32)
    gates[:, [model.layout.number(head) for head in heads]] = values[:, None]
    figure = Figure(figsize=(6.0, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for ablation, colour in (("zero", GREY), ("mean", ORANGE), ("corrupted", BLUE)):
        found = evaluate(
            model, task, gates, metric="logit_difference", ablation=ablation, lab=Lab(store)
        )
        lines = [bootstrap(row, clusters=found.clusters) for row in found.values]
        _band(axes, values, lines, f"ablation: {ablation}", colour)
        print(f"gate 0, {ablation}: {lines[0]}; gate 1: {lines[4]}")
    axes.axvline(1, color="#aaaaaa", linewidth=0.8)
    axes.axhline(0, color="#aaaaaa", linewidth=0.8)
    axes.set_xlabel(f"gate g of the {len(heads)} best heads (1: as the model is)")
    axes.set_ylabel("logit difference,\nanswer minus foil")
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    return figure


def _band(axes: Axes, x: np.ndarray, lines: Sequence[Interval], label: str, colour: str) -> None:
    axes.plot(x, [line.value for line in lines], color=colour, marker="o", label=label)
    low, high = [line.low for line in lines], [line.high for line in lines]
    axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)


def draw_claims(drawn: Curve) -> Figure:
    """Two statements at several counts: intervals, margins, verdicts."""
    counts = [point.count for point in drawn.series("top") if point.count]
    best = [drawn.difference("top", "random", count) for count in counts]
    whole = drawn.raw["random", 0]
    random = [
        paired_difference(drawn.raw["random", count], whole, clusters=drawn.clusters)
        for count in counts
    ]
    figure = Figure(figsize=(8.4, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _statement(left, best, [judge(gap, below=-MARGIN) for gap in best], (-MARGIN,))
    left.set_title(f"“the best cost over {MARGIN:g} more than random ones”", fontsize=9)
    left.set_xlabel("accuracy, best masked minus random masked")
    within = (-MARGIN, MARGIN)
    _statement(right, random, [judge(gap, within=within) for gap in random], within)
    right.set_title(f"“random ones change less than {MARGIN:g}”", fontsize=9)
    right.set_xlabel("accuracy, random masked minus none masked")
    left.set_yticks(range(len(counts)), [f"{c} head{'s' * (c > 1)}" for c in counts])
    left.set_ylim(len(counts) - 0.5, -0.5)
    return figure


def _statement(
    axes: Axes, gaps: Sequence[Interval], verdicts: Sequence[str], margins: Sequence[float]
) -> None:
    for margin in margins:
        axes.axvline(margin, color="black", linestyle=":", linewidth=1)
    for place, (gap, verdict) in enumerate(zip(gaps, verdicts, strict=True)):
        colour = COLOURS[verdict]
        axes.plot([gap.low, gap.high], [place, place], color=colour, linewidth=2)
        axes.plot(gap.value, place, "o", color=colour)
        where = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 9}
        axes.text(1.02, place, verdict, color=colour, **where)
        print(f"{gap}, {verdict}")


if __name__ == "__main__":
    main()
