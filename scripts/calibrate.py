"""How often do intervals hold the truth? Simulated data with known effects, level by level.

    python scripts/calibrate.py                      # 2,000 simulations a cell: forty minutes
    python scripts/calibrate.py --times 200 --out FILE   # a quick look
    python scripts/calibrate.py --only "accuracy 0.7"    # one statistic; the others keep their rows
    python scripts/calibrate.py --page               # writes the table of docs/statistics.md

Simulated are items in templates that differ (the correlation of two items of one template goes from
0 to 0.5), with 6, 20 and 60 templates, of numbers (normal) and of right and wrong answers. Printed,
and written to docs/results/calibration.csv, is how often a 95 % interval holds the truth, and for
families of 16 comparisons with the truth at the margin, how often any of them is decided: each such
verdict is wrong.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from headcount.curves.explained import (
    Explained,
    crossings,
    explained_effect,
    ratio_of_needed,
)
from headcount.stats import (
    Interval,
    Resampling,
    accuracy_interval,
    bootstrap,
    paired_difference,
    simultaneous,
)

ITEMS, FAMILY = 120, 16
TEMPLATES, CORRELATIONS = (6, 20, 60), (0.0, 0.25, 0.5)
DOCS = Path(__file__).parents[1] / "docs"
OUT, PAGE = DOCS / "results" / "calibration.csv", DOCS / "statistics.md"
MARKS = "<!-- calibration: written by scripts/calibrate.py -->", "<!-- end of calibration -->"


@dataclass(frozen=True)
class World:
    """Templates of unequal sizes, and how alike two items of one template are."""

    templates: int
    correlation: float

    def labels(self, rng: np.random.Generator) -> np.ndarray:
        """The template of each item; sizes differ by a factor of up to three."""
        share = rng.uniform(1, 3, self.templates)
        labels = rng.choice(self.templates, ITEMS, p=share / share.sum())
        labels[: self.templates] = np.arange(self.templates)
        return labels

    def noise(self, rng: np.random.Generator, labels: np.ndarray, rows: int = 1) -> np.ndarray:
        """Normal numbers of variance 1, (rows, items)."""
        shared = rng.normal(size=(rows, self.templates))[:, labels] * self.correlation**0.5
        return shared + rng.normal(size=(rows, len(labels))) * (1 - self.correlation) ** 0.5

    def answers(self, rng: np.random.Generator, labels: np.ndarray, p: float) -> np.ndarray:
        """Right and wrong answers, of which a share p is right: (items,)."""
        shares = np.full(self.templates, p)
        if self.correlation:
            both = 1 / self.correlation - 1  # of a beta distribution
            shares = rng.beta(p * both, (1 - p) * both, self.templates)
        return (rng.random(len(labels)) < shares[labels]).astype(float)


def own_contents(labels: np.ndarray) -> np.ndarray:
    """The template of each item, and a content that no other item has."""
    return np.stack([labels, np.arange(len(labels))], 1)


def mean(world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    labels = world.labels(rng)
    return bootstrap(world.noise(rng, labels)[0], clusters=own_contents(labels)), 0.0


def crossed(world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    """The same contents stand in several templates, and contents differ as templates do."""
    labels, contents = world.labels(rng), rng.integers(40, size=ITEMS)
    alike = rng.normal(size=40)[contents] * world.correlation**0.5
    values = world.noise(rng, labels)[0] + alike
    return bootstrap(values, clusters=np.stack([labels, contents], 1)), 0.0


def draws(number: int, world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    """Random draws that differ, on the same items."""
    labels = world.labels(rng)
    each = rng.normal(size=(number, 1)) * 0.3 + world.noise(rng, labels, number) * 0.5
    return bootstrap(each + world.noise(rng, labels), clusters=own_contents(labels)), 0.0


def distance(world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    """CMD of a curve of explained effects that rises to 1 at a twentieth of the heads."""
    labels = world.labels(rng)
    counts = (0, 2, 5, 10, 20, 50, 100, 150, 200)
    truth = np.minimum(np.array(counts) / 10, 1)
    values = {
        count: 3 * share + world.noise(rng, labels) * (0 < count < 200)
        for count, share in zip(counts, truth, strict=True)
    }
    found = explained_effect(values, Resampling(own_contents(labels))).cmd().interval
    return found, float(np.trapezoid(np.abs(1 - truth), np.array(counts) / 200))


CURVE = np.array((0, 1, 2, 5, 10, 20, 35, 50, 75, 100, 150, 200))


def rise(heads: float) -> np.ndarray:
    """An explained effect that rises ever more slowly, and is 1 with all heads."""
    return (1 - np.exp(-CURVE / heads)) / (1 - np.exp(-CURVE[-1] / heads))


def simulated(
    world: World, rng: np.random.Generator, labels: np.ndarray, *curves: np.ndarray
) -> list[Explained]:
    """Curves of these explained effects on the same prompts, half of whose noise counts share."""
    items, found = Resampling(own_contents(labels)), []
    for truth in curves:
        common = world.noise(rng, labels)
        values = {
            int(count): 3 * share + (common + world.noise(rng, labels)) * 0.5**0.5 * (0 < share < 1)
            for count, share in zip(CURVE, truth, strict=True)
        }
        found.append(explained_effect(values, items))
    return found


def help_of_heads(world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    """CPR."""
    truth = rise(15)
    (curve,) = simulated(world, rng, world.labels(rng), truth)
    return curve.cpr().interval, float(np.trapezoid(truth, CURVE / CURVE[-1]))


def heads_needed(
    threshold: float, world: World, rng: np.random.Generator
) -> tuple[Interval, float]:
    truth = rise(15)
    (curve,) = simulated(world, rng, world.labels(rng), truth)
    return curve.needed(threshold), float(crossings(CURVE, truth[None], threshold)[0])


def ratio(threshold: float, world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    """Heads needed by one model over heads needed by another, on the same prompts."""
    truths = rise(30), rise(15)
    one, other = simulated(world, rng, world.labels(rng), *truths)
    needed = [float(crossings(CURVE, truth[None], threshold)[0]) for truth in truths]
    ((_, found, _),) = ratio_of_needed(one, other, [threshold])
    return found, needed[0] / needed[1]


def two_sided(world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    """The count from which on the explained effect stays within 1 ± 0.1."""
    truth = rise(15)
    (curve,) = simulated(world, rng, world.labels(rng), truth)
    return curve.two_sided(), float(CURVE[np.flatnonzero(np.abs(1 - truth) > 0.1)[-1] + 1])


def reranked(number: int, world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    """The mean under one ranking, whose own chance is read off rankings of resampled prompts.

    These scatter around the ranking that was used as it does around what it estimates.
    """
    labels = world.labels(rng)
    chosen = rng.normal() * 0.3
    items = world.noise(rng, labels)
    again = rng.normal(size=(number, 1)) * 0.3 + 0.3 * world.noise(rng, labels, number)
    estimate = Resampling(own_contents(labels)).estimate(
        chosen + items, reranked=chosen + again + items
    )
    return estimate.interval, 0.0


def accuracy(p: float, world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    labels = world.labels(rng)
    return accuracy_interval(world.answers(rng, labels, p), clusters=own_contents(labels)), p


def difference(world: World, rng: np.random.Generator) -> tuple[Interval, float]:
    """Right before and wrong after: two answers of the same items, 0.8 and 0.6 of them right."""
    labels = world.labels(rng)
    sides = [world.answers(rng, labels, p) for p in (0.8, 0.6)]
    return paired_difference(*sides, clusters=own_contents(labels)), 0.2


def family_of_panels(world: World, rng: np.random.Generator) -> bool:
    """Whether any of 16 panels with items of their own is decided, with the truth at the margin."""
    estimates = []
    for panel in range(FAMILY):
        labels = world.labels(rng)
        items = Resampling(own_contents(labels), seed=panel)
        estimates.append(items.estimate(world.noise(rng, labels)[0]))
    return any(not one.low <= 0 <= one.high for one in simultaneous(estimates))


def family_of_counts(world: World, rng: np.random.Generator) -> bool:
    """The same for 16 comparisons on the same items, half of whose noise they share."""
    labels = world.labels(rng)
    items = Resampling(own_contents(labels))
    common = world.noise(rng, labels)[0]
    estimates = [
        items.estimate((common + world.noise(rng, labels)[0]) / 2**0.5) for _ in range(FAMILY)
    ]
    return any(not one.low <= 0 <= one.high for one in simultaneous(estimates))


def family_of_answers(world: World, rng: np.random.Generator) -> bool:
    """The same for 16 panels of paired differences of right and wrong answers."""
    estimates = []
    for panel in range(FAMILY):
        labels = world.labels(rng)
        sides = [world.answers(rng, labels, 0.7) for _ in range(2)]
        estimates.append(Resampling(own_contents(labels), seed=panel).difference(*sides))
    return any(not one.low <= 0 <= one.high for one in simultaneous(estimates))


SINGLE: dict[str, Callable[[World, np.random.Generator], tuple[Interval, float]]] = {
    "mean of numbers": mean,
    "mean, contents crossed with templates": crossed,
    "mean of 3 random draws": partial(draws, 3),
    "mean of 5 random draws": partial(draws, 5),
    "mean under one ranking, 10 re-rankings": partial(reranked, 10),
    "CMD of a curve near 1": distance,
    "CPR of a curve": help_of_heads,
    "heads needed for 0.7": partial(heads_needed, 0.7),
    "heads needed for 0.9": partial(heads_needed, 0.9),
    "ratio of heads needed for 0.7": partial(ratio, 0.7),
    "two-sided heads needed": two_sided,
    "accuracy 0.7": partial(accuracy, 0.7),
    "accuracy 0.95": partial(accuracy, 0.95),
    "paired difference of answers": difference,
}
FAMILIES = {
    "16 panels": family_of_panels,
    "16 counts of one panel": family_of_counts,
    "16 panels, paired answers": family_of_answers,
}


def cell(kind: str, templates: int, correlation: float, times: int) -> dict[str, object]:
    """One row of the table."""
    world, rng = World(templates, correlation), np.random.default_rng([templates, times])
    row: dict[str, object] = {
        "statistic": kind,
        "templates": templates,
        "correlation": correlation,
        "simulations": times,
    }
    if kind in FAMILIES:
        wrong = sum(FAMILIES[kind](world, rng) for _ in range(times))
        return {**row, "measure": "any wrong verdict", "share": wrong / times}
    found = [SINGLE[kind](world, rng) for _ in range(times)]
    held = sum(interval.low <= truth <= interval.high for interval, truth in found)
    width = float(np.median([interval.high - interval.low for interval, _ in found]))
    return {**row, "measure": "coverage", "share": held / times, "median width": width}


def cells(kinds: list[str]) -> Iterator[tuple[str, int, float]]:
    for kind in kinds:
        for templates in TEMPLATES:
            for correlation in CORRELATIONS:
                yield kind, templates, correlation


def page(rows: list[dict[str, str]]) -> str:
    """The table of docs/statistics.md: a line for each statistic and number of templates."""
    lines = ["| statistic | templates | " + " | ".join(f"ρ = {c:g}" for c in CORRELATIONS) + " |"]
    lines.append("| --- | ---: |" + " ---: |" * len(CORRELATIONS))
    by_line: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        word = "" if row["measure"] == "coverage" else ": any wrong verdict"
        place = row["statistic"] + word, row["templates"]
        by_line.setdefault(place, []).append(f"{float(row['share']):.3f}")
    lines += [f"| {' | '.join([*place, *cells])} |" for place, cells in by_line.items()]
    return "\n".join(lines)


def write_page() -> None:
    """Write the table into the page, from the file."""
    with open(OUT, newline="", encoding="utf-8") as file:
        table = page(list(csv.DictReader(file)))
    text = PAGE.read_text(encoding="utf-8")
    start, end = (text.index(mark) for mark in MARKS)
    PAGE.write_text(
        text[: start + len(MARKS[0])] + f"\n\n{table}\n\n" + text[end:], encoding="utf-8"
    )


def out_of_bounds(row: dict[str, object]) -> bool:
    """Whether a cell misses what intervals must hold."""
    share = float(str(row["share"]))
    if row["measure"] != "coverage":
        return share > 0.05
    return share < 0.93 or (int(str(row["templates"])) >= 20 and share > 0.99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=2000, help="simulations of each cell")
    parser.add_argument("--only", nargs="*", default=[*SINGLE, *FAMILIES])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--page", action="store_true", help="only write the page, from the file")
    options = parser.parse_args()
    if options.page:
        write_page()
        return
    rows: list[dict[str, object]] = []
    with ProcessPoolExecutor(options.workers) as pool:
        jobs = [pool.submit(cell, *one, options.times) for one in cells(options.only)]
        for job in jobs:
            rows.append(job.result())
            print("  ".join(f"{value}" for value in rows[-1].values()), flush=True)
    if options.out.exists():  # other statistics keep their rows
        with open(options.out, newline="", encoding="utf-8") as file:
            rows += [row for row in csv.DictReader(file) if row["statistic"] not in options.only]
    kinds = [*SINGLE, *FAMILIES]
    rows.sort(key=lambda row: kinds.index(str(row["statistic"])))
    with open(options.out, "w", newline="", encoding="utf-8") as file:
        names = dict.fromkeys(name for row in rows for name in row)
        writer = csv.DictWriter(file, list(names), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    bad = sum(map(out_of_bounds, rows))
    print(f"{len(rows) - bad} of {len(rows)} cells within their bounds")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
