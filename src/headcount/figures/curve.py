"""A head curve: value against number of heads, one line per series, bands for intervals."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from headcount.curves import SERIES, Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Solid for the ranking under test, dashed for controls; colours that colour-blind readers can tell
# apart (Okabe and Ito).
STYLES: dict[str, dict[str, Any]] = {
    "top": {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    "bottom": {"color": "#009E73", "linestyle": "-", "marker": "s"},
    "random": {"color": "#555555", "linestyle": "--", "marker": "o"},
    "matched": {"color": "#D55E00", "linestyle": ":", "marker": "^"},
}


def plot_curve(curve: Curve, *, title: str | None = None) -> Figure:
    """Draw a curve with the intervals of all its points as bands."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    counts = sorted({point.count for point in curve.points})
    for name in SERIES:
        points = curve.series(name)
        if not points:
            continue
        x = [point.count for point in points]
        style = STYLES[name]
        draws = max(point.draws for point in points)
        label = SERIES[name] + (f" (mean of {draws} draws)" if draws > 1 else "")
        axes.plot(x, [point.value for point in points], label=label, markersize=5, **style)
        axes.fill_between(
            x,
            [point.low for point in points],
            [point.high for point in points],
            color=style["color"],
            alpha=0.15,
            linewidth=0,
        )
    if len(counts) > 2 and counts[-1] > 8:
        axes.set_xscale("symlog", base=2, linthresh=1)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    verb = "masked" if curve.mode == "mask" else "kept"
    first = curve.points[0]
    axes.set_xlabel(f"Number of heads {verb} (of {curve.scores.layout.total})")
    axes.set_ylabel(curve.metric.name)
    if curve.metric.binary:
        axes.set_ylim(-0.03, 1.03)
    title = title or f"{first.task} · {first.model} · ranked by {curve.scores.method}"
    axes.set_title(fill(title, 56))  # as many signs as the figure is wide
    axes.grid(alpha=0.25)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    note = f"bands: 95 % intervals · n = {first.n} · stand-in: {curve.stand_in}"
    figure.supxlabel(fill(note, 96), fontsize=7, color="#666666")
    return figure


def save_figure(figure: Figure, folder: str | Path, name: str = "figure") -> list[Path]:
    """Write PNG, SVG and PDF; the same figure gives the same bytes."""
    import matplotlib

    paths = []
    with matplotlib.rc_context({"svg.hashsalt": "headcount", "pdf.fonttype": 42}):
        for suffix, metadata in (
            ("png", {"Software": None}),
            ("svg", {"Date": None, "Creator": None}),
            ("pdf", {"CreationDate": None, "Creator": None, "Producer": None}),
        ):
            path = Path(folder) / f"{name}.{suffix}"
            figure.savefig(path, dpi=200, metadata=metadata)
            paths.append(path)
    _fewer_colours(paths[0])
    return paths


def _fewer_colours(path: Path) -> None:
    """Keep a picture's 256 main colours: a third of the bytes, and no difference to the eye."""
    from PIL import Image  # matplotlib brings it along

    with Image.open(path) as picture:
        palette = picture.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE)
        palette.save(path, dpi=picture.info["dpi"])
