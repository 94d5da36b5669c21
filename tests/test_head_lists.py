"""Lists of heads in every format that is read, as docs/head-lists.md shows them, and what ships."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from planted import plant

from headcount import Head, HeadcountError, HeadScores, HeadSet, wrap
from headcount.curves.curve import CurveRequest, CurveSettings
from headcount.curves.judged import judged
from headcount.heads import (
    SHIPPED,
    HeadLayout,
    HeadList,
    is_list,
    list_name,
    read_list,
    write_retrieval_head,
)
from headcount.metrics import get_metric
from headcount.rankings import fit_list
from headcount.rankings.agreement import agreement
from headcount.stats import common_by_chance

PAGE = Path(__file__).parents[1] / "docs" / "head-lists.md"
SHOWN = dict(re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)```", PAGE.read_text("utf-8"), re.S | re.M))
LAYOUT = HeadLayout((2, 2))
# The three best heads of each file of the page, the layout if the file tells it, and the model.
READ = {
    "llama-2-7b-80k.json": (["1.0", "0.1", "1.1"], (2, 2), "head", ""),
    "qr_head.yaml": (["1.0", "0.1", "1.1"], None, "head", "meta-llama/Llama-3.2-1B-Instruct"),
    "qr_scores.json": (["1.0", "0.1", "1.1"], (2, 2), "head", ""),
    "full_attention_heads.tsv": (["1.0", "0.1", "1.1"], (2, 2), "kv", "my-model"),
    "adapter_weights.tsv": (["1.0", "0.1", "1.1"], (2, 2), "kv", "my-model"),
    "scores.json": (["1.0", "0.1", "1.1"], (2, 2), "head", "my-model"),
}


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    for name, text in SHOWN.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_page_shows_every_format() -> None:
    assert set(READ) | {"config.json"} == set(SHOWN)


@pytest.mark.parametrize("name", READ)
def test_a_format_reads_as_the_page_shows_it(shown: Path, name: str) -> None:
    best, counts, unit, model = READ[name]
    assert is_list(name)
    found = read_list(shown / name)
    assert isinstance(found, HeadScores) == (counts is not None)
    scores = found.scores(LAYOUT) if isinstance(found, HeadList) else found
    assert scores.layout == HeadLayout((2, 2), "kv" if unit == "kv" else "head")
    assert [str(head) for head in scores.top(3)] == best
    assert scores.listed == (4 if counts else 3)
    assert scores.parameters.get("model", "") == model


def test_scores_by_example_have_intervals_and_are_written_as_they_were_read(shown: Path) -> None:
    scores = read_list(shown / "llama-2-7b-80k.json")
    assert isinstance(scores, HeadScores)
    assert scores.samples is not None
    assert scores.samples.shape == (3, 4)
    assert np.isfinite(scores.intervals()).all()
    written = write_retrieval_head(scores, shown / "again.json").read_text()
    assert json.loads(written.splitlines()[0]) == json.loads(SHOWN["llama-2-7b-80k.json"])
    of_groups = read_list(shown / "full_attention_heads.tsv")
    assert isinstance(of_groups, HeadScores)
    with pytest.raises(HeadcountError, match="read scores of query heads"):
        write_retrieval_head(of_groups, shown / "kv.json")


def test_our_scores_keep_their_intervals_without_the_samples(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).normal(size=(12, 4))
    scores = HeadScores.averaged(LAYOUT, samples, "m")
    scores.save(tmp_path / "scores.json", np.arange(12))
    (tmp_path / "scores.npz").unlink()
    again = HeadScores.load(tmp_path / "scores.json")
    np.testing.assert_allclose(again.intervals(), scores.intervals())
    again.save(tmp_path / "copy.json")
    np.testing.assert_array_equal(
        HeadScores.load(tmp_path / "copy.json").intervals(), again.intervals()
    )


def test_a_head_set_is_a_list_without_an_order(tmp_path: Path) -> None:
    HeadSet("1.1 0.0", layout=LAYOUT).save(tmp_path / "set.json")
    scores = read_list(tmp_path / "set.json")
    assert isinstance(scores, HeadScores)
    assert (scores.listed, scores.ordered, scores.values.tolist()) == (2, False, [1, 0, 0, 1])


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.yaml", "attn_head_set: full_heads", "takes all heads"),
        ("a.yaml", "attn_head_set: [13-18, here]", "'here' is no LAYER-HEAD"),
        ("a.yaml", "attn_head_set: [1-1, 1-1]", "names a head twice"),
        ("a.yaml", "a: [", "it is no YAML"),
        ("a.yaml", "heads: 3", "attn_head_set must be a list"),
        ("a.tsv", "1\t2\n3", "each layer must have a finite number"),
        ("a.tsv", "1\tnan", "each layer must have a finite number"),
        ("a.tsv", "layer\thead", "a table of numbers"),
        ("a.tsv", "", "each layer must have a finite number"),
        ("a.json", '{"0-0": []}', "head 0-0 must have a number"),
        ("a.json", '{"0-0": "high"}', "head 0-0 must have a number"),
        ("a.json", '{"0-0": [1e999]}', "a score that is not finite"),
        ("a.json", '[["0-0", 1], ["0-0", 2]]', "names head 0-0 twice"),
        ("a.json", "[]", "it names no head"),
        ("a.json", '{"layer": 3}', "not a file of head scores"),
        ("none.tsv", None, "No such file"),
        ("none.yaml", None, "No such file"),
    ],
)
def test_what_is_no_list_is_refused(tmp_path: Path, name: str, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(HeadcountError, match=re.escape(why)) as refused:
        read_list(tmp_path / name)
    assert name in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_what_tables_call_a_list() -> None:
    assert list_name("patterns/llama/full_attention_heads.tsv") == "llama"
    assert list_name("head_score/llama-2-7b-80k.json") == "llama-2-7b-80k"
    assert list_name("gpt2-ioi:induction") == "gpt2-ioi:induction"


# What ships


@pytest.mark.parametrize(("name", "heads"), [("gpt2-ioi", 26), ("gpt2-greater-than", 10)])
def test_a_shipped_list_is_whole(name: str, heads: int) -> None:
    raw = HeadScores.load(SHIPPED[name])
    found = read_list(name)
    assert isinstance(found, HeadScores)
    assert found.listed == raw.listed == heads == int(raw.values.sum())
    np.testing.assert_array_equal(found.values, raw.values)  # the classes are those heads
    classes = raw.parameters["classes"]
    assert sum(map(len, classes.values())) == heads  # each head has one class
    assert "arXiv:" in found.parameters["source"]
    assert found.layout == HeadLayout((12,) * 12)
    for one in classes:
        part = read_list(f"{name}:{one}")
        assert isinstance(part, HeadScores)
        assert {str(h) for h in part.top(part.listed)} == set(classes[one])


def test_an_unknown_class_is_refused_with_the_known_ones() -> None:
    with pytest.raises(HeadcountError, match="s-inhibition"):
        read_list("gpt2-ioi:s-inhibitions")


def test_the_lists_of_gpt2_fit_a_model_of_its_layout_and_no_other() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=24, n_layer=12, n_head=12, vocab_size=64, n_positions=64)
    tokenizer = plant(["0.0"], n=4).model.tokenizer
    model = wrap(GPT2LMHeadModel(config).eval(), tokenizer, name="openai-community/gpt2")
    scores = fit_list(read_list("gpt2-ioi:name-movers"), model)
    assert [str(head) for head in scores.top(3)] == ["9.6", "9.9", "10.0"]
    other = wrap(model.module, tokenizer, name="distilgpt2")
    with pytest.raises(HeadcountError, match="is for gpt2, and this model is distilgpt2"):
        fit_list(read_list("gpt2-ioi"), other)
    assert fit_list(read_list("gpt2-ioi"), other, other_model=True).listed == 26
    small = plant(["0.1"], layers=2, n=4).model
    with pytest.raises(HeadcountError, match=r"another model \(gpt2\): .* 144 heads .* 8 heads"):
        fit_list(read_list("gpt2-ioi"), small)


# Judged on a model


def test_a_list_of_another_model_is_refused_by_name_fingerprint_or_heads(tmp_path: Path) -> None:
    model = plant(["0.1", "1.0"], layers=2, n=4).model
    layout = model.layout
    mine = {"model": model.name, "fingerprint": model.identity["weights"]}
    assert fit_list(HeadScores(layout, np.arange(8.0), "m", mine), model).listed == 8
    renamed = {**mine, "model": "copied"}  # the same weights under another name
    assert fit_list(HeadScores(layout, np.arange(8.0), "m", renamed), model).listed == 8
    tuned = HeadScores(layout, np.arange(8.0), "m", {**mine, "fingerprint": "0" * 64})
    with pytest.raises(HeadcountError, match=r"with weights 00000000, and this model is .* with"):
        fit_list(tuned, model)
    with pytest.raises(HeadcountError, match=r"model \(x/Other\) than plant-.*no head 7\.9"):
        fit_list(HeadList((Head(7, 9),), "theirs", {"model": "x/Other"}), model)
    with pytest.raises(HeadcountError, match=r"key/value heads, and .* by heads \(--unit\)"):
        fit_list(HeadList((Head(0, 0),), "theirs", unit="kv"), model)


def test_a_list_is_judged_by_all_heads_that_it_names() -> None:
    planted = plant(["0.1", "1.0", "2.2"], layers=3, n=16)
    names = tuple(map(Head.parse, ("0.1", "1.0", "2.2")))
    scores = fit_list(HeadList(names, "theirs"), planted.model)
    metric = get_metric("logit_difference")
    request = CurveRequest(planted.model, planted.task, scores, metric, CurveSettings(seeds=3))
    assert request.counts == [0, 1, 2, 3]
    comparisons = judged(request, None)[1]
    assert [(c["one"], c["other"], c["count"]) for c in comparisons] == [
        ("top", "random", 3),
        ("top", "matched", 3),
    ]
    for settings, why in [
        (CurveSettings(counts=[4]), "names 3 heads: ask for 0 to 3 of them, not 4"),
        (CurveSettings(series=["bottom"]), "leave the series bottom out"),
    ]:
        with pytest.raises(HeadcountError, match=why):
            _ = CurveRequest(planted.model, planted.task, scores, metric, settings).counts
    unordered = fit_list(HeadList(names, "theirs", ordered=False), planted.model)
    chosen = CurveSettings(counts=[2])
    with pytest.raises(HeadcountError, match="in no order: ask for all 3 of them, not 2"):
        _ = CurveRequest(planted.model, planted.task, unordered, metric, chosen).counts
    assert judged(request, 2)[1][0]["count"] == 2
    with pytest.raises(HeadcountError, match="a number between 0 and 12"):
        judged(request, 12)


# Overlap against chance


def test_chance_is_that_of_counting_all_draws() -> None:
    layers = [(4, 2, 1), (3, 1, 2)]
    table = np.zeros(4)
    fixed = {0, 1} | {10}
    for first in combinations(range(4), 1):
        for second in combinations(range(10, 13), 2):
            table[len(fixed & {*first, *second})] += 1
    np.testing.assert_allclose(common_by_chance(layers), (table / table.sum())[:3])


def test_overlap_of_lists_with_its_chance_from_all_heads_and_from_the_same_layers() -> None:
    layout = HeadLayout((4, 4, 4))
    one = HeadList(tuple(map(Head.parse, ("2.0", "2.1", "2.2"))), "one").scores(layout)
    other = HeadList(tuple(map(Head.parse, ("2.1", "2.0", "2.2", "2.3"))), "other", ordered=False)
    found = agreement({"one": one, "other": other.scores(layout)}).overlaps
    assert [(o.count, o.other_count, o.common) for o in found] == [(3, 4, 3)]
    assert found[0].share == 1
    assert found[0].p_value == pytest.approx(4 / 220)  # of 12 over 3 draws, 4 lie in these heads
    assert found[0].layer_chance == found[0].layer_p_value == 1  # all heads of the layer are named
    assert found[0].chance == pytest.approx(4 / 12)
