"""What a session answers: right numbers, the newest inquiry first, failures as sentences."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import torch
from explorer.running import answers, tiny_session
from markupsafe import escape
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, HeadLayout, HeadScores, HeadSet, generate, wrap
from headcount.explorer.inquiries import MOST_WAITING, Inquiries, Inquiry
from headcount.explorer.prompts import PromptPasses
from headcount.explorer.reading import activity, writes
from headcount.explorer.scores import Scores
from headcount.explorer.session import ExplorerSession
from headcount.explorer.state import ExplorerState
from headcount.explorer.texts import pieces
from headcount.models.gate import gating
from headcount.rankings.causal_gates import fit
from headcount.rankings.causal_gates.result import CausalGates
from headcount.report.page import short
from headcount.sparse.make_sparse import make_sparse


@pytest.fixture(scope="module")
def session() -> Iterator[ExplorerSession]:
    started = tiny_session()
    yield started
    started.close()


@pytest.fixture
def state(session: ExplorerSession) -> dict[str, Any]:
    return {**vars(session.first_state()), "heads": ["1.0", "2.3"]}


def data_of(events: list[tuple[str, Any]]) -> Any:
    assert events[-1][0] == "done", events[-1]
    return events[-2][1]


@pytest.mark.parametrize("gate", [0.0, 0.5, 2.0])
def test_probabilities_are_those_of_a_plain_pass(
    session: ExplorerSession, state: dict[str, Any], gate: float
) -> None:
    found = data_of(answers(session, "probabilities", state={**state, "gate": gate}))
    model, layout = session.model, session.model.layout
    chosen = ExplorerState.of({**state, "gate": gate}, layout)
    ids = torch.tensor([session.passes(chosen).encoded.prompt])
    rows = np.stack([np.ones(layout.total), chosen.gates(layout), *chosen.controls(layout, 5)[0]])
    plain = []
    for gates in torch.from_numpy(rows).float():
        with torch.no_grad(), gating(model.module, model.sites, gates[None]):
            plain.append(model.module(input_ids=ids).logits[0, -1].softmax(-1))
    for row in found["rows"]:
        expected = [float(p[row["id"]]) for p in plain]
        assert [row["whole"], row["set"], *row["random"]] == pytest.approx(expected, abs=1e-5)
    assert [row["role"] for row in found["rows"][:2]] == ["target", "foil"]
    assert found["divergence"][0] == 0
    assert len(found["difference"]) == 7


def test_the_random_control_comes_with_the_first_answer(
    session: ExplorerSession, state: dict[str, Any]
) -> None:
    events = answers(session, "probabilities", state=state)
    assert [name for name, _ in events] == ["probabilities", "probabilities", "done"]
    assert [len(data["rows"][0]["random"]) for _, data in events[:2]] == [1, 5]


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_a_text_is_what_generate_writes(
    session: ExplorerSession, state: dict[str, Any], ablation: str
) -> None:
    asked = {**state, "ablation": ablation}
    events = answers(session, "text", state=asked, new=6)
    assert len(events) > 2  # token by token
    final = data_of(events)
    if ablation == "zero":
        chosen = ExplorerState.of(asked, session.model.layout)
        prompt = [session.passes(chosen).encoded.prompt] * 2
        gates = np.stack([np.ones(12, dtype=np.float32), chosen.gates(session.model.layout)])
        texts = generate(session.model, prompt, gates, max_new_tokens=6, progress=False)
        assert ["".join(final[name]) for name in ("whole", "set")] == [t.text for t in texts]


def test_a_text_of_a_model_without_a_cache_comes_at_once() -> None:
    model = wrap(tiny_model("gemma3_text"), toy_tokenizer(), name="windows")
    assert not model.fast_paths.cache
    with_windows = tiny_session(model)
    state = vars(with_windows.first_state())
    events = answers(with_windows, "text", state={**state, "heads": ["0.1"]}, new=3)
    with_windows.close()
    assert [name for name, _ in events] == ["text", "done"]


def test_a_text_lets_a_click_pass_and_goes_on(
    session: ExplorerSession, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = data_of(answers(session, "text", state=state, new=8))
    told: list[str] = []
    over = threading.Event()

    def on_text(name: str, data: Any) -> None:
        told.append(name)
        if told == ["text"]:
            asked = {"state": {**state, "selected": "2.3"}}
            session.ask("page", "why", asked, lambda name, _: told.append(name))
        if name == "text":
            texts.append(data)
        if name in ("done", "failed"):
            over.set()

    texts: list[Any] = []
    session._texts.clear()
    session.ask("page", "text", {"state": state, "new": 8}, on_text)
    assert over.wait(60)
    assert told[:4] == ["text", "why", "done", "text"]  # not after the whole text
    assert told[-1] == "done"
    assert texts[-1] == alone


def test_pieces_wait_for_whole_characters(session: ExplorerSession) -> None:
    passes = session.passes(session.first_state())
    ids = passes.encoded.prompt
    assert "".join(pieces(passes, [ids])[0]) == session.model.tokenizer.decode(ids)


def test_what_heads_write_adds_up_to_the_block_s_output(session: ExplorerSession) -> None:
    model = session.model
    site = model.sites[1]
    z = torch.randn(5, site.width)
    with torch.no_grad():
        whole = model.module.get_submodule(site.module)(z)
        parts = writes(model, site, z, range(site.heads))
    assert parts.sum(0).numpy() == pytest.approx(whole.numpy(), abs=1e-4)


def test_why_shows_attention_and_words(session: ExplorerSession, state: dict[str, Any]) -> None:
    found = data_of(answers(session, "why", state={**state, "selected": "2.3"}))
    tokens = len(found["tokens"])
    assert np.array(found["attention"]).shape == (tokens, tokens)
    assert np.array(found["attention"]).sum(1) == pytest.approx(np.ones(tokens), abs=1e-2)
    assert len(found["words"]) == len(found["norms"]) == tokens
    assert len(found["words"][0]["up"]) == 8
    norms = activity(session.passes(session.first_state()))
    assert np.mean(found["norms"]) == pytest.approx(norms[11], abs=1e-3)


def test_a_ranking_comes_with_progress_and_then_tops_are_known(
    session: ExplorerSession, state: dict[str, Any]
) -> None:
    events = answers(session, "rank", state=state, ranking="attribution")
    assert {"done": 0, "of": 6} in [data for name, data in events if name == "progress"]
    scores = data_of(events)["attribution"]
    assert len(scores["values"]) == len(scores["low"]) == 12
    chosen = answers(session, "choose", state={**state, "colour": "attribution"}, text="top 3")
    best = np.argsort(-np.array(scores["values"]))[:3]
    names = [str(session.model.layout.head(int(n))) for n in sorted(best)]
    assert data_of(chosen)["heads"] == names


def test_trials_stand_beside_random_heads_and_compare(
    session: ExplorerSession, state: dict[str, Any]
) -> None:
    first = data_of(answers(session, "trial", state=state, metric="logprob"))
    second = data_of(answers(session, "trial", state={**state, "keep": True}, metric="logprob"))
    for trial in (first, second):
        for name in ("whole", "set", "random", "against_random"):
            found = trial[name]
            assert found["low"] <= found["value"] <= found["high"]
        assert len(trial["draws"]) == 5
    told = data_of(answers(session, "compare", one=first["number"], other=second["number"]))
    gap = first["set"]["value"] - second["set"]["value"]
    assert told["difference"]["value"] == pytest.approx(gap)
    page = data_of(answers(session, "findings", state=state, metric="logprob"))["html"]
    assert "without 1.0 2.3" in page
    assert "only 1.0 2.3" in page
    assert "<script" not in page
    for _ in range(2):  # the second time it is known
        asked = {**state, "colour": "attribution"}
        events = answers(session, "curve", state=asked, metric="logprob")
        drawn = data_of(events)
    assert len(events) == 2
    assert {point["series"] for point in drawn["points"]} == {"top", "matched"}
    assert drawn["name"] == "attribution (ablation zero)"
    page = data_of(answers(session, "findings", state=asked, metric="logprob"))["html"]
    assert "The curve along attribution (ablation zero)" in page
    assert "Crosses mark the head set" in page


def test_a_measurement_tells_how_many_values_are_done(
    session: ExplorerSession, state: dict[str, Any]
) -> None:
    events = answers(session, "trial", state={**state, "heads": ["0.3"]}, metric="accuracy")
    steps = [data for name, data in events if name == "progress"]
    assert steps[0]["done"] == 0
    assert steps[-1]["done"] == steps[-1]["of"] > 7  # seven head sets on each example
    assert [step["done"] for step in steps] == sorted(step["done"] for step in steps)


def test_learned_gates_let_a_click_pass_within_an_update(
    session: ExplorerSession, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "PAUSE", 0)
    told: Queue[tuple[str, Any]] = Queue()

    def emit(name: str, data: Any) -> None:
        told.put((name, data))

    ranking = session.ask("page", "rank", {"state": state, "ranking": "facilitation"}, emit)
    name, data = told.get(timeout=60)
    assert name == "progress"
    assert data["of"] > 100  # updates
    events = answers(session, "probabilities", state={**state, "heads": ["0.2"]})
    assert events[-1][0] == "done"
    assert session.inquiries.busy  # the ranking goes on
    ranking.cancel()
    while name != "cancelled":
        name, _ = told.get(timeout=60)
    assert not session.model.hooked


@pytest.mark.parametrize(
    ("kind", "changes", "asked", "said"),
    [
        ("probabilities", {"prompt": ""}, {}, "has no tokens"),
        ("probabilities", {"prompt": "pe " * 300}, {}, "reads at most 64"),
        ("probabilities", {"prompt": "a" * 4001}, {}, "4,001 characters"),
        ("probabilities", {"target": "a" * 201}, {}, "at most 200 characters"),
        ("probabilities", {"foils": ["a"] * 9}, {}, "at most 8 foils"),
        ("probabilities", {"foils": [" ko"], "target": " ko"}, {}, "start with the same token"),
        ("probabilities", {"ablation": "corrupted", "corrupted": "pe"}, {}, "give it as many"),
        ("probabilities", {"ablation": "corrupted", "corrupted": ""}, {}, "needs a corrupted"),
        ("text", {"ablation": "corrupted"}, {}, "no outputs for new tokens"),
        ("text", {}, {"new": 65}, "1 to 64 new tokens"),
        ("text", {}, {"new": "9"}, "1 to 64 new tokens"),
        ("why", {"selected": ""}, {}, "Select a head"),
        ("rank", {}, {"ranking": "os.system"}, "no ranking"),
        ("trial", {}, {"metric": "comet"}, "comet"),
        ("trial", {"heads": []}, {}, "this is the whole model"),
        ("compare", {}, {"one": 1, "other": 99}, "number 99"),
        ("compare", {}, {"one": "1", "other": None}, "Choose two"),
        ("curve", {"colour": "activity"}, {}, "colour the map by one first"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(
    session: ExplorerSession,
    state: dict[str, Any],
    kind: str,
    changes: dict[str, Any],
    asked: dict[str, Any],
    said: str,
) -> None:
    end, data = answers(session, kind, state={**state, **changes}, **asked)[-1]
    assert end == "refused"
    assert said in data["text"]


@pytest.mark.parametrize(
    "kind", ["start", "example", "choose", "same", "rank", "trial", "findings", "costs"]
)
def test_a_prompt_that_is_too_long_blocks_nothing_else(
    session: ExplorerSession, state: dict[str, Any], kind: str
) -> None:
    asked = {"text": "layer 1", "number": 2, "ranking": "random", "metric": "accuracy"}
    long = {**state, "prompt": "a" * 5000, "foils": ["a"] * 9}
    found = data_of(answers(session, kind, state=long, **asked))
    if kind == "findings":
        assert "The prompt has 5,000 characters" in found["html"]


def test_what_needs_no_computing_is_refused_at_once(
    session: ExplorerSession, state: dict[str, Any]
) -> None:
    held = threading.Event()
    busy = session.inquiries.ask("page", "rank", 0, lambda _: held.wait(60), lambda *_: None)
    none = {**state, "heads": [], "colour": "activity"}
    for kind, said in (("trial", "No head is off"), ("curve", "goes along a ranking")):
        assert said in answers(session, kind, state=none)[0][1]["text"]
    assert session.inquiries.busy
    held.set()
    busy.cancel()


def test_activity_is_ranked_as_it_colours_the_map(
    session: ExplorerSession, state: dict[str, Any]
) -> None:
    asked = {**state, "colour": "activity"}
    values = data_of(answers(session, "activity", state=asked))["values"]
    chosen = data_of(answers(session, "choose", state=asked, text="top 3"))["heads"]
    best = sorted(np.argsort(-np.array(values), kind="stable")[:3])
    assert chosen == [str(session.model.layout.head(int(number))) for number in best]


def test_random_heads_in_words_are_drawn_anew(
    session: ExplorerSession, state: dict[str, Any]
) -> None:
    drawn = [
        data_of(answers(session, "choose", state=state, text="random 5", draw=n))["heads"]
        for n in (1, 2, 1)
    ]
    assert drawn[0] == drawn[2] != drawn[1]


def test_only_rankings_that_can_run_are_offered(session: ExplorerSession) -> None:
    costs = data_of(answers(session, "costs"))
    assert {"random", "attribution", "patching"} <= set(costs)
    assert not {"contrast", "probe"} & set(costs)  # they need a setting, or another task
    assert costs["facilitation"].startswith("about ")


def test_a_choice_without_an_alternative_says_so(
    session: ExplorerSession, state: dict[str, Any]
) -> None:
    for changes, same in (
        ({}, False),
        ({"heads": [], "keep": True}, True),
        ({"heads": [str(head) for head in session.model.layout]}, True),
    ):
        found = data_of(answers(session, "probabilities", state={**state, **changes}))
        assert found["same"] is same


def test_findings_have_the_text_and_the_range_of_the_draws(
    session: ExplorerSession, state: dict[str, Any]
) -> None:
    written = data_of(answers(session, "text", state=state, new=4))
    page = data_of(answers(session, "findings", state=state))["html"]
    assert escape("".join(written["set"])) in page
    draws = data_of(answers(session, "probabilities", state=state))["rows"][0]["random"]
    assert f"({short(min(draws))} to {short(max(draws))})" in page
    other = data_of(answers(session, "findings", state={**state, "heads": ["0.0"]}))["html"]
    assert "(one draw)" not in other


def test_a_session_starts_with_a_head_set_and_reads_another() -> None:
    layout = HeadLayout((4, 4, 4))
    started = tiny_session(heads=HeadSet("0.1", keep=True, gate=0.5, layout=layout))
    state = data_of(answers(started, "start"))["state"]
    assert (state["heads"], state["keep"], state["gate"]) == (("0.1",), True, 0.5)
    file = data_of(answers(started, "same", state=state))["file"]
    assert HeadSet.from_json(file) == started.heads
    opened = data_of(answers(started, "open", text=json.dumps(file)))
    assert opened == {"heads": ("0.1",), "keep": True, "gate": 0.5}
    other = HeadSet("0.1", layout=HeadLayout((2,))).to_json()
    for text, said in (
        ("[", "not a file of a head set"),
        (json.dumps(other), "for a model with 2 heads"),
        (json.dumps({**file, "gate": 5}), "The gate is a number from 0 to 2, not 5"),
    ):
        assert said in answers(started, "open", text=text)[0][1]["text"]
    started.close()
    with pytest.raises(HeadcountError, match="for a model with 2 heads"):
        tiny_session(heads=HeadSet("0.1", layout=HeadLayout((2,))))


def test_a_session_that_ended_says_so() -> None:
    queue, held, ends = Inquiries(), threading.Event(), []
    queue.ask("a", "rank", 3, lambda _: held.wait(10), lambda *_: None)
    queue.ask("a", "text", 3, lambda _: None, lambda event, _: ends.append(event))
    threading.Timer(0.1, held.set).start()
    queue.close()
    assert ends == ["cancelled"]
    queue.ask("a", "text", 3, lambda _: None, lambda _, data: ends.append(data["text"]))
    assert ends[-1] == "The explorer has ended."


def test_a_crash_is_a_sentence_and_the_next_inquiry_is_answered(
    session: ExplorerSession, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any) -> None:
        raise ZeroDivisionError("somewhere\ndeep")

    monkeypatch.setattr(PromptPasses, "under", crash)
    end, data = answers(session, "probabilities", state=state)[-1]
    assert end == "failed"
    assert data["text"] == (
        "This computation failed (ZeroDivisionError: somewhere deep); the rest goes on."
    )
    monkeypatch.undo()
    assert answers(session, "probabilities", state=state)[-1][0] == "done"
    assert not session.model.hooked


def test_the_newest_inquiry_wins_and_urgent_ones_go_first() -> None:
    queue, held, told = Inquiries(), threading.Event(), []

    def wait(inquiry: Inquiry) -> None:
        while not held.wait(0.01):
            inquiry.pause()

    def tell(name: str) -> Any:
        return lambda inquiry: told.append(name)

    ends: dict[str, str] = {}
    over = threading.Event()

    def end(name: str) -> Any:
        def emit(event: str, _: Any) -> None:
            ends[name] = event
            if name == "later":
                over.set()

        return emit

    queue.ask("a", "rank", 3, wait, end("long"))
    queue.ask("a", "text", 2, lambda inquiry: tell("text")(inquiry), end("text"))
    for number in range(3):
        queue.ask("b", "trial", 4, tell(f"trial {number}"), end(f"trial {number}"))
    queue.ask("a", "probabilities", 0, lambda _: held.set(), end("quick"))
    queue.ask("c", "later", 5, tell("later"), end("later"))
    assert over.wait(10)
    queue.close()
    assert ends["long"] == ends["quick"] == ends["text"] == "done"
    assert told == ["text", "trial 2", "later"]
    assert ends["trial 0"] == ends["trial 1"] == "cancelled"


def test_an_inquiry_that_nobody_wants_any_more_stops() -> None:
    queue, ends, over = Inquiries(), [], threading.Event()

    def for_ever(inquiry: Inquiry) -> None:
        while True:
            inquiry.pause()

    def emit(event: str, _: Any) -> None:
        ends.append(event)
        over.set()

    inquiry = queue.ask("a", "text", 2, for_ever, emit)
    inquiry.cancel()
    assert over.wait(10)
    queue.close()
    assert ends == ["cancelled"]


def test_too_many_inquiries_are_refused() -> None:
    queue, held, ends = Inquiries(), threading.Event(), []
    queue.ask("x", "first", 0, lambda _: held.wait(10), lambda *_: None)
    for page in range(MOST_WAITING + 2):
        queue.ask(f"{page}", "text", 2, lambda _: None, lambda event, _: ends.append(event))
    assert "refused" in ends
    held.set()
    queue.close()


def test_scores_are_read_from_files_and_those_of_other_models_refused(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    layout = model.layout
    values = np.arange(8.0)
    own = HeadScores(layout, values, "by hand", {"model": "tiny", "task": "toy"})
    own.save(tmp_path / "own.json")
    HeadScores(layout, values, "other", {"model": "GPT-5"}).save(tmp_path / "other.json")
    gates = CausalGates(layout, np.ones((1, 8)), np.eye(8)[:1], {"task": "toy"})
    gates.save(tmp_path / "gates.json")
    read = Scores.read([tmp_path / "own.json", tmp_path / "gates.json"], "tiny", layout)
    assert {"by hand", "facilitation", "irrelevance", "interference"} == set(read.known)
    assert read.roles(model)["role: toy"] == ["facilitation"] + ["irrelevance"] * 7
    with pytest.raises(HeadcountError, match=r'of "GPT-5".*this is "tiny"'):
        Scores.read([tmp_path / "other.json"], "tiny", layout)


def test_a_session_without_a_task_still_shows_prompts() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    alone = ExplorerSession(model, None, store=None)
    start = data_of(answers(alone, "start"))
    assert start["task"] is None
    state = {**start["state"], "prompt": "pe pai", "heads": ["0.1"]}
    assert answers(alone, "probabilities", state=state)[-1][0] == "done"
    for kind in ("trial", "curve", "rank", "compare", "example"):
        end, data = answers(alone, kind, state=state)[-1]
        assert end == "refused"
        assert 'explore(model, "ioi")' in data["text"]
    same = data_of(answers(alone, "same", state=state))
    assert same["command"] == "headcount generate --model tiny '--prompt=pe pai' --heads 0.1"
    assert "ioi" not in same["python"]
    end, data = answers(alone, "probabilities", state={**state, "ablation": "mean"})[-1]
    assert "A mean is taken over the prompts of a task" in data["text"]
    alone.close()


def test_the_open_edges_of_a_sparse_model_colour_the_map() -> None:
    module = tiny_model("llama")
    make_sparse(module, bias=0.0)
    sparse = tiny_session(wrap(module, toy_tokenizer(), name="sparse"))
    start = data_of(answers(sparse, "start"))
    assert start["edges"]
    asked = {**start["state"], "colour": "open edges"}
    shares = data_of(answers(sparse, "activity", state=asked))["values"]
    sparse.close()
    assert len(shares) == 8
    assert all(0 <= share <= 1 for share in shares)
    assert min(shares) < 1


def test_a_task_without_foils_offers_no_metric_that_needs_them() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    plain = ExplorerSession(model, toy_task(12, foils=0), store=None)
    keys = [metric["key"] for metric in data_of(answers(plain, "start"))["metrics"]]
    plain.close()
    assert keys == ["accuracy", "logprob"]
