"""Benchmarks of lm-eval under head sets: the same answers as lm-eval's own, kept, and verified."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'headcount[lm-eval]'")

import lm_eval
from integrations.lm_eval.task_files import choosing, write_task, writing
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from planted import Plant, plant
from tasks.tiny_tokenizers import CHAT, byte_level
from transformers import LlamaConfig, LlamaForCausalLM

from headcount import HeadcountError, HeadScores, Lab, Store, gated, make_task, run_study, wrap
from headcount.cli import main
from headcount.integrations.lm_eval import HeadcountLM, benchmarks
from headcount.integrations.lm_eval.model import NOT_GREEDY
from headcount.models import model as models
from headcount.models.model import Model
from headcount.studies.verify import verify
from headcount.tasks.lm_eval_docs import load_benchmarks

HEADS = ["0.1", "1.2"]


@pytest.fixture(scope="module")
def writer() -> Model:
    """A model whose tokenizer can write anything."""
    torch.manual_seed(0)
    tokenizer = byte_level(bos=True, chat=CHAT)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.5,
        bos_token_id=1,
        eos_token_id=2,
    )
    return wrap(LlamaForCausalLM(config).eval(), tokenizer, name="writer")


@pytest.fixture(scope="module")
def planted() -> Plant:
    return plant(needed=["0.1", "1.0"], layers=2, heads=4, n=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Benchmarks of all kinds, with texts for the model that writes."""
    path = tmp_path_factory.mktemp("tasks")
    places = ("garden", "school", "house beside the station", "beach")
    documents = [
        {"text": f"Then, {name} went to the", "choices": places, "label": number % 4}
        for number, name in enumerate(("Mary", "John", "Tom", "Anna", "Kate", "Paul"))
    ]
    choosing(path, "places", documents, training=documents[:3])
    choosing(path, "shots", documents, training=documents[:3], num_fewshot=2)
    writing(path, "written", documents)
    how = {"until": ["\n"], "do_sample": True, "temperature": 0.8}
    writing(path, "sampled", documents, decoding=how, repeats=3)
    writing(path, "beams", documents, decoding={"num_beams": 3})
    writing(path, "endless", documents, decoding={"max_gen_toks": 99})
    letters = [{"text": document["text"] * 9} for document in documents]  # longer than the context
    rolling = {"output_type": "loglikelihood_rolling", "doc_to_target": "{{text}}"}
    metrics = [{"metric": "bits_per_byte"}]
    write_task(path, "rolled", letters, doc_to_text="", metric_list=metrics, **rolling)
    group = {"group": "both", "task": ["places", "shots"]}
    (path / "both.yaml").write_text(json.dumps(group))
    return path


@pytest.fixture(scope="module")
def names(planted: Plant, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The planted task, as a benchmark of choices and as one of written answers."""
    path = tmp_path_factory.mktemp("names")
    documents = [
        {
            "text": e.prompt,
            "choices": [e.foils[0].strip(), e.target.strip(), "nobody"],
            "label": 1,
        }
        for e in planted.task
    ]
    choosing(path, "chosen", documents, training=documents[:8])
    writing(path, "named", documents, decoding={"max_gen_toks": 1})
    return path


def evaluated(lm: Any, folder: Path, *names: str, **how: Any) -> dict[str, Any]:
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    how = {"task_manager": manager, "bootstrap_iters": 0, **how}
    found: dict[str, Any] = lm_eval.simple_evaluate(model=lm, tasks=list(names), **how)
    return found


@pytest.mark.parametrize("chat", [False, True])
def test_answers_are_those_of_lm_evals_own_model_under_the_same_gates(
    writer: Model, folder: Path, chat: bool
) -> None:
    asked = ["places", "shots", "written", "rolled"]
    how = {"apply_chat_template": chat, "fewshot_as_multiturn": chat}
    ours = evaluated(HeadcountLM(writer, HEADS, lab=Lab(store=None)), folder, *asked, **how)
    with gated(writer, HEADS):
        own = HFLM(writer.module, tokenizer=copy.deepcopy(writer.tokenizer), batch_size=4)
        theirs = evaluated(own, folder, *asked, **how)
    compared = 0
    for name in asked:
        for one, other in zip(ours["samples"][name], theirs["samples"][name], strict=True):
            for (mine,), (its,) in zip(one["resps"], other["resps"], strict=True):
                compared += 1
                if name == "written":
                    assert mine == its
                elif name == "rolled":
                    assert mine == pytest.approx(its, abs=1e-3)
                else:
                    assert mine[0] == pytest.approx(its[0], abs=1e-4)
                    assert mine[1] is its[1]
        assert ours["results"][name].keys() == theirs["results"][name].keys()
    assert compared == 6 * 4 + 6 * 4 + 6 + 6


def test_what_greedy_decoding_writes_is_told_by_the_sign(planted: Plant, names: Path) -> None:
    lm = HeadcountLM(planted.model, lab=Lab(store=None))
    found = evaluated(lm, names, "chosen")["samples"]["chosen"]
    flags = [[answer[0][1] for answer in one["resps"]] for one in found]
    assert flags == [[False, True, False]] * 12
    assert all(answer[0][0] < 0 for one in found for answer in one["resps"])
    assert -0.69 < NOT_GREEDY < 0


def test_the_planted_heads_are_what_the_benchmarks_need(planted: Plant, names: Path) -> None:
    study = benchmarks(
        planted.model,
        ["chosen", "named"],
        planted.heads("needed"),
        seeds=2,
        include_path=str(names),
        lab=Lab(store=None),
    )
    means = {(r["task"], r["metric"], r["series"], r["count"]): r["value"] for r in study.rows}
    scores = (("chosen", "acc"), ("chosen", "acc_norm"), ("named", "exact_match"))
    series = ("top", "random", "matched")
    assert means.keys() == {(*s, one, k) for s in scores for one in series for k in (0, 2)}
    assert all(value == (0.0 if key[2:] == ("top", 2) else 1.0) for key, value in means.items())
    gaps = study.to_frame("Differences").set_index(["task", "metric", "difference"])["value"]
    assert gaps["named", "exact_match", "TopK minus RandomK"] == -1
    assert gaps["chosen", "acc", "RandomK minus whole model"] == 0
    assert study.settings["benchmarks"]["chosen"] == {
        "chosen": {"version": "Yaml", "num_fewshot": 0}
    }


def test_kept_heads_alone_do(planted: Plant, names: Path) -> None:
    how: dict[str, Any] = {"include_path": str(names), "lab": Lab(store=None), "keep": True}
    study = benchmarks(planted.model, ["chosen"], planted.heads("needed"), seeds=2, **how)
    means = {(r["series"], r["count"]): r["value"] for r in study.rows if r["metric"] == "acc"}
    whole = {(series, 8): 1.0 for series in ("top", "random", "matched")}
    assert means == whole | {("top", 2): 1.0, ("random", 2): 0.0, ("matched", 2): 0.0}


def test_the_same_again_measures_nothing_and_a_further_count_only_its_own(
    planted: Plant, names: Path, tmp_path: Path
) -> None:
    scores = HeadScores(planted.model.layout, torch.arange(8.0).double().numpy(), "by hand")

    def measured(**how: Any) -> dict[str, int]:
        with Store(tmp_path / "store.sqlite") as store:
            lab = Lab(store=store)
            how = {"include_path": str(names), "seeds": 1, "series": ("top",), "lab": lab, **how}
            benchmarks(planted.model, ["chosen", "named"], scores, **how)
            return lab.measured

    prompts = len({example.prompt for example in planted.task})
    each, none = {"value": 3 * prompts, "text": prompts}, {"value": 0, "text": 0}
    assert measured(counts=[2]) == {name: 2 * count for name, count in each.items()}
    assert measured(counts=[2]) == none
    assert measured(counts=[2, 3]) == each
    assert measured(counts=[2], limit=5) == none


def test_the_command_writes_a_folder_that_verifies(
    planted: Plant,
    names: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "load_model", lambda *_, **__: planted.model)
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    scores = HeadScores(
        planted.model.layout, torch.tensor([0, 9, 0, 0, 8, 0, 0, 0.0]).double().numpy(), "hand"
    )
    scores.save(tmp_path / "scores.json")
    asked = ["lm-eval", "--tasks", "chosen", "named", "--include-path", str(names), "--quiet"]
    asked += ["--scores", str(tmp_path / "scores.json"), "--counts", "2", "6", "--seeds", "2"]
    asked += ["--store", str(tmp_path / "store.sqlite"), "--out", str(tmp_path / "out")]
    assert main([*asked, "--dry-run", "--json"]) == 0
    ahead = json.loads(capsys.readouterr().out)
    assert main([*asked, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(r["series"], r["count"]) for r in rows} >= {("top", 6), ("random", 2)}
    with Store(tmp_path / "store.sqlite") as store:
        kept = store.summary()
    assert {row.task for row in kept} >= {"lm-eval: chosen", "lm-eval: named"}
    assert ahead["values"] == sum(r.values for r in kept if r.metric == "signed_logprob")
    assert main([*asked, "--dry-run", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["values"], again["texts"], again["tokens"]) == (0, 0, 0)
    found = verify(tmp_path / "out")
    assert found.differences == ()
    assert found.numbers > 100
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (
        "RandomK at 6 heads is left out: only 2 of 8 heads are outside the top 6." in run["notes"]
    )
    assert {"figure.png", "values.csv.gz", "report.html"} <= {*run["files"]}
    assert main(["verify", str(tmp_path / "out")]) == 0
    table = tmp_path / "out" / "curves.csv"
    table.write_text(table.read_text().replace("chosen,acc,top,2,0.0", "chosen,acc,top,2,0.5"))
    assert "curves.csv, row" in verify(tmp_path / "out").differences[0]


def test_a_group_is_one_benchmark_whose_parts_are_resampled_too(
    writer: Model, folder: Path
) -> None:
    how: dict[str, Any] = {"include_path": str(folder), "lab": Lab(store=None), "seeds": 1}
    study = benchmarks(writer, ["both"], HEADS, series=("top",), **how)
    assert {row["n"] for row in study.rows} == {12}
    assert study.values is not None
    (first, *_, last) = study.values.examples(model="writer", task="both")
    assert (first, last) == (("places/0", "places", "places/0"), ("shots/5", "shots", "shots/5"))
    assert any("The whole model is at chance: both, acc, " in note for note in study.notes)


def test_lm_eval_finds_the_registered_model_and_its_heads(planted: Plant, names: Path) -> None:
    def run(**how: Any) -> float:
        arguments = {"model": planted.model, "lab": Lab(store=None), **how}
        found = evaluated("headcount", names, "chosen", model_args=arguments)
        assert found["config"]["model_name"] == planted.model.name
        return float(found["results"]["chosen"]["acc,none"])

    assert run() == 1
    assert run(heads="0.1 1.0") == 0
    assert run(heads="0.1 1.0", keep=True) == 1
    with pytest.raises(HeadcountError, match=r"the number 0\.1, in which 3\.1 and 3\.10 .* quotes"):
        run(heads=0.1)


def test_a_prompt_that_is_asked_for_again_is_sampled_with_another_seed(
    writer: Model, folder: Path
) -> None:
    lm = HeadcountLM(writer, lab=Lab(store=None))
    found = evaluated(lm, folder, "sampled")["samples"]["sampled"]
    assert [len(one["resps"][0]) for one in found] == [3] * 6
    assert all(len({*one["resps"][0]}) > 1 for one in found)
    assert evaluated(lm, folder, "sampled")["samples"]["sampled"][0]["resps"] == found[0]["resps"]


def test_nothing_is_left_on_the_model(writer: Model, folder: Path) -> None:
    before, pad = writer.identity, writer.tokenizer.pad_token_id
    evaluated(HeadcountLM(writer, HEADS, lab=Lab(store=None)), folder, "places")
    writer.notice_changes()
    assert writer.identity == before
    assert writer.tokenizer.pad_token_id == pad
    assert not writer.hooked


def test_documents_become_a_task_with_all_their_choices(planted: Plant, names: Path) -> None:
    task = make_task("lm-eval", planted.model, benchmark="chosen", include_path=str(names))
    (first, *_), own = task.examples, planted.task.examples[0]
    assert len(task) == 12
    assert (first.prompt, first.target) == (own.prompt, own.target)
    assert first.foils == (own.foils[0], " nobody")
    trained = {"benchmark": "chosen", "docs": "training", "include_path": str(names)}
    assert len(make_task("lm-eval", planted.model, **trained)) == 8
    assert len(make_task("lm-eval", planted.model, **trained, n=5)) == 5


def test_a_study_runs_on_a_benchmark(planted: Plant, names: Path) -> None:
    study = run_study(
        "silent-heads",
        planted.model,
        tasks=["lm-eval"],
        task_settings={"benchmark": "chosen", "include_path": str(names)},
        scores=["output-norm"],
        shares=[25],
        n=6,
        ranked=4,
        seeds=1,
        lab=Lab(store=None),
    )
    assert {row["task"] for row in study.rows} == {"lm-eval"}
    whole = [row for row in study.rows if row["series"] == "whole" and row["metric"] == "accuracy"]
    assert [row["value"] for row in whole] == [1.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("beams", r"beams asks for the decoding setting num_beams, which headcount does not have"),
        ("endless", r"endless asks for 99 new tokens, and writer reads 64 in all: lower max_gen"),
        ("rolled", r"rolled scores whole texts, and headcount lm-eval scores choices"),
        ("place", r'lm-eval has no benchmark "place".* Did you mean "places"\?'),
    ],
)
def test_benchmarks_that_cannot_be_run_are_refused_by_name(
    writer: Model, folder: Path, name: str, message: str
) -> None:
    with pytest.raises(HeadcountError, match=message):
        benchmarks(writer, [name], HEADS, include_path=str(folder), lab=Lab(store=None))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"Name the benchmark: benchmark=NAME"),
        (
            {"benchmark": "written"},
            r"written is no task of examples with choices behind one prompt",
        ),
        ({"benchmark": "places", "docs": "validation"}, r"places has no validation documents"),
        ({"benchmark": "shots", "docs": "training"}, r"would stand in front of themselves"),
        ({"benchmark": "places", "docs": "all"}, r'There is no kind of documents "all"'),
    ],
)
def test_documents_that_make_no_task_are_refused(
    writer: Model, folder: Path, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(HeadcountError, match=message):
        make_task("lm-eval", writer, include_path=str(folder), **settings)


def test_a_task_file_that_is_wrong_is_named(tmp_path: Path, writer: Model) -> None:
    choosing(tmp_path, "broken", [{"text": "Then", "choices": ["a", "b"], "label": 0}])
    text = (tmp_path / "broken.yaml").read_text()
    (tmp_path / "broken.yaml").write_text(text.replace("broken-test", "missing"))
    with pytest.raises(HeadcountError, match=r"Cannot load the benchmark broken \(.*missing.*\)"):
        load_benchmarks(["broken"], str(tmp_path))


def test_prompts_that_cannot_be_made_are_told_in_a_sentence(tmp_path: Path, writer: Model) -> None:
    documents = [{"n": n, "choices": ["a", "b"], "label": 0} for n in (1, 0)]
    choosing(tmp_path, "divided", documents, doc_to_text="{{1 // n}}")
    how: dict[str, Any] = {"include_path": str(tmp_path), "lab": Lab(store=None)}
    with pytest.raises(HeadcountError, match=r"make the prompts of divided \(.* by zero\)"):
        benchmarks(writer, ["divided"], HEADS, **how)


def test_without_lm_eval_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    assert main(["lm-eval", "--tasks", "arc_easy", "--heads", "3.4"]) == 2
    assert capsys.readouterr().err == (
        "headcount: Standard benchmarks need lm-eval: run pip install 'headcount[lm-eval]'.\n"
    )
