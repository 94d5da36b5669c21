"""The README does what it says: its code runs as it stands, and its numbers are committed ones."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from real import bundled

import headcount
from headcount.rankings import RANKINGS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")

measured = pytest.mark.skipif(not RESULTS.is_dir(), reason="only a clone has the results")


@pytest.mark.real
def test_the_code_runs_as_it_stands_and_ends_in_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headcount, "load_model", bundled)
    monkeypatch.setenv("HEADCOUNT_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.splitlines()) <= 10
    exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def interval(row: dict[str, str], digits: int, *, sign: str = "", flip: bool = False) -> str:
    """A value and its interval as the README writes them: 0.38 [0.25, 0.50]."""
    value, low, high = (float(row[name]) for name in ("value", "low", "high"))
    if flip:  # a loss instead of a difference
        value, low, high = -value, -high, -low
    value, low, high = (f"{number + 0:{sign}.{digits}f}" for number in (value, low, high))
    return f"{value} [{low}, {high}]".replace("-", "−")


def row_of(path: str, **wanted: str) -> dict[str, str]:
    """The one row of a committed table with these entries."""
    with (ROOT / "docs" / path).open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if wanted.items() <= row.items()]
    assert len(rows) == 1, f"{len(rows)} rows of {path} have {wanted}"
    return rows[0]


SMALL, LARGE = "smollm2-135m-q4", "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M"


@measured
@pytest.mark.parametrize(
    ("model", "least", "most"),
    [
        (SMALL, "Math Calculation", "Syntactic Understanding"),
        (LARGE, "Math Calculation", "Decision-making"),
    ],
)
def test_the_numbers_of_masked_heads_are_the_smallest_and_the_largest_committed_ones(
    model: str, least: str, most: str
) -> None:
    path = RESULTS / "masked-heads" / model / "differences.csv"
    wanted = {"ranking": "attribution", "metric": "exact_match", "count": "16"}
    wanted["difference"] = "top minus random"
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if wanted.items() <= row.items()]
    assert len(rows) == 8
    rows.sort(key=lambda row: -float(row["value"]))
    keys = {"Math Calculation": "math", "Syntactic Understanding": "syntactic"}
    keys["Decision-making"] = "decision"
    assert [rows[0]["task"], rows[-1]["task"]] == [keys[least], keys[most]]
    assert f"{interval(rows[0], 2, flip=True)} ({least})" in README
    assert f"{interval(rows[-1], 2, flip=True)} ({most})" in README
    zero = [row["task"] for row in rows if float(row["high"]) >= 0]
    assert zero == ([] if model == SMALL else [row["task"] for row in rows[:-1]])


@measured
def test_the_numbers_of_heads_kept_are_committed() -> None:
    for model, task, counts in ((SMALL, "ioi", ("8", "135")), (LARGE, "docstring", ("101",))):
        path = f"results/heads-kept/{model}/curves.csv"
        wanted = {"model": model, "task": task, "series": "top"}
        wanted |= {"ranking": "patching", "ablation": "mean", "metric": "explained_effect"}
        for count in counts:
            assert interval(row_of(path, count=count, **wanted), 2) in README


@measured
def test_the_numbers_of_head_roles_are_committed() -> None:
    path = "results/head-roles/smollm2-135m-q4/curves.csv"
    wanted = {"metric": "logprob change, plain model", "count": "20", "task": "Syntax"}
    looks = {"facilitation": (1, ""), "random order": (1, ""), "irrelevance": (2, "")}
    for series, (digits, sign) in {**looks, "interference": (2, "+")}.items():
        assert interval(row_of(path, series=series, **wanted), digits, sign=sign) in README


@measured
def test_the_numbers_of_token_insertion_are_committed() -> None:
    folders = {SMALL: "three-models", LARGE: f"{LARGE}-math-500"}
    for model, folder in folders.items():
        for insert in ("Mless", "Mful"):
            series = f"w/ {insert} minus w/o"
            path = f"results/token-insertion/{folder}/curves.csv"
            assert interval(row_of(path, model=model, series=series), 3, sign="+") in README


def test_the_numbers_of_the_picture_are_committed() -> None:
    whole = row_of("images/demo.csv", series="top", count="0")
    top = row_of("images/demo.csv", series="top", count="8")
    random = row_of("images/demo.csv", series="random", count="8")
    words = " ".join(README.split())
    assert f"accuracy from {float(whole['value']):.2f} to {float(top['value']):.0f} " in words
    assert f"interval 0 to {float(top['high']):.2f}, {top['n']} test prompts" in words
    low, high = float(random["low"]), float(random["high"])
    assert f"leave {float(random['value']):.2f} ({low:.2f} to {high:.2f})" in words


def test_the_counts_of_rankings_and_architectures_are_right() -> None:
    proven = (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")
    (count,) = re.findall(r"^\*\*(\d+) of 174 architectures", proven, re.MULTILINE)
    assert f"[{count} of 174 architectures" in README
    start = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
    assert f"[{count} are proven so far]" in start
    assert f"{len(list(RANKINGS)) - 1} [rankings]" in README  # all but the random one


raced = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="only a clone has these")


@raced
@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "docs/many-machines.md"])
def test_the_errors_in_half_precision_are_the_measured_ones(page: str) -> None:
    results = ROOT / "benchmarks" / "results" / "precision.json"
    rows = json.loads(results.read_text("utf-8"))["rows"]
    text = (ROOT / page).read_text(encoding="utf-8")
    _, bfloat16, float16 = rows
    for row, digits in ((bfloat16, 3), (float16, 4)):
        assert f"{row['headcount mean']:.{digits}f}" == f"{row['plain mean']:.{digits}f}"
        assert f"{row['headcount mean']:.{digits}f}" in text
        assert row["apart"] < 8e-5
    assert "at most 8·10⁻⁵ apart" in " ".join(text.split())


@raced
def test_the_speeds_are_those_of_the_benchmarks() -> None:
    races = json.loads((ROOT / "benchmarks" / "results" / "cpu.json").read_text("utf-8"))["races"]
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| [^|]+ \| ([\d.]+) × \| ([\d.]+) to ([\d.]+) × \| ([\d.]+) × \|$", README, re.M
    )
    assert len(rows) == 3
    sections = page.split("## On one NVIDIA")[0].split("\n### ")[1:4]
    for race, section, row in zip(races, sections, rows, strict=False):
        cells = [[cell.strip() for cell in line.split("|")] for line in section.splitlines()]
        times = {line[1]: line[5] for line in cells if len(line) > 6}
        nnsight = sorted(float(time) for name, time in times.items() if name.startswith("nnsight"))
        assert row == (
            times["TransformerLens"],
            f"{nnsight[0]:.2f}",
            f"{nnsight[-1]:.2f}",
            times["pyvene"],
        )
        assert max(contestant["difference"] for contestant in race["rows"]) < 6e-5
