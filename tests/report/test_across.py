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
    figure, caption = across(folders)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == ["Retrieval", "Math Calculation"]
    handles, labels = panels[0].get_legend_handles_labels()
    found = {
        label: handle.get_xydata().tolist() for handle, label in zip(handles, labels, strict=True)
    }
    assert found == {
        "small": [[10.0, 0.1]],
        "small, random heads": [[10.0, 0.7]],
        "big": [[2.5, 0.1]],
        "big, random heads": [[2.5, 0.7]],
    }
    assert "small, 20 heads; big, 80 heads" in caption
    kept = [result(tmp_path / name, name, [10], study="heads-kept") for name in ("one", "two")]
    line = across(kept)[0].axes[0].get_legend_handles_labels()[0][0]
    assert line.get_xydata().tolist() == [[0.0, 0.8], [20.0, 0.1]]  # no log axis


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
    assert sorted(path.name for path in out.iterdir()) == ["figure.pdf", "figure.png", "figure.svg"]
    assert "say nothing about differences between models" in capsys.readouterr().out
