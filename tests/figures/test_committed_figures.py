"""Figures of committed results, drawn again from their values: readable in print."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from figures.in_print import check_print
from matplotlib.figure import Figure

from headcount.figures.style import COLUMN, NARROW, PAGE
from headcount.report import read_result
from headcount.report.across import across
from headcount.studies import study_kind
from headcount.studies.again import make_again
from headcount.studies.verify import estimates_of

RESULTS = Path(__file__).parents[2] / "docs" / "results"
QWEN = "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M"
FOLDERS = [
    *("masked-heads/smollm2-135m-q4", "heads-kept/smollm2-135m-q4", f"heads-kept/{QWEN}"),
    *("head-roles/smollm2-135m-q4", "token-insertion/three-models"),
    *(f"{study}/smollm2-135m-q4-quick" for study in ("transfer", "needle", "contrast")),
    "silent-heads/smollm2-135m-q4-quick",
]

pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="only a clone has the results")


@cache
def drawn(folder: str) -> tuple[dict[str, Figure], dict[str, str]]:
    """The figures and captions of a result."""
    result = read_result(RESULTS / folder)
    values, found = estimates_of(result, RESULTS / folder)
    draw: Any = study_kind(result.study).draw
    made: tuple[dict[str, Figure], dict[str, str]]
    made = draw(values, result.run["facts"], found, result.run["model"])
    return made


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_figure_can_be_read_in_the_width_of_a_column(folder: str) -> None:
    figures, _ = drawn(folder)
    for name, figure in figures.items():
        check_print(figure)
        if figure.get_figwidth() > COLUMN:
            check_print(figures[f"{name}{NARROW}"], COLUMN)


@pytest.mark.parametrize("folder", FOLDERS)
def test_captions_say_what_the_weights_are(folder: str) -> None:
    figures, captions = drawn(folder)
    assert {name for name in figures if not name.endswith(NARROW)} == set(captions)
    for caption in captions.values():
        assert "4-bit weights (Q4_" in caption
        assert "dequantised to" in caption
        assert "  " not in caption


@pytest.mark.parametrize("study", ["masked-heads", "heads-kept"])
def test_models_stand_in_order_of_size_under_short_names(study: str) -> None:
    folders = [path.parent for path in (RESULTS / study).glob("*/run.json")]
    figures, caption = across(sorted(folders))
    for name, width in (("figure", PAGE), (f"figure{NARROW}", COLUMN)):
        check_print(figures[name], width)
        (legend,) = figures[name].legends
        names = [text.get_text() for text in legend.get_texts()]
        assert {"SmolLM2-135M (Q4_1)", "Qwen2.5-Coder-1.5B (Q4_K_M)"} < set(names)
    assert caption.index("smollm2") < caption.index("0.5B") < caption.index("1.5B")


def test_a_result_is_made_again_as_it_was(tmp_path: Path) -> None:
    """Points, tables, claims and pictures are those of the folder, and nothing else changes."""
    source, copy = RESULTS / FOLDERS[0], tmp_path / "copy"
    shutil.copytree(source, copy)
    make_again(copy)
    for path in source.rglob("*"):
        if path.is_file() and path.suffix not in (".png", ".svg", ".pdf", ".html"):
            assert (copy / path.relative_to(source)).read_bytes() == path.read_bytes(), path
    assert {path.name for path in copy.glob("*.png")} == {p.name for p in source.glob("*.png")}
    assert (copy / "figure.pdf").exists()
