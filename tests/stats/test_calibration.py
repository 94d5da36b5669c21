"""A small version of scripts/calibrate.py: what its table promises, within what chance allows."""

from __future__ import annotations

import csv
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from headcount.stats import Interval, Resampling, bootstrap

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "calibrate.py"
COVERAGE, WRONG = 0.93, 0.05  # at least, and at most
RARE = 1e-3  # how often chance alone may fail a cell

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="only a clone has the script")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calibrate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["calibrate"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def calibrate() -> ModuleType:
    return load()


def at_most(times: int, p: float) -> int:
    """The number of successes that a binomial distribution exceeds hardly ever."""
    below = 0.0
    for k in range(times + 1):
        below += math.comb(times, k) * p**k * (1 - p) ** (times - k)
        if below >= 1 - RARE:
            return k
    return times


def test_the_bound_is_binomial() -> None:
    drawn = np.random.default_rng(0).binomial(200, 0.07, size=20_000)
    assert np.mean(drawn > at_most(200, 0.07)) <= 2 * RARE
    assert np.mean(drawn >= at_most(200, 0.07)) > RARE


CELLS = [
    ("mean of numbers", 6, 0.5),
    ("mean of numbers", 20, 0.25),
    ("mean, contents crossed with templates", 20, 0.5),
    ("mean of 5 random draws", 6, 0.25),
    ("mean under one ranking, 10 re-rankings", 60, 0.25),
    ("CPR of a curve", 20, 0.5),
    ("heads needed for 0.7", 20, 0.5),
    ("ratio of heads needed for 0.7", 6, 0.5),
    ("two-sided heads needed", 20, 0.25),
    ("accuracy 0.7", 60, 0.5),
    ("accuracy 0.95", 20, 0.5),
    ("paired difference of answers", 6, 0.5),
    ("paired difference of answers", 60, 0.0),
]


@pytest.mark.parametrize(("kind", "templates", "correlation"), CELLS)
def test_intervals_hold_the_truth(
    calibrate: ModuleType, kind: str, templates: int, correlation: float
) -> None:
    times = 200
    row = calibrate.cell(kind, templates, correlation, times)
    missed = round((1 - row["share"]) * times)
    assert missed <= at_most(times, 1 - COVERAGE)
    assert 0 < row["median width"] < (200 if "heads needed" in kind else 10)


@pytest.mark.parametrize("naive", ["no templates", "a normal quantile"])
def test_the_bound_tells_bad_intervals_from_good_ones(calibrate: ModuleType, naive: str) -> None:
    """Intervals as of independent prompts, or without the price of few templates, fail it."""

    def sample(rng: np.random.Generator) -> Interval:
        world = calibrate.World(6, 0.5)
        labels = world.labels(rng)
        values = world.noise(rng, labels)[0]
        if naive == "no templates":
            return bootstrap(values)
        means = np.array([values[labels == one].mean() for one in range(6)])
        half = 1.96 * means.std() / math.sqrt(6)
        return Interval(means.mean(), means.mean() - half, means.mean() + half, 6)

    rng, times = np.random.default_rng(0), 200
    found = [sample(rng) for _ in range(times)]
    missed = sum(not one.low <= 0 <= one.high for one in found)
    assert missed > at_most(times, 1 - COVERAGE)


FAMILIES = [("16 panels", 20, 0.5), ("16 counts of one panel", 6, 0.5)]


@pytest.mark.parametrize(("kind", "templates", "correlation"), FAMILIES)
def test_a_family_with_the_truth_at_the_margin_is_seldom_wrong(
    calibrate: ModuleType, kind: str, templates: int, correlation: float
) -> None:
    times = 60
    row = calibrate.cell(kind, templates, correlation, times)
    assert row["measure"] == "any wrong verdict"
    assert round(row["share"] * times) <= at_most(times, WRONG)


def test_intervals_that_stand_for_themselves_are_wrong_often_in_a_family(
    calibrate: ModuleType,
) -> None:
    """So the bound on families has something to tell apart."""

    def any_wrong(rng: np.random.Generator) -> bool:
        world = calibrate.World(20, 0.5)
        for panel in range(calibrate.FAMILY):
            labels = world.labels(rng)
            items = Resampling(calibrate.own_contents(labels), seed=panel)
            one = items.estimate(world.noise(rng, labels)[0]).interval
            if not one.low <= 0 <= one.high:
                return True
        return False

    rng, times = np.random.default_rng(0), 60
    assert sum(any_wrong(rng) for _ in range(times)) > at_most(times, WRONG)


# The simulator itself, and the table that it left


def test_simulated_items_are_as_alike_as_they_should_be(calibrate: ModuleType) -> None:
    rng = np.random.default_rng(0)
    world = calibrate.World(20, 0.25)
    labels = np.repeat(np.arange(20), 6)
    noise = world.noise(rng, labels, rows=4000)
    assert noise.var() == pytest.approx(1, abs=0.02)
    assert np.mean(noise[:, 0] * noise[:, 1]) == pytest.approx(0.25, abs=0.05)  # of one template
    assert np.mean(noise[:, 0] * noise[:, 6]) == pytest.approx(0, abs=0.05)
    answers = np.stack([world.answers(rng, labels, 0.7) for _ in range(4000)]) - 0.7
    assert answers.mean() == pytest.approx(0, abs=0.01)
    assert np.mean(answers[:, 0] * answers[:, 1]) / 0.21 == pytest.approx(0.25, abs=0.06)


def test_the_committed_table_is_whole_and_within_its_bounds(calibrate: ModuleType) -> None:
    with open(calibrate.OUT, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    asked = list(calibrate.cells([*calibrate.SINGLE, *calibrate.FAMILIES]))
    there = [(r["statistic"], int(r["templates"]), float(r["correlation"])) for r in rows]
    assert there == asked
    assert {row["simulations"] for row in rows} == {"2000"}
    out = [row for row in rows if calibrate.out_of_bounds(row)]
    # One cell of areas, and all of a bound, hold the truth too often, and the page says so.
    areas, *bounds = [(row["statistic"], row["templates"], row["share"]) for row in out]
    assert areas == ("CMD of a curve near 1", "20", "0.9905")
    wide = [(row["statistic"], row["templates"]) for row in rows if "two-sided" in row["statistic"]]
    assert [place for *place, _ in bounds] == [[*cell] for cell in wide if cell[1] != "6"]
    assert min(float(share) for *_, share in bounds) >= 0.998
    text = calibrate.PAGE.read_text(encoding="utf-8")
    assert calibrate.page(rows) in text  # run scripts/calibrate.py --page
    assert f"{len(rows) - len(out)} of {len(rows)} cells" in text
    above = text[: text.index(calibrate.MARKS[0])]
    assert "0.9905" in above
    assert "0.998" in above


@pytest.mark.parametrize(
    ("measure", "templates", "share", "bad"),
    [
        ("coverage", 6, 0.929, True),
        ("coverage", 6, 0.999, False),  # the price of six templates
        ("coverage", 20, 0.991, True),
        ("coverage", 20, 0.95, False),
        ("any wrong verdict", 6, 0.051, True),
        ("any wrong verdict", 60, 0.05, False),
    ],
)
def test_bounds(
    calibrate: ModuleType, measure: str, templates: int, share: float, bad: bool
) -> None:
    check: Callable[[dict[str, object]], bool] = calibrate.out_of_bounds
    assert check({"measure": measure, "templates": templates, "share": share}) is bad
