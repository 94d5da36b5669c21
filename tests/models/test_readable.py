"""What a model cannot read is refused before anything runs, wherever nothing is decoded too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Example, Lab, collect, curve, evaluate, generate, rank, wrap
from headcount.engine.measure.cost import Counter
from headcount.engine.read.attention import attend
from headcount.errors import HeadcountError
from headcount.models.model import Model
from headcount.rankings import Ranking
from headcount.tasks import Task

SENTENCE = r'Example "e\d+" of the task "toy-0" has 21 tokens, more than the 20 that llama can read'


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama", max_position_embeddings=20), toy_tokenizer(), name="llama")


@pytest.fixture(scope="module")
def fits() -> Task:
    return toy_task(24, lengths=[20], targets=[1])


@pytest.fixture(scope="module")
def too_long() -> Task:
    return toy_task(24, lengths=[21], targets=[1])


ASKED: dict[str, Callable[[Model, Task], object]] = {
    "evaluate": lambda model, task: evaluate(model, task, ["0.1"], metric="logprob"),
    "curve": lambda model, task: curve(model, task, "random", counts=[1], metric="logprob"),
    "attribution": lambda model, task: rank(model, task, "attribution"),
    "ablation": lambda model, task: rank(model, task, "ablation"),
    "attention": lambda model, task: rank(model, task, "attention-previous"),
    "gates": lambda model, task: rank(model, task, "facilitation", updates=1, seeds=1, batch=2),
}


@pytest.mark.parametrize("name", ASKED)
def test_prompts_beyond_the_context_are_refused(
    model: Model, fits: Task, too_long: Task, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ASKED[name](model, fits)
    monkeypatch.setattr(type(model.module), "forward", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(HeadcountError, match=SENTENCE):
        ASKED[name](model, too_long)


def test_sequences_beyond_the_context_are_refused(model: Model) -> None:
    with pytest.raises(HeadcountError, match="A sequence has 21 tokens, more than the 20"):
        collect(model, [[1] * 21], [[-1]], progress=False)
    with pytest.raises(HeadcountError, match="A sequence has 21 tokens, more than the 20"):
        attend(model, [[1] * 21], lambda site, weights, indices: weights[:, :, -1, 0])


def test_the_last_token_of_a_target_is_never_read(model: Model) -> None:
    task = toy_task(8, lengths=[19], targets=[2])
    evaluate(model, task, [], metric="logprob")
    with pytest.raises(HeadcountError, match="more than the 20"):
        evaluate(model, toy_task(8, lengths=[19], targets=[3]), [], metric="logprob")


def test_corrupted_prompts_count_too(model: Model, fits: Task) -> None:
    longer = tuple(replace(e, corrupted=f"{e.corrupted} ba") for e in fits.examples)
    with pytest.raises(HeadcountError, match="corrupted, has 21 tokens"):
        evaluate(model, replace(fits, examples=longer), [], metric="logprob")


@pytest.mark.parametrize("ranking", ["attribution", "integrated-gradients"])
@pytest.mark.parametrize("model_type", ["gpt2", "llama"])
def test_long_wrong_answers_count_too(ranking: str, model_type: str) -> None:
    tiny = tiny_model(model_type, max_position_embeddings=20)
    model = wrap(tiny, toy_tokenizer(), name="tiny")
    task = toy_task(8, lengths=[19], targets=[1])
    longer = tuple(replace(e, foils=(f"{e.foils[0]} ba be",)) for e in task.examples)
    task = replace(task, examples=longer)
    with pytest.raises(HeadcountError, match=r'The answer ".* ba be" .* 21 tokens, more than the'):
        rank(model, task, ranking, metric="logprob_difference")
    asked = Ranking.of(model, task, ranking, metric="logprob_difference")
    with pytest.raises(HeadcountError, match="21 tokens"):
        asked.result(Lab(store=None))
    with pytest.raises(HeadcountError, match="21 tokens"):
        asked.count(Counter())


@pytest.mark.parametrize("name", ASKED)
def test_a_model_without_a_tokenizer_reads_no_task(fits: Task, name: str) -> None:
    bare = wrap(tiny_model("llama"), None, name="bare")
    with pytest.raises(HeadcountError, match="bare has no tokenizer to read the task with"):
        ASKED[name](bare, fits)


def test_token_ids_that_a_model_does_not_know_are_refused(fits: Task) -> None:
    small = wrap(tiny_model("llama", vocab_size=5), toy_tokenizer(), name="small")
    with pytest.raises(HeadcountError, match=r"token id \d+, and small knows 5 token ids"):
        evaluate(small, fits, [], metric="logprob")
    with pytest.raises(HeadcountError, match="the token id 9, and small knows 5"):
        collect(small, [[1, 9]], [[-1]], progress=False)


@pytest.mark.parametrize("answer", ["target", "foils", "also"])
def test_answers_that_the_model_does_not_know_are_refused(answer: str) -> None:
    """The last token of an answer is never read, but its logit is."""
    small = wrap(tiny_model("llama", vocab_size=70), toy_tokenizer(), name="small")
    words = toy_tokenizer().convert_ids_to_tokens(range(72))
    known, unknown = f" {words[60]}", f" {words[71]}"
    given = {"target": known, "foils": (), "also": ()}
    given[answer] = unknown if answer == "target" else (unknown,)
    examples = tuple(Example(word, f"{word} {words[61]}", **given) for word in words[62:68])
    message = r"token id 71, and small knows 70 token ids"
    for ask in (evaluate, lambda model, task, *_, **how: rank(model, task, **how)):
        with pytest.raises(HeadcountError, match=message):
            ask(small, Task("t", 1, examples), [], lab=Lab(store=None))


def test_prompts_that_the_model_does_not_know_are_refused(model: Model) -> None:
    for unknown in (400, -3):
        with pytest.raises(HeadcountError, match=f"A prompt has the token id {unknown}, and"):
            generate(model, [[1, 2, unknown]], progress=False)


def test_a_curve_of_texts_without_room_is_refused_before_ranking(
    model: Model, fits: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(model.module), "forward", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(HeadcountError, match="20 tokens and 16 new ones do not fit into the 20"):
        curve(model, fits, "ablation", counts=[1], metric="exact_match", lab=Lab(store=None))
