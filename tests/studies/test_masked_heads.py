"""The study `masked-heads`, whole: on a tiny model of random weights, and on the real one."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from real import bundled
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model

from headcount import HeadcountError, Store, run_study, wrap
from headcount.engine.write import writing
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.stats import paired_difference
from headcount.studies.masked_heads.estimates import difference_rows
from headcount.studies.masked_heads.panels import COLUMNS, SERIES, FunctionPanel
from headcount.value_table import ValueTable

# Answers of a random model are noise, so the encoder would add nothing here.
SETTINGS: dict[str, Any] = {
    "functions": ("knowledge-recall", "math"),
    "counts": (2, 4),
    "seeds": 2,
    "n": 12,
    "similarity": "exact_match",
    "task_settings": {"shots": 1, "max_new_tokens": 2},
}


@pytest.fixture(scope="module")
def tiny() -> Model:
    module = tiny_model("llama", vocab_size=2000, max_position_embeddings=1024)
    return wrap(module, byte_level(), name="tiny & <b>bold</b>")


@pytest.fixture(scope="module")
def study(tiny: Model) -> Study:
    return run_study("masked-heads", tiny, rankings=("attribution", "random"), **SETTINGS)


def test_the_table_is_tidy(study: Study) -> None:
    wanted = {"model", "task", "series", "metric", "count", "value", "low", "high", "n", "ranking"}
    assert wanted <= set(study.rows[0])
    keys = [(r["task"], r["ranking"], r["series"], r["metric"], r["count"]) for r in study.rows]
    by_first = {key for key in keys if key[1] == "attribution"}
    assert {key[2] for key in by_first} == {"top", "random", "matched"}
    assert {key[2] for key in keys if key[1] == "random"} == {"top"}
    assert {key[4] for key in keys} == {0, 2, 4}
    for row in study.rows:
        assert row["low"] <= row["value"] <= row["high"]


def test_the_folder_is_whole(study: Study, tmp_path: Path) -> None:
    paths = study.save(tmp_path / "results", "headcount run masked-heads --made 'up'")
    names = {path.name for path in paths}
    assert paths[0].name == "figure.png"
    assert names >= {f"figure.{kind}" for kind in ("png", "svg", "pdf")}
    assert names >= {"rankings.png", "curves.csv", "claims.json", "report.html", "run.json"}
    assert names >= {"controls.png", "differences.csv", "values.csv.gz", "examples.csv.gz"}
    with (tmp_path / "results" / "curves.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(study.rows)
    claims = json.loads((tmp_path / "results" / "claims.json").read_text())
    fields = ["claim", "published", "measured", "low", "high", "verdict", "reason"]
    fields += ["detectable", "p_value"]
    assert all(list(claim) == fields for claim in claims)
    assert len(claims) == 7
    (onset,) = (claim for claim in claims if "collapse" in claim["claim"])
    assert onset["verdict"] == "not tested"  # 2 and 4 heads are far from the published onset
    run = json.loads((tmp_path / "results" / "run.json").read_text())
    assert run["settings"]["counts"] == [0, 2, 4]
    assert run["settings"]["task"] == {"n": 12, "shots": 1, "max_new_tokens": 2}
    assert run["command"].endswith("'up'")
    (model,) = run["model"].values()
    assert {"weights", "tokenizer", "dtype"} <= set(model)
    assert (tmp_path / "results" / "scores" / "math-attribution.json").exists()
    with (tmp_path / "results" / "heads.csv").open() as file:
        heads = list(csv.DictReader(file))
    assert {(row["task"], row["score"]) for row in heads} == {
        (task, ranking)
        for task in ("knowledge-recall", "math")
        for ranking in ("attribution", "random")
    }
    best = study.scores["math-attribution"].values  # type: ignore[attr-defined]
    found = [row for row in heads if (row["task"], row["score"]) == ("math", "attribution")]
    assert [float(row["value"]) for row in found] == pytest.approx(best.tolist(), rel=1e-5)


def test_differences_pair_items_and_know_whose_controls_they_are() -> None:
    right = np.repeat(np.random.default_rng(0).random(20) < 0.5, 2)  # both items of a template
    random, matched = np.stack([right] * 3) * 1.0, np.stack([right] * 2) * 0.5
    values = ValueTable(COLUMNS, ("model", "task"))
    values.name_examples(
        [(f"{i}", f"t{i // 2}", f"{i}") for i in range(40)], model="m", task="math"
    )
    for ranking, metric, tables in (
        ("attribution", "exact_match", (np.zeros((1, 40)), random, matched)),
        ("attribution", "similarity", (random[:1], random * 0.8, matched)),
        ("probe", "exact_match", (random[:1],)),
    ):
        about = {"model": "m", "task": "math", "ranking": ranking, "metric": metric}
        values.put(random[:1], **about, series="top", count=0)
        for series, table in zip(SERIES, tables, strict=False):
            values.put(table, **about, series=series, count=8)
    metrics = [{"key": "exact_match", "binary": True}, {"key": "similarity", "binary": False}]
    panel = FunctionPanel("math", "Math", values, {"metrics": metrics}, "m")
    rows = difference_rows([panel])
    found = {(row["ranking"], row["metric"], row["difference"]): row for row in rows}
    assert len(found) == len(rows) == 5  # nothing at 0 heads, no layers for the other ranking
    assert {row["control_of"] for row in rows} == {"attribution"}
    assert {(row["model"], row["task"], row["count"], row["n"]) for row in rows} == {
        ("m", "math", 8, 40)
    }
    down = found["attribution", "exact_match", "top minus random"]
    assert down["value"] == pytest.approx(-right.mean())
    assert down["low"] < down["value"] < down["high"] < 0
    # of 20 templates, not of 40 items
    alone = paired_difference(np.zeros((1, 40)), random)
    assert down["high"] - down["low"] > 1.2 * (alone.high - alone.low)
    layers = found["attribution", "exact_match", "top minus matched"]
    assert layers["value"] == pytest.approx(-right.mean() / 2)
    beside = found["attribution", "similarity", "top minus random"]
    assert beside["value"] == pytest.approx(0.2 * right.mean())
    same = found["probe", "exact_match", "top minus random"]  # no item differs
    assert same["low"] < same["value"] == 0 < same["high"] == pytest.approx(-same["low"])


def test_differences_of_one_metric_are_not_told_twice(study: Study) -> None:
    rows = study.tables["Differences"]
    names = ("task", "ranking", "metric", "difference", "count")
    assert len({tuple(row[name] for name in names) for row in rows}) == len(rows) == 2 * 3 * 2
    assert {row["task"] for row in rows} == {"knowledge-recall", "math"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href") and not (value or "").startswith(("data:", "#")):
                self.outside.append(value or "")


def test_the_report_escapes_and_loads_nothing(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path)
    text = (tmp_path / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.outside == []
    assert page.tags.count("script") == 2  # the page's own, and its data
    assert "b" not in page.tags
    assert "tiny &amp; &lt;b&gt;bold&lt;/b&gt;" in text
    assert page.tags.count("img") == len(study.figures) == 3


def test_the_figure_has_the_published_form(study: Study) -> None:
    figure: Figure = study.figures["figure"]
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["Knowledge Recall\nat chance", "Math Calculation\nat chance"]
    for axes in figure.axes:
        assert axes.get_xlabel() == "# Masked Heads"
        assert axes.get_xscale() == "log"
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "2", "4"]
    assert figure.axes[0].get_ylabel() == "Score"
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert {"TopK Accuracy", "RandomK Accuracy"} <= set(labels)
    assert not any("omet" in label for label in labels)  # what is not COMET is not called so


def test_the_caption_says_what_a_figure_alone_does_not(study: Study) -> None:
    caption = study.captions["figure"]
    for words in ("8 heads", "attribution", "zero ablation", "mean of 2 draws", "95 % intervals"):
        assert words in caption
    assert "with the ranking held fixed" in caption
    assert "At chance: Knowledge Recall, Math Calculation." in caption
    assert study.captions.keys() == study.figures.keys()
    assert any("hold the ranking fixed" in note for note in study.notes)


def test_the_ranking_is_drawn_again_and_topk_gets_its_rank(tiny: Model) -> None:
    settings = {**SETTINGS, "functions": ("math",), "rerankings": 3, "anywhere": 7}
    study = run_study("masked-heads", tiny, **settings)
    assert study.values is not None
    draws = {
        (facts["series"], facts["count"]): len(study.values.get(**facts))
        for facts in study.values.facts(metric="exact_match")
    }
    assert {key: n for key, n in draws.items() if key[0] in ("reranked", "anywhere")} == {
        ("reranked", 2): 3,
        ("reranked", 4): 3,
        ("anywhere", 2): 7,  # at one count
    }
    (row,) = study.tables["Rank of TopK"]
    assert (row["count"], row["draws"]) == (2, 7)
    assert row["p"] in [k / 8 for k in range(1, 9)]
    assert "the ranking included" in study.captions["figure"]
    assert not any("hold the ranking fixed" in note for note in study.notes)
    assert {row["series"] for row in study.rows} == {"top", "random", "matched"}


def test_the_same_again_computes_nothing(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        first = run_study("masked-heads", tiny, **SETTINGS, lab=Lab(store))
        monkeypatch.setattr(writing, "generate", lambda *_, **__: pytest.fail("written again"))
        again = run_study("masked-heads", tiny, **SETTINGS, lab=Lab(store))
    assert first.rows == again.rows
    assert str(first.claims) == str(again.claims)


def test_a_ranking_that_does_not_suit_a_function_is_left_out_and_said(tiny: Model) -> None:
    settings = {**SETTINGS, "functions": ("math",)}
    study = run_study(
        "masked-heads", tiny, rankings=("attribution", "attention-retrieval"), **settings
    )
    assert {row["ranking"] for row in study.rows} == {"attribution"}
    assert any("no ranking by attention-retrieval: " in note for note in study.notes)
    with pytest.raises(HeadcountError):
        run_study("masked-heads", tiny, rankings=("attention-retrieval",), **settings)


def test_a_run_that_was_cut_goes_on(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Study
) -> None:
    calls = []
    whole = writing.generate

    def cut(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(args[1]))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*args, **kwargs)

    monkeypatch.setattr(writing, "generate", cut)
    with Store(tmp_path / "store.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            run_study("masked-heads", tiny, **SETTINGS, lab=Lab(store))
        rest = run_study("masked-heads", tiny, **SETTINGS, lab=Lab(store))
    expected = [row for row in study.rows if row["ranking"] == "attribution"]
    assert list(rest.rows) == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"functions": ("retreival",)}, "Did you mean"),
        ({"functions": ()}, "at least one function"),
        ({"rankings": ("atribution",)}, "Did you mean"),
        ({"accuracy": "logprob"}, "grades texts"),
        ({"preset": "quik"}, "Did you mean"),
        ({"counts": (1000,)}, "Cannot choose 1000"),
        ({"counts": (0,)}, "name a count above 0"),
        ({"counts": (8,)}, "needs 8 heads outside the top 8, .* choose a smaller count"),
        ({"task_settings": {"shot": 1}}, "Did you mean"),
        ({"scope": "decod"}, "Did you mean"),
        ({"rerankings": 1}, "0 or at least 2"),  # one alone has no spread
        ({"anywhere": -1}, "0 or more"),
    ],
)
def test_bad_settings_are_a_sentence(tiny: Model, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        run_study("masked-heads", tiny, **{**SETTINGS, **settings})


def test_a_model_of_one_head_is_refused_before_anything_is_measured() -> None:
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    module = tiny_model("llama", vocab_size=2000, max_position_embeddings=1024, **sizes)
    lab = Lab(store=None)
    words = "needs 1 head outside the top 1, and one has only 1 head: choose another model"
    with pytest.raises(HeadcountError, match=words):
        run_study(
            "masked-heads",
            wrap(module, byte_level(), name="one"),
            lab=lab,
            **{**SETTINGS, "counts": None},
        )
    assert lab.measured == {"value": 0, "text": 0}


@pytest.mark.real
def test_the_real_model_needs_its_top_heads() -> None:
    study = run_study(
        "masked-heads",
        bundled(),
        functions=("knowledge-recall",),
        counts=(16,),
        seeds=2,
        n=32,
    )
    at = {(row["metric"], row["series"], row["count"]): row["value"] for row in study.rows}
    assert at["exact_match", "top", 0] > 0.4
    assert at["exact_match", "top", 16] < at["exact_match", "random", 16] - 0.2
    assert at["similarity", "top", 0] == pytest.approx(1)
    assert at["similarity", "top", 16] < at["similarity", "random", 16]
    tested = [claim for claim in study.claims if claim.verdict != "not tested"]
    assert np.isfinite([claim.measured for claim in tested]).all()
    assert all("4-bit weights (Q4_1)" in caption for caption in study.captions.values())
    labels = [text.get_text() for text in study.figures["figure"].legends[0].get_texts()]
    assert "TopK Similarity (MiniLM)" in labels
