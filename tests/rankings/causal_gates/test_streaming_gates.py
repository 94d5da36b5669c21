"""Gates between full and streaming attention, on a model that finds a needle by known heads."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_needle import PlantedNeedle, plant_needle
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, HeadScores, Lab, Store, make_task, rank, wrap
from headcount.engine.measure.cost import Counter
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking
from headcount.rankings.duo_attention import write_duo_attention
from headcount.tasks import Task

QUIET = Lab(store=None, progress=False)
ABLATION = "streaming:4:32"
FIT: dict[str, Any] = {"ablation": ABLATION, "updates": 25, "batch": 4}


@cache
def needle() -> tuple[PlantedNeedle, Model, Task]:
    planted = plant_needle()
    task = make_task("needle", planted.model, length=96, n=24, depths=(0.1, 0.3, 0.5))
    return planted, planted.model.by_key_value_heads(), task


@cache
def learned() -> HeadScores:
    _, model, task = needle()
    return rank(model, task, "streaming-gates", lab=QUIET, **FIT)


def test_learned_gates_stay_open_at_the_heads_that_need_the_whole_text() -> None:
    planted, model, _ = needle()
    scores = learned()
    needed = np.isin(np.arange(12), [model.layout.number(head) for head in planted.heads])
    assert scores.values[needed].min() > 0.5  # either would be enough, so they share the work
    assert scores.values[~needed].max() < 0.05
    assert scores.goal == "keep"
    assert scores.parameters["ablation"] == ABLATION


@pytest.mark.parametrize("name", ["ablation", "attribution", "integrated-gradients"])
def test_cheaper_rankings_find_them_too(name: str) -> None:
    planted, model, task = needle()
    scores = rank(model, task, name, ablation=ABLATION, lab=QUIET)
    assert set(scores.top(2)) == planted.heads
    assert np.abs(np.sort(scores.values)[:-2]).max() < 1e-4  # all others may stream


def test_a_fit_goes_on_from_the_store_and_is_counted(tmp_path: Path) -> None:
    _, model, task = needle()
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        asked = Ranking.of(model, task, "streaming-gates", **FIT)
        assert lab.cost([asked]).tokens > 0
        scores = asked.result(lab)
        again = Ranking.of(model, task, "streaming-gates", **FIT)
        counter = Counter(store)
        again.count(counter)
        assert not counter.cost.tokens
        np.testing.assert_array_equal(again.result(lab).values, scores.values)
        other = Ranking.of(model, task, "streaming-gates", **{**FIT, "ablation": "streaming:4:33"})
        assert other.known(store) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ablation": "zero"}, "leave the ablation at streaming:SINK:WINDOW, not zero"),
        ({"ablation": "streaming:0:4"}, "at least 1 first and 1 recent"),
        ({"push": -0.1}, "The push of streaming-gates is above 0, not -0.1"),
        ({"updates": 0}, "takes updates from 1 to 100,000, not 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadcountError, match=message):
        RANKINGS["streaming-gates"].bind(**settings)


def test_a_model_that_cannot_stream_is_refused_before_it_is_fitted() -> None:
    model = wrap(tiny_model("bloom"), toy_tokenizer())
    for act in (QUIET.cost, lambda asked: asked[0].result(QUIET)):
        with pytest.raises(HeadcountError, match="BloomAttention"):
            act([Ranking.of(model, toy_task(24), "streaming-gates")])


def test_gates_are_written_as_duo_attention_reads_them(tmp_path: Path) -> None:
    planted, model, task = needle()
    heads, config = write_duo_attention(model, learned(), tmp_path / "patterns")
    assert (heads.name, config.name) == ("full_attention_heads.tsv", "config.json")
    table = np.loadtxt(heads, dtype=float, delimiter="\t")  # as DuoAttention does
    np.testing.assert_allclose(table, learned().values.reshape(3, 4))
    assert heads.read_text(encoding="utf-8").count("\t") == 9
    facts = json.loads(config.read_text(encoding="utf-8"))
    assert (facts["sink_size"], facts["recent_size"], facts["numbers"]) == (4, 32, "gates")

    by_order = rank(model, task, "attribution", ablation=ABLATION, lab=QUIET)
    heads, config = write_duo_attention(model, by_order, tmp_path / "patterns")
    table = np.loadtxt(heads, dtype=float, delimiter="\t")
    assert table.min() == 0
    assert table.max() == 1
    kept = table >= np.quantile(table, 1 - 2 / 12)  # its share of full attention heads
    assert {(h.layer, h.index) for h in planted.heads} == {*map(tuple, np.argwhere(kept).tolist())}
    assert json.loads(config.read_text(encoding="utf-8"))["numbers"] == "places in the order"


def test_only_tables_of_key_value_heads_are_written(tmp_path: Path) -> None:
    planted, _, task = needle()
    scores = rank(planted.model, task, "random", lab=QUIET)
    with pytest.raises(HeadcountError, match=r"ranked by query heads.*--unit kv"):
        write_duo_attention(planted.model, scores, tmp_path)
    assert not list(tmp_path.iterdir())
