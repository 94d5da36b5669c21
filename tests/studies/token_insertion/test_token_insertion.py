"""The study `token-insertion`, whole: on a model that writes one box, and on the real one."""

from __future__ import annotations

import gzip
import json
import re
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
from headcount.studies.token_insertion.grading import problems, task_label
from headcount.studies.token_insertion.study import KIND
from headcount.studies.verify import verify

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
    for words, times in (
        ("raises accuracy", 2),
        ("less than 2 points", 2),
        ("keeps the timing", 2),
        ("receives small weights", 4),  # the head, and the mean over its layer
        ("receives near-uniform weights", 4),
        ("the fitted λ is below", 4),
        ("outputs vary less", 4),
    ):
        assert sum(words in text for text in texts) == times
    for claim in study.claims:  # nothing is right, so nothing can be told
        assert claim.verdict == "not comparable"
        assert "the model is at chance on word problems." in claim.reason
    assert all(claim.low < 0 < claim.high for claim in study.claims[:4])
    assert "The whole model is at chance: accuracy 0 [0, " in study.notes[0]
    ticks = [label.get_text() for label in study.figures["figure"].axes[1].get_xticklabels()]
    assert ticks == ["tiny &\n<b>bold</b>\nat chance"]


def test_the_figure_has_the_published_form(study: Study) -> None:
    figure: Figure = study.figures["figure"]
    bars, _, above, below, mean = figure.axes
    assert bars.get_title() == "Results on word problems"
    left, right = figure.subfigs
    # In two rows, each read from left to right: matplotlib fills columns.
    assert [t.get_text() for t in left.legends[0].get_texts()] == [
        *("w/o", "ARM", "w/ Mless", "w/ Mful")
    ]
    assert above.get_title().startswith("Head 0.")
    assert [t.get_text() for t in right.legends[0].get_texts()] == [
        *("None", "Mless", "Mful", "uniform reader")
    ]
    short, *_ = (line.get_xdata() for line in above.get_lines())
    long, *_ = (line.get_xdata() for line in below.get_lines())
    assert len(long) == len(short) + 12
    assert mean.get_title() == "Mean over the 4 heads of layer 0"
    assert "sweep-length" in study.figures
    caption = study.captions["figure"]
    assert "change most on 3 other prompts" in caption  # of four heads, not head 14
    assert "Whiskers are 95 % intervals over problems" in caption


def test_the_folder_is_whole(study: Study, tmp_path: Path) -> None:
    names = {path.name for path in study.save(tmp_path)}
    assert names >= {"figure.png", "sweep-length.png", "curves.csv", "claims.json", "report.html"}
    text = (tmp_path / "report.html").read_text()
    assert "Affine check" in text
    assert "Activations of layer 0" in text
    assert "Against a uniform reader" in text
    assert "<b>bold" not in text
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["settings"]["redistribution"]["variant"] == "replace"


def test_a_reader_can_recompute_everything(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path)
    found = verify(tmp_path)
    assert found.differences == ()
    assert found.left_out == ()
    assert found.claims == len(study.claims)
    values = tmp_path / "values.csv.gz"
    text = gzip.decompress(values.read_bytes()).decode()
    grade = next(line for line in text.splitlines() if ",w/ Mful,maths," in line)
    values.write_bytes(gzip.compress(text.replace(grade, f"{grade[:-1]}1").encode()))
    assert any("curves.csv" in difference for difference in verify(tmp_path).differences)
    span = next(line for line in text.splitlines() if ",span," in line)
    *most, last = span.split(" ")
    changed = " ".join([*most, str(2 * float(last))])
    values.write_bytes(gzip.compress(text.replace(span, changed).encode()))
    found = verify(tmp_path)
    assert any("against-a-uniform-reader.csv" in one for one in found.differences)
    assert any("claims.json" in one for one in found.differences)


def test_values_are_small(study: Study, tmp_path: Path) -> None:
    """Grades of thousands of problems and internals of 64 prompts fit into a committed folder."""
    assert study.values is not None
    problems = list(study.values.facts(sample="problems"))
    assert len(problems) == 4 + 2 * 6
    prompts = list(study.values.facts(sample="prompts"))
    assert len(prompts) < 350  # rows of one number for each prompt, in two layers of four heads


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
    assert len(found.figures["figure"].axes) == 2  # no internals were read


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


def test_a_named_head_is_judged_on_all_prompts(tiny: Model) -> None:
    found = run(tiny, layer=1, head=2, **{**SETTINGS, "n": 4, "prompts": 4})
    assert "Choice of the head" not in found.tables
    rows = found.tables["Against a uniform reader"]
    read = {row["where"]: row["prompts"] for row in rows}
    assert read == {"1.2": 4, "layer 1": 4, "other layers": 4}
    title = found.figures["figure"].axes[2].get_title()
    assert title.startswith("Head 1.2 of ")
    assert "chosen" not in found.captions["figure"]


def test_nothing_put_in_is_asked_once(tiny: Model) -> None:
    ahead = described(tiny, **{**SETTINGS, "n": 2, "prompts": 2, "length": 0})
    lab = Lab(progress=False)
    found = ahead.carry_out(lab)
    assert lab.measured["text"] == 2
    assert {row["place"] for row in found.rows} == {"none"}
    assert len(found.claims) == 4  # about accuracy: there is nothing to hold profiles against
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
    assert len(found.claims) == 4  # the claims are about the first task


def test_titles_never_show_a_file_name(tmp_path: Path) -> None:
    path = tmp_path / "problems-of-mine.jsonl"
    layout = {"problem": "1 + 1?", "answer": "2", "subject": "Algebra", "level": 1}
    for more, label in (({}, "problems from a file"), ({"unique_id": "test/a/1.json"}, "MATH-500")):
        path.write_text(json.dumps({**layout, **more}))
        assert task_label(str(path)) == label
    assert task_label("word-problems") == "word problems"


def test_a_finding_is_confirmed_on_untouched_problems(tiny: Model) -> None:
    asked = {"tasks": ("word-problems",), "task_settings": SETTINGS["task_settings"]}
    first, _ = problems(tiny, "word-problems", KIND.configure(n=40, **asked))
    every, _ = problems(tiny, "word-problems", KIND.configure(n=0, **asked))
    rest, notes = problems(tiny, "word-problems", KIND.configure(n=0, leave_out=40, **asked))
    ids = [{example.id for example in task} for task in (first, rest, every)]
    assert not ids[0] & ids[1]
    assert ids[0] | ids[1] == ids[2]
    assert any("--n 40 takes are left out" in note for note in notes)
    few, _ = problems(tiny, "word-problems", KIND.configure(n=5, leave_out=40, **asked))
    assert {example.id for example in few} < ids[1]


def test_several_models_make_one_figure(tiny: Model) -> None:
    other = wrap(tiny_model("llama", vocab_size=2000, max_position_embeddings=1024), byte_level())
    settings = KIND.configure(**{**SETTINGS, "n": 4, "prompts": 4})
    found = KIND.describe([tiny, other], settings).carry_out(Lab(None))
    assert {row["model"] for row in found.rows} == {tiny.name, other.name}
    models = {row["model"] for row in found.tables["Against a uniform reader"]}
    assert models == {tiny.name, other.name}
    assert len(found.figures["figure"].axes[1].get_xticklabels()) == 2
    with pytest.raises(HeadcountError, match="different names"):
        KIND.describe([tiny, tiny], settings)


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
        ({"leave_out": 5000}, "leave out fewer than that"),
        ({"leave_out": -1}, "leave_out must be at least 0"),
        ({"prompts": 1}, "at least 2 prompts, or name a head"),
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
    peaks = [claim for claim in found.claims if "lowers the attention peaks" in claim.claim]
    assert all(np.isfinite(claim.measured) for claim in peaks)
    titles = [axes.get_title() for axes in found.figures["figure"].axes]
    assert any(re.fullmatch(r"Head \d+\.\d+ of SmolLM2-135M \(Q4_1\)", t) for t in titles)
