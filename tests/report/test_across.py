"""One figure about several models, from the folders that their runs left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headcount.cli import main
from headcount.errors import HeadcountError
from headcount.report.across import across
from headcount.system.files import write_csv


def result(folder: Path, model: str, heads: list[int], study: str = "masked-heads") -> Path:
    """A result with TopK and RandomK at no and at two heads masked."""
    rows: list[dict[str, Any]] = [
        {
            "model": model,
            "task": task,
            "series": series,
            "metric": metric,
            "count": count,
            "value": value,
            "low": value - 0.1,
            "high": value + 0.1,
            "n": 9,
            "ranking": ranking,
        }
        for task in ("retrieval", "math")
        for metric in ("exact_match", "similarity")
        for ranking in ("attribution", "patching")
        for series, count, value in (
            *(("top", 0, 0.8), ("top", 2, 0.1), ("random", 0, 0.8), ("random", 2, 0.7)),
            ("matched", 2, 0.6),
        )
    ]
    write_csv(folder / "curves.csv", rows)
    run = {
        "study": study,
        "versions": {},
        "model": {model: {"heads": heads}},
        "facts": {"functions": {"retrieval": "Retrieval", "math": "Math Calculation"}},
    }
    (folder / "run.json").write_text(json.dumps(run))
    return folder


def test_curves_are_drawn_against_the_share_of_each_models_heads(tmp_path: Path) -> None:
    folders = [result(tmp_path / "a", "small", [10, 10]), result(tmp_path / "b", "big", [20] * 4)]
    figures, caption = across(folders)
    assert list(figures) == ["figure"]  # two panels are as wide as a column
    figure = figures["figure"]
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == ["Retrieval", "Math Calculation"]
    handles, labels = panels[0].get_legend_handles_labels()
    assert labels == ["small", "big"]
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["small", "big", "dashed: random heads"]
    lines = {(line.get_color(), line.get_linestyle()): line for line in panels[0].lines}
    for handle, share in zip(handles, (10.0, 2.5), strict=True):
        assert handle.get_xdata() == pytest.approx([share], rel=0.05)  # models stand apart
        assert handle.get_ydata() == pytest.approx([0.1])
        assert lines[handle.get_color(), "--"].get_ydata() == pytest.approx([0.7])
    ticks = [label.get_text() for label in panels[0].get_xticklabels()]
    assert ticks[0] == "0"  # the whole models stand apart, behind a break of the log axis
    aside = panels[0].get_xticks()[0]
    whole = [line for line in panels[0].lines if line.get_marker() == "s"]
    assert [line.get_ydata()[0] for line in whole] == [0.8, 0.8]
    assert all(line.get_xdata()[0] == pytest.approx(aside, rel=0.1) for line in whole)
    assert caption.index("small, 20 heads") < caption.index("big, 80 heads")
    kept = [result(tmp_path / name, name, [10], study="heads-kept") for name in ("one", "two")]
    linear, log = across(kept)[0]["figure-column"].axes[:2]
    line = linear.get_legend_handles_labels()[0][0]
    assert line.get_xydata().tolist() == [[0.0, 0.8], [20.0, 0.1]]
    assert log.get_xscale() == "log"
    assert all(1 in [line.get_ydata()[0] for line in axes.lines] for axes in (linear, log))


def test_models_stand_in_order_of_size_and_wide_bands_do_not_squash_the_others(
    tmp_path: Path,
) -> None:
    folders = [result(tmp_path / name, name, [10], study="heads-kept") for name in ("z", "a")]
    for folder, size in zip(folders, (5, 9), strict=True):
        path = folder / "run.json"
        run = json.loads(path.read_text())
        run["model"][folder.name] |= {"parameters": size, "stored": "Q4_1", "dtype": "bfloat16"}
        path.write_text(json.dumps(run))
    table = (folders[0] / "curves.csv").read_text().replace("0.2,9", "40,9")
    (folders[0] / "curves.csv").write_text(table)
    figures, caption = across(reversed_order := [folders[1], folders[0]])
    assert reversed_order[0].name == "a"
    (legend,) = figures["figure"].legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[:2] == ["z (Q4_1)", "a (Q4_1)"]
    assert "z, 10 heads, 4-bit weights (Q4_1), dequantised to bfloat16" in caption
    axes = figures["figure"].axes[0]
    assert axes.get_ylim()[1] < 3
    assert any(line.get_marker() == "^" for line in axes.lines)  # where the band leaves the frame


def test_what_cannot_be_compared_is_refused_in_a_sentence(tmp_path: Path) -> None:
    one = result(tmp_path / "a", "small", [10])
    with pytest.raises(HeadcountError, match="one model in these folders"):
        across([one])
    with pytest.raises(HeadcountError, match="small is in two of these folders"):
        across([one, result(tmp_path / "b", "small", [10])])
    with pytest.raises(HeadcountError, match="results of masked-heads and heads-kept"):
        across([one, result(tmp_path / "c", "big", [10], study="heads-kept")])
    with pytest.raises(HeadcountError, match=r"token-insertion.*known: masked-heads, curve"):
        across([result(tmp_path / "d", "big", [10], study="token-insertion")])
    with pytest.raises(HeadcountError, match="or the model no heads"):
        across([one, result(tmp_path / "e", "none", [])])


def test_the_command_writes_the_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(tmp_path / "all" / "a", "small", [10])
    result(tmp_path / "all" / "b", "big", [40])
    out = tmp_path / "out"
    assert main(["across", str(tmp_path / "all"), "--out", str(out)]) == 0
    names = {f"figure.{suffix}" for suffix in ("pdf", "png", "svg")}
    assert {path.name for path in out.iterdir()} == names  # few panels: no wider than a column
    assert "say nothing about differences between models" in capsys.readouterr().out
