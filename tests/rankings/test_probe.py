"""The probe: known truth in made-up features, the parts that need a model on tiny ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, HeadLayout, Store, Task, collect, generate, rank, wrap
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.rankings import probe as probe_file
from headcount.rankings.probe import (
    FUNCTIONS,
    Features,
    ProbeSettings,
    answer_features,
    elbow,
    fit_probe,
    held_out,
    one_template_each,
    probe_features,
    probe_tasks,
    surprisals,
)
from headcount.rankings.probe_classifier import Training, train_probe
from headcount.registry import Factory
from headcount.tasks import TASKS, encode, make_task

LAYOUT = HeadLayout((3, 2, 3))
SIZES = (6, 4, 6)  # numbers per head, site by site
QUICK: dict[str, Any] = {"epochs": 60, "lr": 3e-3, "width": 8, "hidden": 32, "batch": 16}


@cache
def built() -> Model:
    return wrap(tiny_model("llama"), toy_tokenizer())


def made_up(
    telling: dict[int, int], *, functions: int = 3, each: int = 30, seed: int = 0
) -> Features:
    """Head outputs that are noise, but for heads that tell one function: head → function."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(functions), each)
    sites = []
    for site, (heads, size) in enumerate(zip(LAYOUT.counts, SIZES, strict=True)):
        z = rng.normal(size=(len(labels), heads, size)).astype(np.float32)
        for head, function in telling.items():
            if LAYOUT.head(head).layer == site:
                # Of three functions it says nothing on the two others: "not this one" tells too.
                sign = np.where(labels == function, 1, -1 if functions == 2 else 0)[:, None]
                z[:, LAYOUT.head(head).index] = sign * 2 + 0.1 * z[:, LAYOUT.head(head).index]
        sites.append(z)
    contents = tuple(f"c{number // 2}" for number in range(len(labels)))
    templates = tuple(f"t{number % 3}" for number in range(len(labels)))
    return Features(sites, labels, contents, templates, {})


def probed(features: Features, **settings: Any) -> Any:
    functions = [f"f{number}" for number in range(int(features.labels.max()) + 1)]
    chosen = ProbeSettings(**{**QUICK, "seeds": 1, "unseen": False, **settings})
    return probe_features(features, functions, LAYOUT, chosen, progress=False)


# The classifier


@pytest.mark.parametrize("head", [0, 4, 7])
def test_the_one_head_that_tells_a_function_comes_first(head: int) -> None:
    """Heads of two sizes, so that two projections are shared."""
    result = probed(made_up({head: 0}, functions=2))
    assert result.accuracy > 0.9
    for function in ("f0", "f1"):
        scores = result.scores(function)
        assert scores.order()[0] == head
        assert scores.values[head] > 3 * np.sort(scores.values)[-2]
        # The layer's mean is in every feature: the only other head of layer 1 shares the signal.
        assert elbow(scores.values) == (2 if head == 4 else 1)


def test_each_function_has_its_own_head() -> None:
    result = probed(made_up({1: 0, 3: 1, 6: 2}), seeds=3)
    assert result.accuracy > 0.9
    for function, head in enumerate((1, 3, 6)):
        scores = result.scores(f"f{function}")
        assert scores.order()[0] == head
        assert scores.samples is not None
        assert scores.samples.shape == (3, 8)
        np.testing.assert_allclose(scores.values, scores.samples.mean(0))
        assert (scores.samples >= 0).all()
        signed = np.array(scores.parameters["signed"])
        assert signed[head] > 0  # what the head says there speaks for the function
        np.testing.assert_allclose(signed, result.importance[:, function].mean(0))


def test_noise_tells_nothing() -> None:
    result = probed(made_up({}, each=60), seeds=2)
    assert result.accuracy < 0.55  # of three functions
    assert result.trained > result.accuracy


def test_confusion_counts_the_held_out_items() -> None:
    features = made_up({1: 0}, functions=3)  # nothing tells 1 from 2
    result = probed(features, seeds=2)
    assert result.confusion.sum() == 2 * 18
    np.testing.assert_array_equal(result.confusion.sum(1), [12, 12, 12])
    assert result.confusion[0, 0] > 10
    assert result.accuracy == pytest.approx(np.trace(result.confusion) / 36)
    facts = result.scores("f1").parameters
    assert facts["confusion"] == result.confusion.tolist()
    assert facts["held_out_accuracy"] == result.accuracy
    assert facts["unseen_template_accuracy"] is None


def test_importance_is_gradient_times_feature() -> None:
    """Of a function's own logit, on its own held-out items: no others have a say."""
    features = made_up({1: 0}, functions=2)
    tested = held_out(features, 0)
    training = Training(**QUICK)
    one = train_probe(features.sites, features.labels, tested, training, 0, show=False)
    assert one.importance.shape == (2, 8)
    spoilt = [z.copy() for z in features.sites]
    for z in spoilt:
        z[tested & (features.labels == 1)] *= 5
    other = train_probe(spoilt, features.labels, tested, training, 0, show=False)
    np.testing.assert_array_equal(one.importance[0], other.importance[0])
    assert not np.array_equal(one.importance[1], other.importance[1])


def test_the_same_bits_twice_and_nobody_else_is_disturbed() -> None:
    features = made_up({1: 0})
    before = torch.random.get_rng_state()
    first, second = (probed(features) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert first.importance.tobytes() == second.importance.tobytes()
    torch.manual_seed(99)
    try:
        assert probed(features).importance.tobytes() == first.importance.tobytes()
    finally:
        torch.random.set_rng_state(before)
    assert probed(features, seed=1).importance.tobytes() != first.importance.tobytes()


def test_seeds_are_those_from_the_first_on() -> None:
    features = made_up({1: 0})
    both = probed(features, seed=4, seeds=2)
    for place, seed in enumerate((4, 5)):
        alone = probed(features, seed=seed)
        np.testing.assert_array_equal(both.importance[place], alone.importance[0])


def test_a_callers_no_grad_does_no_harm() -> None:
    features = made_up({1: 0})
    with torch.no_grad():
        inside = probed(features)
    np.testing.assert_array_equal(inside.importance, probed(features).importance)


def test_standardised_features_are_an_option() -> None:
    """A telling head whose output is tiny is lost among the others, unless they are scaled."""
    features = made_up({4: 0}, functions=2)
    for z in features.sites:
        z *= 30
    features.sites[1][:, 1] /= 3000
    scaled = ProbeSettings(**QUICK, standardise=True)
    result = probe_features(features, ["f0", "f1"], LAYOUT, scaled, progress=False)
    assert result.scores("f0").order()[0] == 4
    assert probed(features).accuracy < result.accuracy


# Splits


def test_contents_are_on_one_side_and_a_fifth_is_held_out() -> None:
    features = made_up({}, each=40)
    drawn = [held_out(features, seed) for seed in range(5)]
    for chosen in drawn:
        for number in range(3):
            assert chosen[features.labels == number].sum() == 8
        there = {c for c, held in zip(features.contents, chosen, strict=True) if held}
        here = {c for c, held in zip(features.contents, chosen, strict=True) if not held}
        assert not there & here
    assert len({chosen.tobytes() for chosen in drawn}) == 5


def test_a_template_can_be_left_out() -> None:
    features = made_up({1: 0, 3: 1, 6: 2})
    chosen = one_template_each(features, 0)
    left = {
        (n, t) for n, t, c in zip(features.labels, features.templates, chosen, strict=True) if c
    }
    kept = {
        (n, t) for n, t, c in zip(features.labels, features.templates, chosen, strict=True) if not c
    }
    assert len(left) == 3
    assert not left & kept
    result = probed(features, unseen=True)
    assert result.unseen is not None
    assert result.unseen > 0.9
    assert result.scores("f0").parameters["unseen_template_accuracy"] == result.unseen


def test_a_probe_of_templates_fails_on_those_it_has_not_seen() -> None:
    """A head that tells templates looks like one that tells functions, until one is left out."""
    features = made_up({})
    key = [f"{n}{t}" for n, t in zip(features.labels, features.templates, strict=True)]
    rng = np.random.default_rng(1)
    direction = {name: rng.normal(size=6) * 3 for name in sorted(set(key))}
    features.sites[0][:, 1] = np.stack([direction[name] for name in key])
    result = probed(features, unseen=True, seeds=2)
    assert result.accuracy > 0.9
    assert result.unseen is not None
    assert result.unseen < 0.7


def test_no_template_to_leave_out() -> None:
    features = replace(made_up({}), templates=("t",) * 90)
    assert probed(features, unseen=True).unseen is None


# Answers of a model


def tasks(n: int = 24) -> dict[str, Task]:
    return {name: replace(toy_task(n, seed=seed), name=name) for seed, name in enumerate("ab")}


def features_of(answers: str, tokens: int | None = None, **options: Any) -> Features:
    settings = ProbeSettings(answers=answers, tokens=tokens, **{"max_new_tokens": 4, **options})
    return answer_features(built(), tasks(), settings, progress=False)


def test_features_are_read_where_gold_answers_are_consumed() -> None:
    model = built()
    features = features_of("gold")
    examples = [
        e for task in tasks().values() for e in encode(task.split("ranking"), model.tokenizer)
    ]
    assert len(features.labels) == len(examples)
    assert [z.shape for z in features.sites] == [(len(examples), 4, 16)] * 2
    for place in (0, 1, len(examples) - 1):
        one = examples[place]
        ids = (*one.prompt, *one.target)
        where = list(range(len(one.prompt), len(ids)))
        alone = collect(model, [ids], [where], mean=True, progress=False)
        for site, expected in zip(features.sites, alone, strict=True):
            np.testing.assert_allclose(site[place], expected[0], atol=1e-5)
    assert features.labels.tolist() == sorted(features.labels.tolist())


def test_generated_answers_are_the_models_own() -> None:
    model = built()
    features = features_of("generated")
    example = encode(tasks()["a"].split("ranking"), model.tokenizer)[0]
    (text,) = generate(model, [example.prompt], max_new_tokens=4, progress=False)
    ids = (*example.prompt, *text.ids)
    where = list(range(len(example.prompt), len(ids)))
    (alone, *_) = collect(model, [ids], [where], mean=True, progress=False)
    np.testing.assert_allclose(features.sites[0][0], alone[0], atol=1e-5)
    assert set(features.dropped) == {"a", "b"}


def test_the_most_surprising_tokens_alone() -> None:
    model = built()
    examples = encode(toy_task(12, targets=(3,)), model.tokenizer)
    found = surprisals(model, examples)
    one = examples[0]
    with torch.no_grad():
        logits = model.module(input_ids=torch.tensor([[*one.prompt, *one.target]])).logits[0]
    logs = logits.log_softmax(-1)
    start = len(one.prompt)
    expected = [-float(logs[start + i - 1, token]) for i, token in enumerate(one.target)]
    np.testing.assert_allclose(found[0], expected, atol=1e-4)
    pair = {"a": toy_task(12, targets=(3,)), "b": toy_task(12, seed=1, targets=(3,))}
    settings = ProbeSettings(answers="gold", tokens=1)
    features = answer_features(model, pair, settings, progress=False)
    first = encode(pair["a"].split("ranking"), model.tokenizer)[0]
    worst = int(np.argmax(surprisals(model, [first])[0]))
    where = [[len(first.prompt) + worst]]
    (alone, *_) = collect(model, [(*first.prompt, *first.target)], where, mean=True, progress=False)
    np.testing.assert_allclose(features.sites[0][0], alone[0], atol=1e-5)


def test_at_most_so_many_items_of_each_function() -> None:
    assert np.bincount(features_of("gold", items=5).labels).tolist() == [5, 5]


def test_a_probe_of_a_model_from_end_to_end() -> None:
    settings = ProbeSettings(answers="gold", **QUICK, seeds=2)
    result = fit_probe(built(), tasks(), settings, progress=False)
    assert result.functions == ("a", "b")
    assert result.importance.shape == (2, 2, 8)
    again = fit_probe(built(), tasks(), settings, progress=False)
    assert result.importance.tobytes() == again.importance.tobytes()
    with pytest.raises(HeadcountError, match='no function of this probe "c"'):
        result.scores("c")


# The ranking by name


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Toy sentences under the names of cognitive functions; returns what was made."""
    made: list[str] = []
    for seed, name in enumerate(FUNCTIONS):

        def make(tokenizer: Any, *, n: int = 24, seed: int = seed, name: str = name) -> Task:
            """A function."""
            made.append(name)
            return replace(toy_task(n, seed=seed), name=name)

        monkeypatch.setitem(TASKS.entries, name, Factory(name, name, make))
    return made


SMALL: dict[str, Any] = {"epochs": 3, "width": 4, "hidden": 8, "max_new_tokens": 3, "seeds": 1}


def test_all_functions_have_the_same_prompt_but_for_the_question() -> None:
    """Else a probe could read which solved questions stand in front."""
    model = wrap(tiny_model("llama", vocab_size=2000, max_position_embeddings=1024), byte_level())
    task = make_task("inference", model.tokenizer, n=20).subset(8)
    common = probe_tasks(model, task, front="common")
    assert set(common) == set(FUNCTIONS)
    assert [e.id for e in common["inference"]] == [e.id for e in task]
    assert [e.target for e in common["inference"]] == [e.target for e in task]
    marker = "Question:"
    fronts = {e.prompt.rpartition(marker)[0] for made in common.values() for e in made}
    assert len(fronts) == 1
    (front,) = fronts
    assert front.count(marker) == len(FUNCTIONS)
    asked = {e.prompt.rpartition(marker)[2] for made in common.values() for e in made}
    assert not any(solved.startswith(tuple(asked)) for solved in front.split(marker)[1:])
    own = probe_tasks(model, task, front="own")
    assert len({e.prompt.rpartition(marker)[0] for made in own.values() for e in made}) == 8


def test_the_other_functions_come_by_themselves(functions: list[str]) -> None:
    task = replace(toy_task(24, seed=4), name="math")
    scores = rank(built(), task, "probe", **SMALL)
    assert set(functions) == set(FUNCTIONS) - {"math"}
    assert set(scores.parameters["functions"]) == set(FUNCTIONS)
    assert scores.ranking == "probe"
    assert scores.parameters["answers"] == "generated"
    few = rank(built(), task, "probe", against="retrieval, logical", **SMALL)
    assert few.parameters["functions"] == ["math", "retrieval", "logical"]


def test_scores_depend_on_the_other_functions_items(
    functions: list[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = replace(toy_task(24, seed=4), name="math")
    options: dict[str, Any] = {"against": "logical", **SMALL}
    with Store(tmp_path / "store.sqlite") as store:
        first = rank(built(), task, "probe", **options, lab=Lab(store))
        again = rank(built(), task, "probe", **options, lab=Lab(store))
        assert again.to_json() == first.to_json()

        def other(tokenizer: Any, *, n: int = 24) -> Task:
            """Other items."""
            return replace(toy_task(n, seed=77), name="logical")

        monkeypatch.setitem(
            TASKS.entries, "logical", replace(TASKS.entries["logical"], function=other)
        )
        changed = rank(built(), task, "probe", **options, lab=Lab(store))
    assert not np.array_equal(changed.values, first.values)


def test_what_a_probe_cannot_do_is_refused(functions: list[str]) -> None:
    math = replace(toy_task(24, seed=4), name="math")
    cases: list[tuple[Task, dict[str, Any], str]] = [
        (toy_task(), {}, 'the task "toy-0" is none'),
        (math, {"against": "logcal"}, '"logcal" is no other function.*Did you mean "logical"'),
        (math, {"against": "math"}, '"math" is no other function'),
        (math, {"answers": "golden"}, 'no kind of answers "golden".*Did you mean "gold"'),
        (math, {"tokens": 0}, "at least 1 token"),
        (math, {"tokens": "some"}, "tokens is a whole number"),
        (math, {"seeds": 0}, "at least 1 seed"),
        (math, {"items": 2}, "5 items of each function"),
        (math, {"epochs": 0}, "must all be above 0"),
        (math, {"dropout": 1.0}, "dropout goes from 0 to below 1"),
        (replace(toy_task(8, seed=4), name="math"), {}, r'items of \d contents for "math"'),
    ]
    for task, settings, words in cases:
        with pytest.raises(HeadcountError, match=words):
            rank(built(), task, "probe", **{**SMALL, **settings})
    with pytest.raises(HeadcountError, match="at least two"):
        fit_probe(built(), {"a": toy_task()})


def test_answers_of_nothing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that ends the line at once has said nothing that could be read."""
    from headcount.engine.write.decode import Generation

    newline = built().tokenizer.unk_token_id

    def silent(model: Model, prompts: list[Any], **_: Any) -> list[Generation]:
        texts = [Generation((newline,), "", True), Generation((5, newline), " x", True)]
        return [texts[place % 2] for place in range(len(prompts))]

    stop = (built().tokenizer.decode([newline]),)
    monkeypatch.setattr(probe_file, "generate", silent)
    ended = {name: replace(task, stop=stop) for name, task in tasks().items()}
    features = answer_features(built(), ended, ProbeSettings(max_new_tokens=4), progress=False)
    assert features.dropped == {
        name: (len(task.split("ranking")) + 1) // 2 for name, task in tasks().items()
    }
    one = encode(tasks()["a"].split("ranking"), built().tokenizer)[1]
    ids, where = (*one.prompt, 5), [[len(one.prompt)]]
    (alone, *_) = collect(built(), [ids], where, mean=True, progress=False)
    np.testing.assert_allclose(features.sites[0][0], alone[0], atol=1e-5)


# The elbow


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([10, 9, 8, 0, 0, 0, 0, 0], 3),
        ([10, 0, 0, 0], 1),
        ([5, 5, 5, 5, 5, 0], 5),  # all but one
        ([8, 4, 2, 1, 0.5, 0.25, 0.125, 0.0625], 2),
        ([3, 2, 1, 0], 0),
        ([1, 1, 1, 1], 0),
        ([0, 0, 0], 0),
        ([2, 1], 0),
        ([1], 0),
    ],
)
def test_the_elbow_of_curves_made_by_hand(values: list[float], expected: int) -> None:
    assert elbow(np.array(values, dtype=float)) == expected


HEIGHTS = st.lists(st.integers(0, 1000), min_size=3, max_size=40)


@given(values=HEIGHTS, seed=st.integers(0, 999), scale=st.integers(1, 64))
def test_the_elbow_knows_no_order_and_no_unit(values: list[int], seed: int, scale: int) -> None:
    curve = np.array(values, dtype=float)
    found = elbow(curve)
    assert 0 <= found < len(values)
    assert elbow(np.random.default_rng(seed).permutation(curve)) == found
    assert elbow(curve * scale) == found
    if found:  # it lies between a higher score and a lower one
        ordered = np.sort(curve)[::-1]
        assert ordered[found - 1] > ordered[found]


@given(high=st.integers(1, 20), low=st.integers(2, 40), gap=st.integers(1, 1000))
def test_a_step_is_an_elbow(high: int, low: int, gap: int) -> None:
    values = np.array([gap] * high + [0] * low, dtype=float)
    assert elbow(values) == high
