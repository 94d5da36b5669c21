"""Metrics over whole answers: every right answer counts, and foils have passes of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from slow import SlowLoop, projections
from test_evaluate import counted, soft_gates
from tiny import tiny_model
from toy import WORDS, toy_task, toy_tokenizer

from headcount import HeadcountError, Store, curve, evaluate, rank, wrap
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.lab import Lab
from headcount.metrics import METRICS, Metric, logit_metrics
from headcount.metrics.answers import answer_rows
from headcount.models.model import Model
from headcount.rankings import Ranking
from headcount.tasks import Example, Task, encode, make_task

WHOLE = [metric.key for metric in logit_metrics() if metric.combine is not None]


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama"), toy_tokenizer(), name="llama")


@pytest.fixture(scope="module")
def slow(model: Model) -> SlowLoop:
    return SlowLoop(model.module, projections(model.module, "llama"), model.layout.counts[0])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


def rich_task(n: int = 10, **settings: object) -> Task:
    """Answers of one to three tokens, several right and wrong ones, some with a common start."""
    task = toy_task(n, **settings)  # type: ignore[arg-type]
    examples = []
    for number, example in enumerate(task):
        a, b, c, d = WORDS[number : number + 4]
        examples.append(
            replace(
                example,
                target=f" {a} {b}" if number % 3 else f" {a}",
                also=(f" {a} {c}", f" {d}", f" {d} {d} {a}")[: number % 4],
                foils=(f" {a} {d}", f" {c}", f" {c} {a} {b}")[: 1 + number % 3],
            )
        )
    return replace(task, examples=tuple(examples))


@pytest.mark.parametrize("metric", WHOLE)
def test_equals_one_pass_for_each_answer(model: Model, slow: SlowLoop, metric: str) -> None:
    # Sums count no answer twice, so the plain loop needs answers that do not contain each other.
    task = rich_task()
    if metric == "logprob":
        kept = [replace(e, also=e.also[:2] if len(e.target.split()) > 1 else ()) for e in task]
        task = replace(task, examples=tuple(kept))
    gates = np.concatenate([soft_gates(model), np.ones((1, model.layout.total))])
    values = evaluate(model, task, gates, metric=metric, split="all").values
    expected = [
        [slow.whole_answers(e, row, slow.nothing())[metric] for e in encode(task, model.tokenizer)]
        for row in gates
    ]
    np.testing.assert_allclose(values, expected, atol=1e-4)


def test_corrupted_ablation_goes_with_every_answer(model: Model, slow: SlowLoop) -> None:
    task, gates = rich_task(), soft_gates(model, sets=1)
    values = evaluate(
        model, task, gates, metric="logprob_difference", ablation="corrupted", split="all"
    )
    expected = []
    for one in encode(task, model.tokenizer):
        best = []
        for answers in ((one.target, *one.also), one.foils):
            z0 = [slow.corrupted(replace(one, target=ids, foils=(), also=())) for ids in answers]
            both = zip(answers, z0, strict=True)
            best.append(max(float(slow.answer(one, i, gates[0], z)[0].sum()) for i, z in both))
        expected.append(best[0] - best[1])
    np.testing.assert_allclose(values.values[0], expected, atol=1e-4)


def test_an_answer_within_another_counts_once(model: Model) -> None:
    one = Example("0", "ba be", " da", also=(" da de", " de"))
    task = Task("inside", 1, (one,))
    tasks = [replace(task, examples=(replace(one, also=also),)) for also in ((" de",), ())]
    on = np.ones(model.layout.total)
    all_three, two, alone = (
        float(evaluate(model, some, on, metric="logprob", split="all").values[0, 0])
        for some in (task, *tasks)
    )
    assert all_three == two > alone


def greedy(model: Model, prompt: str, tokens: int) -> str:
    """What the model writes after a prompt."""
    ids = model.tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
    out = model.module.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
    return "".join(f" {word}" for word in model.tokenizer.decode(out[0, ids.shape[1] :]).split())


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_further_right_answer_makes_greedy_decoding_right(model: Model, tokens: int) -> None:
    """The target is wrong, and the model writes another right answer."""
    examples = []
    for example in toy_task(24):
        written = greedy(model, example.prompt, tokens)
        if len(written.split()) == tokens and " ti" not in written:  # some ids are no words
            also = (" to ta", written, " ta")
            examples.append(replace(example, target=" ti", foils=(), also=also))
    assert len(examples) > 8
    task = replace(toy_task(24), examples=tuple(examples))
    without = replace(task, examples=tuple(replace(e, also=()) for e in examples))
    on = np.ones(model.layout.total)
    for metric in ("accuracy", "exact_match"):
        limit = replace(task, max_new_tokens=tokens), replace(without, max_new_tokens=tokens)
        values = [evaluate(model, t, on, metric=metric, split="all").values for t in limit]
        np.testing.assert_array_equal(values[0], 1)
        np.testing.assert_array_equal(values[1], 0)
    # So does a whole curve, whose default is accuracy.
    drawn = curve(model, task, counts=[0], series=["top"])
    assert [point.value for point in drawn.points] == [1.0]


def test_pairs_that_begin_with_the_same_token_are_compared(model: Model, slow: SlowLoop) -> None:
    task = Task("same-start", 1, (Example("0", "ba be", " da de", (" da di", " da do du")),))
    (one,) = encode(task, model.tokenizer)
    expected = slow.whole_answers(one, np.ones(model.layout.total), slow.nothing())
    on = np.ones(model.layout.total)
    for metric in ("logprob_difference", "choice", "choice_per_token"):
        found = evaluate(model, task, on, metric=metric, split="all").values
        np.testing.assert_allclose(found, expected[metric], atol=1e-4)
    with pytest.raises(HeadcountError, match=r"start with the same token.*such as choice"):
        evaluate(model, task, on, metric="first_token_choice", split="all")


def test_one_token_metrics_refuse_longer_answers(model: Model) -> None:
    task = Task("long", 1, (Example("a", "ba be", " da", (" di do",)),))
    on = np.ones(model.layout.total)
    for metric in ("logit_difference", "mass_difference"):
        with pytest.raises(HeadcountError) as refused:
            evaluate(model, task, on, metric=metric, split="all")
        assert str(refused.value) == (
            f'The answer " di do" of example "a" has 2 tokens, and the metric {metric} compares '
            "answers of one token: choose logprob_difference, which compares whole answers, or "
            f"first_token_{metric}."
        )
        evaluate(model, task, on, metric=f"first_token_{metric}", split="all")


def test_metrics_that_cannot_count_several_answers_refuse_them(model: Model) -> None:
    task = Task("several", 1, (Example("a", "ba be", " da", also=(" do",)),))
    mine = Metric("mine", "Mine", METRICS["logprob_per_token"].function)
    for metric in ("logprob_per_token", mine):
        with pytest.raises(HeadcountError, match=r'"a" has several right answers, and the metric'):
            evaluate(model, task, np.ones(model.layout.total), metric=metric, split="all")
    some = replace(toy_task(8), examples=tuple(replace(e, also=(" to to",)) for e in toy_task(8)))
    with pytest.raises(HeadcountError, match="gates are learned for the target alone"):
        rank(model, some, "facilitation", updates=1, seeds=1)


def test_right_and_wrong_answers_of_equal_tokens_are_refused(model: Model) -> None:
    unknown = Task("unknown", 1, (Example("a", "", "da xx", ("da yy",), whole_text=True),))
    with pytest.raises(HeadcountError, match="have the same tokens, so the metric choice cannot"):
        evaluate(model, unknown, np.ones(model.layout.total), metric="choice", split="all")


def test_answers_of_one_token_share_a_pass(model: Model) -> None:
    words = tuple(f" {word}" for word in WORDS)
    example = Example("0", "ba be bi", words[0], words[30:60], also=words[1:30])
    encoded = encode(Task("many", 1, (example,)), model.tokenizer)
    assert len(answer_rows(METRICS["accuracy"], encoded).rows) == 1
    rows = answer_rows(METRICS["choice"], encoded).rows
    assert [(len(row.target), len(row.also)) for row in rows] == [(1, 29), (1, 29)]


# The store


def test_metrics_of_whole_answers_share_what_is_stored(model: Model, store: Store) -> None:
    task, gates = rich_task(), soft_gates(model)
    evaluate(model, task, gates, metric="choice", lab=Lab(store))
    fresh = {key: evaluate(model, task, gates, metric=key).values for key in WHOLE}
    with counted(model) as passes:
        for key in ("choice", "choice_per_token", "logprob_difference_per_token"):
            again = evaluate(model, task, gates, metric=key, lab=Lab(store)).values
            np.testing.assert_allclose(again, fresh[key], atol=1e-5)
    assert passes == []


def test_a_further_answer_costs_its_own_pass_and_changes_the_value(
    model: Model, store: Store
) -> None:
    task, gates = toy_task(4, targets=[2]), soft_gates(model)
    more = replace(
        task,
        examples=tuple(replace(e, also=(" to ta",), foils=(*e.foils, " ti tu")) for e in task),
    )
    for metric in ("logprob_difference", "logprob"):
        for one in (task, more, task):
            kept = evaluate(model, one, gates, metric=metric, lab=Lab(store), split="all").values
            fresh = evaluate(model, one, gates, metric=metric, split="all").values
            np.testing.assert_allclose(kept, fresh, atol=1e-5)
    lab = Lab(store)
    most = replace(more, examples=tuple(replace(e, foils=(*e.foils, " ka ka")) for e in more))
    evaluate(model, most, gates, metric="logprob_difference", lab=lab, split="all")
    assert lab.measured["value"] == len(most) * len(gates)
    exported = {row.metric for row in store.summary()}
    assert exported == {"answer_logprob", "logprob"}


def test_a_new_version_of_a_metric_is_measured_again(
    model: Model, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, on = toy_task(4), np.ones(model.layout.total)
    old = replace(METRICS["accuracy"], version=1)
    context = Ranking.of(model, task, "attribution").context
    assert context["metric_version"] == 2
    for metric in (old, METRICS["accuracy"]):
        lab = Lab(store)
        evaluate(model, task, on, metric=metric, lab=lab)
        assert lab.measured["value"] > 0


def test_the_forecast_counts_every_pass(model: Model, tmp_path: Path) -> None:
    from headcount.engine.measure.sweep import Sweep

    task = rich_task()
    gates = soft_gates(model)
    table = HeadSets.of(gates, model.layout)
    sweep = Sweep(model, task, METRICS["choice"], table, "all")
    lab = Lab(store=None)
    forecast = lab.cost([sweep])
    lab.measure(sweep)
    assert forecast.count("value") == lab.measured["value"] > len(task) * len(gates)


def test_head_sets_of_single_examples(model: Model) -> None:
    task, n = rich_task(8), 8
    gates = soft_gates(model, sets=n)
    entries = [HeadSetEntry("own", row, number) for number, row in enumerate(gates)]
    table = HeadSets.build(model.layout, entries, n)
    own = evaluate(model, task, table, metric="logprob_difference", split="all").of("own")[0]
    whole = evaluate(model, task, gates, metric="logprob_difference", split="all").values
    np.testing.assert_allclose(own, whole.diagonal(), atol=1e-4)


# Rankings by derivative


@pytest.mark.parametrize("metric", ["logprob", "logprob_difference"])
@pytest.mark.parametrize("ablation", ["zero", "corrupted"])
def test_integrated_gradients_add_up(model: Model, metric: str, ablation: str) -> None:
    """One example at a time, so that no answer overtakes another along the path."""
    task = rich_task(12)
    if metric == "logprob_difference":
        kept = tuple(replace(e, also=(), foils=e.foils[:1]) for e in task)
        task = replace(task, examples=kept)
    settings = {"metric": metric, "ablation": ablation}
    scores = rank(model, task, "integrated-gradients", **settings, steps=32)
    ends = np.stack([np.ones(model.layout.total), np.zeros(model.layout.total)])
    whole, none = evaluate(model, task, ends, split="ranking", **settings).values
    assert scores.samples is not None
    np.testing.assert_allclose(scores.samples.sum(1), whole - none, atol=5e-3)


def test_attribution_is_the_slope_of_what_is_measured(model: Model) -> None:
    task, step = rich_task(12), 1e-2
    scores = rank(model, task, "attribution", metric="logprob_difference_per_token")
    for head in (0, 5):
        gates = np.ones((2, model.layout.total))
        gates[:, head] = 1 - step, 1 + step
        metric = "logprob_difference_per_token"
        low, high = evaluate(model, task, gates, metric=metric, split="ranking").values
        assert scores.samples is not None
        np.testing.assert_allclose(scores.samples[:, head], (high - low) / (2 * step), atol=1e-2)


# Pairs of sentences


def sentences(path: Path, n: int = 12) -> Path:
    task = toy_task(n, targets=[3], lengths=[4, 6])
    pairs = [
        {
            "sentence_good": e.prompt + e.target,
            "sentence_bad": e.prompt.split(" ", 1)[1] + e.foils[0] * (1 + i % 2),
            "UID": f"form {i % 2}",
            "pairID": str(i),
        }
        for i, e in enumerate(task)
    ]
    path.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    return path


@pytest.mark.parametrize("bos", ["auto", "never"])
def test_pairs_of_sentences(model: Model, slow: SlowLoop, tmp_path: Path, bos: str) -> None:
    task = make_task(sentences(tmp_path / "pairs.jsonl"), model, bos=bos)
    assert task.parameters["bos"] == task.bos == ("always" if bos == "auto" else "never")
    gates = soft_gates(model, sets=2)
    encoded = encode(task, model.tokenizer)
    assert [one.opens for one in encoded] == [bos == "never"] * len(task)
    for metric in (*WHOLE, "logprob_per_token"):
        found = evaluate(model, task, gates, metric=metric, split="all").values
        expected = [
            [
                slow.metrics(e, row, slow.nothing()) | slow.whole_answers(e, row, slow.nothing())
                for e in encoded
            ]
            for row in gates
        ]
        cells = [[cell[metric] for cell in row] for row in expected]
        np.testing.assert_allclose(found, cells, atol=1e-4, err_msg=metric)
    assert rank(model, task, "attribution", metric="logprob_difference").values.any()
    assert curve(model, task, metric="choice", counts=[0, 2]).points


def test_sentences_have_nothing_to_answer(model: Model, tmp_path: Path) -> None:
    task = make_task(sentences(tmp_path / "pairs.jsonl"), model, bos="never")
    on = np.ones(model.layout.total)
    with pytest.raises(HeadcountError, match="whole texts without a prompt"):
        evaluate(model, task, on, metric="exact_match")
    with pytest.raises(HeadcountError, match="begins with its answer"):
        evaluate(model, task, on, metric="first_token_choice")
