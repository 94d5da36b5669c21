"""The study `token-insertion`, whole: on a model that writes one box, and on the real one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain import chain_model
from fast_paths_of_model import left_behind
from matplotlib.figure import Figure
from real import bundled
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model

from headcount import HeadcountError, Lab, Store, wrap
from headcount.engine.write import writing
from headcount.metrics import maths
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.studies.description import Description
from headcount.studies.token_insertion import internals
from headcount.studies.token_insertion.study import KIND

SETTINGS: dict[str, Any] = {
    "n": 8,
    "prompts": 6,
    "length": 12,
    "task_settings": {"shots": 1, "max_new_tokens": 4},
}


def described(model: Model, **settings: Any) -> Description:
    return KIND.describe([model], KIND.configure(**settings))


def run(model: Model, *, store: Store | None = None, **settings: Any) -> Study:
    return described(model, **settings).carry_out(Lab(store))


@pytest.fixture(scope="module")
def tiny() -> Model:
    module = tiny_model("llama", vocab_size=2000, max_position_embeddings=1024)
    return wrap(module, byte_level(), name="tiny & <b>bold</b>")


@pytest.fixture(scope="module")
def study(tiny: Model) -> Study:
    return run(tiny, sweep="length", redistribution="replace", **SETTINGS)


def test_the_table_is_tidy(study: Study) -> None:
    wanted = {"model", "task", "series", "metric", "count", "value", "low", "high", "n"}
    assert wanted <= set(study.rows[0])
    assert all(set(row) == set(study.rows[0]) for row in study.rows)
    series = [row["series"] for row in study.rows]
    assert series[:4] == ["w/o", "w/ Mless", "w/ Mful", "ARM"]
    assert {"w/ Mless minus w/o", "w/ Mful minus w/o", "ARM minus w/o"} <= set(series)
    by_length = [r["count"] for r in study.rows if r["series"] == "w/ Mful, by length"]
    assert by_length == [0, 10, 25, 40, 55, 70]
    for row in study.rows:
        if row["series"] in ("w/o", "w/ Mless", "w/ Mful", "ARM"):
            assert row["n"] == 8
            assert row["truncated"] == 8  # random models never end: counted


def test_the_claims_are_judged(study: Study) -> None:
    texts = [claim.claim for claim in study.claims]
    assert sum("raises accuracy" in text for text in texts) == 2
    assert sum("keeps their timing" in text for text in texts) == 2
    assert sum("λ < 1" in text for text in texts) == 4
    for claim in study.claims:  # nothing is right, so nothing can be told
        assert claim.verdict == "not comparable"
        assert claim.reason.startswith("With all heads, the model is at chance on word-problems.")
    assert all(claim.low < 0 < claim.high for claim in study.claims[:2])
    assert "The whole model is at chance: accuracy 0 [0, " in study.notes[0]
    ticks = [label.get_text() for label in study.figures["figure"].axes[0].get_xticklabels()]
    assert ticks == ["tiny & <b>bold</b>\nat chance"]


def test_the_figure_has_the_published_form(study: Study) -> None:
    figure: Figure = study.figures["figure"]
    bars, above, below = figure.axes
    assert bars.get_title() == "Results on Word problems"
    labels = [text.get_text() for text in bars.get_legend().get_texts()]
    assert labels == ["w/o", "w/ Mless", "w/ Mful", "ARM"]
    assert above.get_title().startswith("Average attention on Head ")
    assert "the head that changes most" in above.get_title()  # of four heads, not head 14
    assert [t.get_text() for t in above.get_legend().get_texts()] == ["None", "Mless", "Mful"]
    assert [t.get_text() for t in below.get_legend().get_texts()] == ["Mless", "Mful"]
    short, *_ = (line.get_xdata() for line in above.get_lines())
    long, *_ = (line.get_xdata() for line in below.get_lines())
    assert len(long) == len(short) + 12
    assert "sweep-length" in study.figures


def test_the_folder_is_whole(study: Study, tmp_path: Path) -> None:
    names = {path.name for path in study.save(tmp_path)}
    assert names >= {"figure.png", "sweep-length.png", "curves.csv", "claims.json", "report.html"}
    text = (tmp_path / "report.html").read_text()
    assert "Affine check" in text
    assert "Activations of layer 0" in text
    assert "<b>bold" not in text
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["settings"]["redistribution"]["variant"] == "replace"


def test_each_head_says_how_far_inserts_change_it(study: Study, tiny: Model) -> None:
    names = [
        f"{what}, w/ {one}" for one in ("Mless", "Mful") for what in ("attention changed", "1 − λ")
    ]
    assert list(dict.fromkeys(row["score"] for row in study.heads)) == names
    assert len(study.heads) == 4 * tiny.layout.total
    (first,) = {
        row["lambda"]
        for row in study.tables["Affine check"]
        if (row["series"], row["layer"]) == ("w/ Mless", 0)
    }
    own = [r["value"] for r in study.heads if (r["score"], r["layer"]) == ("1 − λ, w/ Mless", 0)]
    assert 1 - sum(own) / len(own) == pytest.approx(first, abs=1e-4)


def test_the_same_again_computes_nothing(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        first = run(tiny, store=store, **SETTINGS)
        for module, name in (
            (writing, "generate"),
            (internals, "profiles"),
            (internals, "head_outputs"),
            (internals, "activation_statistics"),
        ):
            monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("computed again"))
        again = run(tiny, store=store, **SETTINGS)
    assert list(first.rows) == list(again.rows)
    assert str(first.claims) == str(again.claims)
    assert left_behind(tiny.module) == []


def test_a_run_that_was_cut_goes_on(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Study
) -> None:
    asked: list[int] = []
    whole = writing.generate

    def cut(*args: Any, **kwargs: Any) -> Any:
        asked.append(len(args[1]))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return whole(*args, **kwargs)

    monkeypatch.setattr(writing, "generate", cut)
    with Store(tmp_path / "store.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            run(tiny, store=store, **SETTINGS)
        rest = run(tiny, store=store, **SETTINGS)
    assert asked == [8, 8, 8, 8]  # the first condition was kept
    assert [row["value"] for row in rest.rows[:3]] == [row["value"] for row in study.rows[:3]]


def test_a_boxed_answer_is_read_and_graded() -> None:
    """A model that always writes 4 is right where the answer is 4."""
    found = run(
        chain_model(),
        n=0,
        prompts=0,
        length=3,
        task_settings={"shots": 0, "max_new_tokens": 12, "level": "one-step"},
    )
    rows = {row["series"]: row for row in found.rows}
    assert 0 < rows["w/o"]["value"] < 0.2
    assert rows["w/o"]["truncated"] == 0
    assert len(found.figures["figure"].axes) == 1  # no internals were read


def test_sampled_runs_differ_and_come_back(tiny: Model) -> None:
    settings = {**SETTINGS, "prompts": 0, "temperature": 1.0, "seeds": 3, "sweep": "position"}
    first, again = (run(tiny, **settings) for _ in range(2))
    assert list(first.rows) == list(again.rows)
    assert first.rows[0]["seeds"] == 3
    assert first.rows[0]["truncated"] > 8
    places = [r["place"] for r in first.rows if r["series"] == "w/ Mless, by position"]
    assert places == ["before", "between", "end", "random", "none"]


def test_a_head_set_goes_through_everything(tiny: Model) -> None:
    whole = run(tiny, **SETTINGS)
    heads = [f"0.{index}" for index in range(4)]
    without = run(tiny, heads=heads, **SETTINGS)
    assert any("Heads off throughout: 0.0" in note for note in without.notes)
    tables = [one.tables["Affine check"] for one in (whole, without)]
    assert tables[0][0]["lambda"] == pytest.approx(tables[1][0]["lambda"], abs=1e-4)  # layer 0
    assert tables[0][1]["lambda"] != pytest.approx(tables[1][1]["lambda"], abs=1e-4)
    kept = run(tiny, heads=heads, keep=True, **SETTINGS)
    assert any("Heads kept throughout" in note for note in kept.notes)


@pytest.mark.filterwarnings("ignore:No artists")  # of the chart of inserted tokens
def test_nothing_put_in_is_asked_once(tiny: Model) -> None:
    ahead = described(tiny, **{**SETTINGS, "n": 2, "prompts": 2, "length": 0})
    lab = Lab(progress=False)
    found = ahead.carry_out(lab)
    assert lab.measured["text"] == 2
    assert {row["place"] for row in found.rows} == {"none"}
    assert len(found.claims) == 2  # about accuracy: there is nothing to hold profiles against
    assert "Affine check" not in found.tables


def test_files_are_reported_beside_it(tiny: Model, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    records = [{"problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(5)]
    records.append({"problem": "What is that? " * 500, "answer": "2"})
    path.write_text("\n".join(map(json.dumps, records)))
    settings = {**SETTINGS, "prompts": 0}
    found = run(tiny, tasks=("word-problems", str(path)), **settings)
    mine = [row for row in found.rows if row["task"] == "mine"]
    assert {row["n"] for row in mine} == {5}
    assert any("1 of 6 problems of mine are left out" in note for note in found.notes)
    assert len(found.claims) == 2  # the claims are about the first task


@pytest.mark.parametrize("kept", [False, True])
def test_the_count_is_what_is_written(tiny: Model, tmp_path: Path, kept: bool) -> None:
    settings = {"sweep": "length", "redistribution": "replace", "temperature": 0.5, "seeds": 2}
    ahead = described(tiny, **{**SETTINGS, "n": 3, "prompts": 2, **settings})
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store if kept else None, progress=False)
        cost = ahead.cost(lab)
        assert lab.measured == {"value": 0, "text": 0}
        assert any(item.quantity == "pass" and item.tokens for item in cost.items)
        ahead.carry_out(lab)
        assert lab.measured["text"] <= cost.count("text") <= 1.05 * lab.measured["text"]
        # Without, both inserts, redistribution, and lengths of which one puts nothing in.
        assert cost.count("text") == 2 * 3 * (4 + 2 * 5)
        if kept:
            assert ahead.cost(lab).tokens == 0
            assert ahead.cost(lab).known == cost.count("text")


def test_a_grader_that_is_not_installed_is_refused_at_once(
    tiny: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    maths._math_verify.cache_clear()
    with pytest.raises(HeadcountError, match=r"pip install 'headcount\[math\]'"):
        described(tiny, **SETTINGS)
    maths._math_verify.cache_clear()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sweep": "lenght"}, "Did you mean"),
        ({"position": "midle"}, "no place"),
        ({"layer": 9}, "attention layers 0 to 1"),
        ({"head": 4}, "There is no head 0.4"),
        ({"heads": ("7.0",)}, "There is no head 7.0"),
        ({"keep": True}, "Name the heads to keep"),
        ({"meaningless": " "}, "at least one character"),
        ({"accuracy": "logprob"}, "grades texts"),
        ({"tasks": ("ioi",), "task_settings": {}}, "no problems whose answer is in a box"),
        ({"tasks": ("word-problem",)}, "Did you mean"),
        ({"task_settings": {"max_new_tokens": 2000}}, "No problem of word-problems fits"),
        ({"redistribution": "ad"}, "no redistribution"),
        ({"seeds": 3}, "Without sampling every run writes the same"),
        ({"task_settings": {"shot": 1}}, 'setting "shot".*Did you mean "shots"'),
        ({"preset": "quik"}, "Did you mean"),
    ],
)
def test_bad_settings_are_a_sentence(tiny: Model, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        described(tiny, **{**SETTINGS, **settings})


@pytest.mark.real
def test_the_real_model_solves_some() -> None:
    found = run(bundled(), n=16, prompts=4)
    rows = {row["series"]: row for row in found.rows}
    assert 0.2 <= rows["w/o"]["value"] <= 0.8
    peaks = [claim for claim in found.claims if "only original tokens" in claim.claim]
    assert all(np.isfinite(claim.measured) for claim in peaks)
    assert "Average attention on Head" in found.figures["figure"].axes[1].get_title()
