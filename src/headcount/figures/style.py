"""The shared style of figures: colours, lines with bands, small print, and files.

Matplotlib reads text between two dollar signs as TeX, and fails if it is not TeX. Names of models,
tasks and rankings are plain text, so `figure_of_texts` switches this off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Points = Sequence[tuple[float, float, float, float]]  # count, value, low, high
Arguments = ParamSpec("Arguments")
Drawn = TypeVar("Drawn", "Figure", "Axes")

# The colour-blind-safe colours of Okabe and Ito, and one more.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
PALETTE = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255")
GREY = "#555555"
# The colours of the published figures that the studies follow.
METRICS = ("#1f5fbf", "#c8281e")
ROLES = {"facilitation": "#2a9d4a", "irrelevance": "#3067c4", "interference": "#d0342c"}
UNDECIDED = "#dddddd"
INSERTS = {"w/o": "#8064a2", "w/ Mless": "#2a9d8f", "w/ Mful": "#9ecae1", "ARM": "#e0a03c"}
# Widths in print, in inches, and text that is readable there: nothing is smaller than 6 points.
PAGE, COLUMN = 7.0, 3.4
NARROW = "-column"  # the end of a figure's name where it is drawn for a column
SPACING = 1.2  # between the columns of a legend, in sizes of its letters
PRINT: dict[Any, Any] = {
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "legend.fontsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.5,
    "grid.alpha": 0.3,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.handlelength": 1.8,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.titlepad": 4,
}
# The words of the small print.
AT_CHANCE = "at chance: the whole model does not clearly beat guessing or the commonest answer"
# The names of the series of a curve in legends.
SERIES = {
    "top": "TopK",
    "bottom": "BottomK",
    "random": "RandomK",
    "matched": "RandomK, layer-matched",
    "reranked": "TopK of resampled rankings",
    "anywhere": "K random heads of all",
}


def figure_of_texts(plot: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
    """Decorate `plot` so that the figure prints every text as it is, including dollar signs."""

    @wraps(plot)
    def plain(*arguments: Arguments.args, **options: Arguments.kwargs) -> Drawn:
        import matplotlib

        with matplotlib.rc_context({"text.parse_math": False}):
            return plot(*arguments, **options)

    return plain


def for_print(plot: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
    """Decorate `plot` so that its figure is readable in print, and shows texts as they are."""

    @wraps(plot)
    def printed(*arguments: Arguments.args, **options: Arguments.kwargs) -> Drawn:
        import matplotlib

        with matplotlib.rc_context({**PRINT, "text.parse_math": False}):
            return plot(*arguments, **options)

    return printed


def new_figure(wide: float, high: float) -> Figure:
    """An empty figure, sized in inches; matplotlib is imported here because it loads slowly."""
    from matplotlib.figure import Figure

    return Figure(figsize=(wide, high), layout="constrained")


def figure_of(axes: Axes) -> Figure:
    """The figure to which the axes belong."""
    return cast("Figure", axes.figure)


def shown(figure: Figure) -> Figure:
    """Hand a finished figure to pyplot, so that notebooks and `plt.show()` show the figure."""
    from matplotlib import pyplot

    pyplot.close(figure)  # a figure that is shown already would be shown twice
    return pyplot.figure(FigureClass=lambda **_: figure)  # type: ignore[arg-type]


def points_of(rows: Sequence[Row], series: str, x: str = "count") -> Points:
    """The points of one series in a tidy table, along one of its columns."""
    wanted = [row for row in rows if row["series"] == series]
    return [(row[x], row["value"], row["low"], row["high"]) for row in wanted]


def draw_line(
    axes: Axes, points: Points, colour: str, *, band: float = 0.0, hatch: str = "", **style: Any
) -> None:
    """Draw a line and, unless `band` is 0, the intervals around it as a band of that opacity.

    With a `hatch` the band has strokes instead of a tint, so that it is told from one below it.
    """
    x, value, low, high = zip(*points, strict=True)
    axes.plot(x, value, color=colour, **style)
    if band and len(points) == 1:  # a band would have no width
        axes.vlines(x, low, high, color=colour)
    elif band:
        how: dict[str, Any] = {"color": colour, "linewidth": 0}
        if hatch:
            how = {"facecolor": "none", "edgecolor": colour, "hatch": hatch, "linewidth": 0}
        axes.fill_between(x, low, high, alpha=band, **how)


def count_axis(axes: Axes, counts: Sequence[int], scale: str, **options: Any) -> None:
    """Put a tick at every count that has room; with many counts, use a log-2 scale."""
    if len(counts) > 2 and counts[-1] > 8:
        axes.set_xscale(scale, base=2, **options)
    axes.get_xlim()  # updates the transform that is used below
    ticks: dict[int, float] = {}
    for count in counts:
        place = axes.transData.transform((count, 1))[0] / axes.figure.dpi  # in inches
        if not ticks or place - max(ticks.values()) >= 0.09 * (len(str(count)) + 1):
            ticks[count] = place
    axes.set_xticks(list(ticks), [str(count) for count in ticks])
    axes.minorticks_off()


def share_axis(axes: Axes) -> None:
    """Let the horizontal axis go from 0 to 100 %."""
    from matplotlib.ticker import PercentFormatter

    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def mark_chance(axes: Axes, words: str = "at chance") -> None:
    """Mark a panel whose whole model is at chance: in its title, where no curve is, and in grey."""
    title = axes.get_title()
    axes.set_title(f"{title}\n{words}".strip(), fontsize=axes.title.get_fontsize() if title else 10)
    axes.set_facecolor("#f2f2f2")


def legend_above(
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], ncols: int, **how: Any
) -> None:
    """Put a legend above all panels, where it covers no curve, with as many columns as fit.

    It reads from left to right, row by row.
    """
    inches = figure.bbox.width / figure.dpi  # of this figure, or of this part of one
    while ncols > 1 and _legend_width(_by_column(labels, ncols), ncols) > inches:
        ncols -= 1
    how = {"columnspacing": SPACING, **how, "frameon": False, "ncols": ncols}
    handles, labels = _by_column(handles, ncols), _by_column(labels, ncols)
    figure.legend(handles, labels, loc="outside upper center", **how)


def _by_column(entries: Sequence[Any], ncols: int) -> list[Any]:
    """Entries that stand in rows, in the order of columns, in which matplotlib fills a legend."""
    return [entry for column in range(ncols) for entry in entries[column::ncols]]


def _legend_width(labels: Sequence[str], ncols: int) -> float:
    """How many inches a legend takes: its columns are filled one after the other."""
    import matplotlib
    from matplotlib.textpath import TextPath

    size = matplotlib.rcParams["legend.fontsize"]
    size = size if isinstance(size, int | float) else 10.0
    line = matplotlib.rcParams["legend.handlelength"] + SPACING + 1.2  # and what is around it
    texts = [TextPath((0, 0), label or " ", size=size).get_extents().width for label in labels]
    rows, longer = divmod(len(labels), ncols)
    width = 0.0
    for column in range(ncols):
        own, texts = texts[: rows + (column < longer)], texts[rows + (column < longer) :]
        width += (max(own, default=0.0) + line * size) / 72
    return width


def legend_and_note(axes: Axes, note: str, *, alone: bool) -> None:
    """Put the legend above the axes and the note below where the axes are `alone` in their figure.

    In a caller's figure nothing outside the axes is touched: the legend stands within the axes, and
    the note is the legend's title.
    """
    if alone:
        figure_of(axes).legend(loc="outside upper center", ncols=2, frameon=False)
        small_print(figure_of(axes), note, width=12 * characters_across(axes) // 7)
    else:
        title = fill(
            note.replace("n = ", "n\u00a0=\u00a0"), max(24, 4 * characters_across(axes) // 3)
        )
        small: dict[str, Any] = {"title_fontsize": 7, "fontsize": 7, "alignment": "left"}
        axes.legend(title=title, framealpha=0.7, **small)


def characters_across(axes: Axes) -> int:
    """How many characters of a title fit into the width of the axes."""
    return max(12, int(11.3 * axes.get_window_extent().width / axes.figure.dpi))


def small_print(figure: Figure, text: str, *, width: int | None = None, size: float = 7) -> None:
    """Print a note below the panels, in lines of `width` characters (default: the figure's)."""
    if text:
        width = int(17 * figure.get_figwidth()) if width is None else width
        figure.supxlabel(fill(text, width), fontsize=size, color="#666666")


def save_figure(figure: Figure, folder: str | Path, name: str = "figure") -> list[Path]:
    """Write PNG, SVG and PDF; the same figure always gives the same bytes."""
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
    """Reduce a PNG to 256 colours: a third of the bytes, without a visible difference."""
    from PIL import Image  # a dependency of matplotlib

    with Image.open(path) as picture:
        how: Any = {"method": Image.Quantize.MAXCOVERAGE, "kmeans": 3}  # without it, tints change
        palette = picture.convert("RGB").quantize(256, **how)
        palette.save(path, dpi=picture.info["dpi"])
