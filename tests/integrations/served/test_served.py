"""Sweeps on a server: the values of this process, read back from adapters over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import tiny_model
from tiny_server import TinyServer, running
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, Model, Store, curve, evaluate, load_model, rank
from headcount.engine.measure.head_sets import HeadSets
from headcount.integrations.served import Served, client
from headcount.metrics import METRICS
from headcount.models.adapter_folder import export_adapters
from headcount.tasks import Task

HEAD_SETS: dict[str, Any] = {
    "whole": [],
    "two-off": ["0.1", "1.2"],
    "half": np.where(np.arange(12) == 3, 0.5, 1),
    "only": ~np.isin(np.arange(12), [0, 1, 2, 4, 9]),
}
METRICS_SERVED = ("logprob", "logprob_per_token", "logprob_difference", "choice", "accuracy")
BASE = "org/tiny"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "tiny"
    tiny_model("llama", num_hidden_layers=3).save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def local(checkpoint: Path) -> Model:
    return load_model(checkpoint, device="cpu")


@pytest.fixture
def adapters(local: Model, tmp_path: Path) -> Path:
    sets = {name: heads for name, heads in HEAD_SETS.items() if name != "whole"}
    return export_adapters(local, sets, tmp_path / "adapters", base=BASE).path


@pytest.fixture
def server(local: Model, adapters: Path) -> Iterator[TinyServer]:
    with running(TinyServer(BASE, local.module, local.tokenizer, adapters)) as served:
        yield served


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSES", (0.01, 0.01))


def lab_of(served: Served, **how: Any) -> Lab:
    return Lab(executor=served, progress=False, **{"store": None, **how})


def several_answers() -> Task:
    """Answers of one token and of several, some of which share all but the last."""
    first = replace(toy_task(n=1).examples[0], target=" ba", also=(" be", " da de"), foils=(" bi",))
    return Task(
        "several", 1, (first, replace(first, id="e2", content="z", foils=(" do", " ba bo")))
    )


@pytest.mark.parametrize("form", ["vllm", "echo"])
@pytest.mark.parametrize("task", [toy_task(n=6), several_answers()], ids=lambda task: task.name)
def test_the_values_are_those_of_this_process(
    form: str, task: Task, server: TinyServer, local: Model, checkpoint: Path
) -> None:
    server.form = form
    served = Served(server.url, server.adapters, in_flight=4)
    model = served.model(checkpoint)
    for metric in METRICS_SERVED:
        if metric == "logprob_per_token" and task.name == "several":
            continue  # it counts one right answer only
        how = {"metric": metric, "split": "all"}
        ours = evaluate(local, task, HEAD_SETS, lab=Lab(store=None), **how)
        theirs = evaluate(model, task, HEAD_SETS, lab=lab_of(served), **how)
        np.testing.assert_allclose(theirs.values, ours.values, atol=2e-5)
        assert theirs.metric is ours.metric
    assert server.most_at_once > 1
    assert {body["model"] for body in server.asked} == {BASE, "two-off", "half", "only"}


def test_texts_are_those_of_this_process(
    server: TinyServer, local: Model, checkpoint: Path
) -> None:
    task = replace(toy_task(n=6), stop=(" ba",), max_new_tokens=5)
    served = Served(server.url, server.adapters)
    how = {"metric": "exact_match", "split": "all"}
    ours = Lab(store=None).write(sweep_of(local, task).writing())
    theirs = lab_of(served).write(sweep_of(served.model(checkpoint), task).writing())
    assert theirs.texts.tolist() == ours.texts.tolist()
    assert len({*theirs.texts.ravel()}) > 3
    np.testing.assert_array_equal(theirs.finished, ours.finished)
    scored = evaluate(served.model(checkpoint), task, HEAD_SETS, lab=lab_of(served), **how)
    expected = evaluate(local, task, HEAD_SETS, lab=Lab(store=None), **how)
    np.testing.assert_array_equal(scored.values, expected.values)


def sweep_of(model: Model, task: Task) -> Any:
    from headcount.engine.measure.sweep import Sweep

    table = HeadSets.of(HEAD_SETS, model.layout)
    return Sweep(model, task, METRICS["exact_match"], table, "all")


def test_a_curve_and_a_ranking_on_the_server_alone(
    server: TinyServer, local: Model, checkpoint: Path
) -> None:
    """Adapters are written as the sweeps ask for them, from the checkpoint's projections alone."""
    task = toy_task(n=8)
    served = Served(server.url, server.adapters, write=True)
    model, lab = served.model(checkpoint), lab_of(served)
    by_server = rank(model, task, "ablation", metric="logprob", lab=lab)
    here = rank(local, task, "ablation", metric="logprob", lab=Lab(store=None))
    np.testing.assert_allclose(by_server.values, here.values, atol=5e-5)
    drawn = {"counts": [0, 2], "series": ["top", "random"], "seeds": 2, "metric": "logprob"}
    curves = [
        curve(m, task, s, lab=one, **drawn)
        for m, s, one in ((model, here, lab), (local, here, Lab(store=None)))
    ]
    values = [[point.value for point in one.points] for one in curves]
    np.testing.assert_allclose(*values, atol=2e-5)


def test_a_server_that_dies_and_comes_back(
    server: TinyServer, local: Model, checkpoint: Path, tmp_path: Path
) -> None:
    task, store = toy_task(n=6), Store(tmp_path / "store.sqlite")
    asked = {"metric": "logprob", "split": "all"}
    server.dies_after = 9
    served = Served(server.url, server.adapters, in_flight=2)
    model = served.model(checkpoint)
    with pytest.raises(HeadcountError, match=r"No server answers .* answers came before; run the"):
        evaluate(model, task, HEAD_SETS, lab=lab_of(served, store=store), **asked)
    before = len(server.asked)
    with running(replace(server, dies_after=None, asked=[], url="")) as again:
        served = Served(again.url, again.adapters, in_flight=2)
        model = served.model(checkpoint)
        lab = lab_of(served, store=store)
        cost = lab.cost([sweep_of(model, task)])
        assert "on this machine" not in str(cost)
        values = evaluate(model, task, HEAD_SETS, lab=lab, **asked)
        total = values.table.size
        kept = total - lab.measured["value"]
        assert 4 <= kept < total
        # Each value once, and two requests to see that adapters act.
        assert len(again.asked) == total - kept + 2
        assert before <= kept + 2 + 2  # those under way when it died are asked again
    ours = evaluate(local, task, HEAD_SETS, lab=Lab(store=None), **asked)
    np.testing.assert_allclose(values.values, ours.values, atol=2e-5)
    # The values of a server are kept apart from those of this process.
    mine = Lab(store=store, progress=False)
    evaluate(local, task, [], lab=mine, **asked)
    assert mine.measured["value"] == 6


def test_a_busy_server_is_asked_again(server: TinyServer, checkpoint: Path) -> None:
    server.busy = 2
    served = Served(server.url, server.adapters, in_flight=1)
    how = {"metric": "logprob", "split": "all"}
    values = evaluate(served.model(checkpoint), toy_task(n=2), [], lab=lab_of(served), **how)
    assert np.isfinite(values.values).all()


def refused(text: str, server: TinyServer, checkpoint: Path, **how: Any) -> None:
    def ask() -> None:
        served = Served(server.url, server.adapters, **how.pop("served", {}))
        model = how.pop("model", None) or served.model(checkpoint)
        chosen = {"metric": "logprob", **how}
        evaluate(model, toy_task(n=4, targets=(1,)), ["0.1", "1.2"], lab=lab_of(served), **chosen)

    with pytest.raises(HeadcountError, match=text) as error:
        ask()
    assert "\n" not in str(error.value)


def test_what_is_refused(server: TinyServer, local: Model, checkpoint: Path) -> None:
    expect = [
        ("reads logits, .* logprob_difference, which is", {"metric": "logit_difference"}),
        ("ablation corrupted adds an output .* no LoRA", {"ablation": "corrupted"}),
        ("acts at all positions", {"positions": "last"}),
        ("writes greedily", {"metric": "exact_match", "scope": "decode"}),
        ("was loaded here, and values of a server are kept apart", {"model": local}),
        ('no model "other" .it has: org/tiny.', {"served": {"base": "other"}}),
        ("lacks .name.", {"served": {"names": "adapter"}}),
        ("At least one request", {"served": {"in_flight": 0}}),
    ]  # fmt: skip
    for text, how in expect:
        refused(text, server, checkpoint, **how)
    assert server.asked == []


def test_a_server_that_ignores_adapters(server: TinyServer, checkpoint: Path) -> None:
    server.ignores_adapters = True
    refused("the very same log-probabilities with the adapter two-off", server, checkpoint)


def test_a_server_without_logprobs(server: TinyServer, checkpoint: Path) -> None:
    server.form = "none"
    refused("gives no log-probabilities of the tokens", server, checkpoint)


def test_an_adapter_that_the_server_does_not_know(server: TinyServer, checkpoint: Path) -> None:
    config = server.adapters / "two-off" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": "x"}))
    refused('does not serve "two-off" .*start the server with this', server, checkpoint)


def test_a_key(server: TinyServer, checkpoint: Path) -> None:
    server.key = "secret"
    refused("refuses access .401, Unauthorized.: give its api_key", server, checkpoint)
    served = Served(server.url, server.adapters, api_key="secret")
    assert "secret" not in repr(served.client)
    assert served.base == BASE


def test_a_head_set_without_an_adapter(server: TinyServer, checkpoint: Path) -> None:
    served = Served(server.url, server.adapters)
    model, lab = served.model(checkpoint), lab_of(served)
    with pytest.raises(HeadcountError, match=r"1 head set of 2 have no adapter .* is off-2_2"):
        evaluate(model, toy_task(n=4), [["2.2"], []], metric="logprob", lab=lab)
    served = Served(server.url, server.adapters, write=True, max_rank=16)
    with pytest.raises(HeadcountError, match=r"needs an adapter of rank 32 .2 heads of 16 numbers"):
        evaluate(model, toy_task(n=4), [["2.2", "2.3"]], metric="logprob", lab=lab_of(served))


def test_no_server(adapters: Path, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match=r"No server answers at http://127.0.0.1:9 .*refused"):
        Served("http://127.0.0.1:9/v1/", adapters)
    with pytest.raises(HeadcountError, match="not the address of a server"):
        Served("localhost:8000", adapters)
    with pytest.raises(HeadcountError, match=r"holds no head-sets.jsonl"):
        Served("http://127.0.0.1:9", tmp_path)


def test_what_needs_the_model(server: TinyServer, checkpoint: Path) -> None:
    served = Served(server.url, server.adapters)
    model = served.model(checkpoint)
    with pytest.raises(HeadcountError, match="weights of tiny are not loaded"):
        rank(model, toy_task(n=4), "attribution", lab=lab_of(served))
    with pytest.raises(HeadcountError, match="weights of tiny are not loaded"):
        evaluate(model, toy_task(n=4), [], metric="logprob", lab=Lab(store=None))
    with pytest.raises(HeadcountError, match="weights of tiny are not loaded"), torch.no_grad():
        model.module(input_ids=torch.ones(1, 3, dtype=torch.long))
