"""Curves against the share of the cache kept, on a model whose heads are known."""

from __future__ import annotations

import csv
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_needle import plant_needle
from tiny import tiny_model
from toy import toy_tokenizer

from headcount import HeadcountError, Lab, make_task, wrap
from headcount.curves import Curve, CurveRequest, CurveSettings
from headcount.curves.cache import LONG, cache_bytes
from headcount.metrics import get_metric
from headcount.models.streaming import Streaming
from headcount.rankings import Ranking
from headcount.report import read_result
from headcount.report.cache_budget import TITLE, in_words
from headcount.report.curve_study import curve_study
from headcount.report.page_texts import next_commands
from headcount.studies.verify import verify

QUIET = Lab(store=None, progress=False)
SETTINGS = CurveSettings(
    counts=[0, 1, 2, 3, 12],
    series=["top", "anywhere"],
    seeds=4,
    mode="keep",
    ablation="streaming:4:32",
)


@cache
def measured() -> tuple[Curve, Any, Any]:
    model = plant_needle().model.by_key_value_heads()
    task = make_task("needle", model, length=96, n=24, depths=(0.1, 0.3, 0.5))
    ranking = Ranking.of(model, task, "attribution", ablation="streaming:4:32")
    request = CurveRequest(model, task, ranking, get_metric("accuracy"), SETTINGS)
    return request.result(QUIET), model, task


def test_the_known_heads_alone_keep_the_score() -> None:
    curve, model, _ = measured()
    points = {(point.series, point.count): point.value for point in curve.points}
    assert points["top", 0] < 0.2
    assert points["top", 1] == points["top", 2] == points["top", 12] == 1  # either is enough
    assert points["anywhere", 1] < 0.5
    assert curve.cache is not None
    size, tokens = model.sites[0].size, curve.cache.tokens  # of one key, and of one value
    assert curve.cache.bytes == 12 * 2 * size * 4 * tokens
    share = (2 * tokens + 10 * 36) / (12 * tokens)
    assert curve.cache.shares["top", 2] == pytest.approx(share)
    assert curve.cache.long["top", 2] == pytest.approx((2 * LONG + 10 * 36) / (12 * LONG))
    assert [row["cache"] for row in curve.rows if row["count"] == 12] == [1, 1]
    assert "cache kept" in str(curve)
    assert curve.plot().get_xlabel() == f"Share of the key/value cache kept, of {tokens} tokens"


def test_a_folder_says_how_much_smaller_the_cache_is_at_equal_score(tmp_path: Path) -> None:
    curve, model, task = measured()
    study = curve_study(curve, model, task, asdict(SETTINGS))
    row, *others = study.tables[TITLE]
    assert (row["series"], row["count"], row["lost"]) == ("top", 1, 0)
    assert curve.cache is not None
    assert row["smaller"] == pytest.approx(1 / curve.cache.shares["top", 1])
    assert all(other["count"] > 1 for other in others)  # random heads need more, or all
    assert in_words([row])[0].startswith("TopK with 1 head in full: the score is equal")
    study.save(tmp_path)
    assert not verify(tmp_path).differences
    text = (tmp_path / "cache-at-equal-score.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert float(rows[0]["smaller"]) == pytest.approx(row["smaller"])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "12 key/value heads in 3 layers" in page
    further = [command for _, command in next_commands(read_result(tmp_path))]
    assert any("--model needle-plant --unit kv --heads" in command for command in further)
    assert study.settings["ablation"] == "attention to the first 4 and the last 32 tokens"


def test_any_open_query_head_keeps_the_whole_group_and_windows_stay() -> None:
    model = wrap(tiny_model("mistral"), toy_tokenizer())  # a window of 8, two groups of two heads
    gates = np.array([[1.0] * 8, [0.0] * 8, [1.0, 0.0, 0.0, 0.0] * 2])
    whole, none, some = cache_bytes(model, gates, Streaming(1, 3), 100)
    assert whole == 2 * 2 * 32 * 8 * 4  # layers, heads, numbers, tokens, bytes
    assert none == whole / 2
    assert some == (whole + none) / 2


def test_a_needle_beyond_the_context_is_refused() -> None:
    model = plant_needle(reads=128).model.by_key_value_heads()
    task = make_task("needle", model, length=200, n=8)
    request = CurveRequest(model, task, Ranking.of(model, task, "random"), get_metric("accuracy"))
    with pytest.raises(HeadcountError, match="more than the 128 that"):
        request.result(QUIET)
