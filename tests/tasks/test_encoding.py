from __future__ import annotations

import pytest
import tiny_tokenizers as tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from headcount.errors import HeadcountError
from headcount.tasks.encoding import (
    Encoded,
    continuation_ids,
    encode,
    require_corrupted,
    require_foils,
)
from headcount.tasks.task import Example, Task

PROMPT = "Then, Mary and John went to the garden. John gave a lamp to"
KINDS = tiny.every_kind()

# "▁" is how SentencePiece writes a space, so it cannot be told from one; "<" starts special tokens.
texts = st.text(
    st.one_of(
        st.sampled_from("Mary John,.:( \n"), st.characters(codec="utf-8", exclude_characters="▁<")
    ),
    min_size=1,
    max_size=20,
)


def one(
    tokenizer: PreTrainedTokenizerFast,
    prompt: str = PROMPT,
    target: str = " Mary",
    **fields: object,
) -> Encoded:
    rules = {name: fields.pop(name) for name in ("bos", "chat") if name in fields}
    (encoded,) = encode(
        Task("toy", 1, (Example("7", prompt, target, **fields),), **rules), tokenizer
    )
    return encoded


def tokens(tokenizer: PreTrainedTokenizerFast, ids: tuple[int, ...]) -> list[str]:
    return tokenizer.convert_ids_to_tokens(list(ids))


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=80)
@given(prompt=texts, target=texts)
def test_prompt_and_target_are_joined_as_ids(kind: str, prompt: str, target: str) -> None:
    tokenizer = KINDS[kind]
    encoded = one(tokenizer, prompt, target, bos="never")
    alone = tuple(tokenizer.encode(prompt, add_special_tokens=False))
    assert encoded.prompt == alone  # nothing merges over the border
    joined = tokenizer.decode(list(encoded.prompt + encoded.target))
    if not prompt.startswith(" "):  # SentencePiece takes a leading space for its own
        assert joined == prompt + target
    assert joined.endswith(target)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=30)
@given(prompts=st.tuples(texts, texts), target=texts)
def test_a_target_is_the_same_after_every_prompt(
    kind: str, prompts: tuple[str, str], target: str
) -> None:
    first, second = (one(KINDS[kind], prompt, target).target for prompt in prompts)
    assert first == second == continuation_ids(KINDS[kind], target)


@pytest.mark.parametrize("kind", [*KINDS, "unigram"])
def test_a_name_with_its_space_is_one_token(kind: str) -> None:
    tokenizer = KINDS.get(kind) or tiny.unigram()
    (token,) = tokens(tokenizer, continuation_ids(tokenizer, " Mary"))
    assert token in ("ĠMary", "▁Mary")
    together = tokenizer.encode(PROMPT + " Mary", add_special_tokens=False)
    encoded = one(tokenizer, bos="never")
    assert encoded.prompt + encoded.target == tuple(together)


@pytest.mark.parametrize("kind", KINDS)
def test_no_space_appears_where_there_is_none(kind: str) -> None:
    tokenizer = KINDS[kind]
    encoded = one(tokenizer, "Answer:\n", "Mary")
    assert tokenizer.decode(list(encoded.target)).lstrip() == "Mary"
    assert not tokens(tokenizer, encoded.target)[0].startswith(("▁", "Ġ"))


def test_no_merge_over_the_border() -> None:
    tokenizer = tiny.byte_level()
    encoded = one(tokenizer, "Then, Mar", "y")
    whole = tuple(tokenizer.encode("Then, Mary"))
    assert len(whole) < len(encoded.prompt + encoded.target)
    assert tokenizer.decode(list(encoded.prompt + encoded.target)) == "Then, Mary"


@pytest.mark.parametrize(
    ("tokenizer", "bos", "front"),
    [
        (tiny.byte_level(), "auto", []),
        (tiny.byte_level(bos=True), "auto", ["<s>"]),
        (tiny.byte_level(bos=True, eos=True), "auto", ["<s>"]),
        (tiny.byte_level(eos=True), "auto", []),
        (tiny.llama2(bos=True, eos=True), "auto", ["<s>"]),
        (tiny.byte_level(), "always", ["<s>"]),
        (tiny.byte_level(bos=True), "always", ["<s>"]),
        (tiny.byte_level(bos=True), "never", []),
    ],
)
def test_the_bos_rule(tokenizer: PreTrainedTokenizerFast, bos: str, front: list[str]) -> None:
    encoded = one(tokenizer, corrupted=PROMPT.replace("John", "Tom"), bos=bos)
    plain = tokenizer.tokenize(PROMPT)
    assert tokens(tokenizer, encoded.prompt) == front + plain  # and no </s> behind it
    assert encoded.corrupted is not None
    assert tokens(tokenizer, encoded.corrupted)[: len(front)] == front


def test_one_bos_even_if_the_prompt_starts_with_it() -> None:
    encoded = one(tiny.byte_level(bos=True), "<s>Then, Mary")
    assert tokens(tiny.byte_level(bos=True), encoded.prompt)[:2] == ["<s>", "Then"]


def test_always_needs_a_bos_token() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tiny.byte_level().backend_tokenizer)
    with pytest.raises(HeadcountError, match="asks for a BOS token and the tokenizer has none"):
        one(tokenizer, bos="always")


def test_chat_has_one_bos_and_waits_for_the_reply() -> None:
    tokenizer = tiny.byte_level(bos=True, eos=True, chat=tiny.CHAT)
    encoded = one(tokenizer, "Who?", chat=True, corrupted="What?")
    assert tokenizer.decode(list(encoded.prompt)) == "<s><|user|>Who?\n<|reply|>"
    assert encoded.corrupted is not None
    assert tokenizer.decode(list(encoded.corrupted)) == "<s><|user|>What?\n<|reply|>"
    assert tokens(tokenizer, encoded.target) == ["ĠMary"]


@pytest.mark.parametrize("build", [tiny.byte_level, tiny.llama2])
def test_a_reply_on_a_new_line_starts_without_a_space(build: object) -> None:
    tokenizer = build(chat=tiny.CHAT + "\n{{ '\n' }}")  # type: ignore[operator]
    encoded = one(tokenizer, "Who?", chat=True, foils=(" John",))
    for answer, text in ((encoded.target, "Mary"), (*encoded.foils, "John")):
        joined = tokenizer.decode(list(encoded.prompt + answer))
        assert joined.endswith("\n" + text)


def test_the_chat_template_sees_a_fixed_date() -> None:
    encoded = one(tiny.byte_level(chat="{{ date_string }}:"), chat=True)
    assert tiny.byte_level().decode(list(encoded.prompt)) == "26 Jul 2024:"


@pytest.mark.parametrize("template", [None, "{{ raise_exception('no\nusers') }}"])
def test_a_chat_template_that_fails(template: str | None) -> None:
    with pytest.raises(HeadcountError, match="chat template cannot be used") as error:
        one(tiny.byte_level(chat=template), chat=True)
    assert "\n" not in str(error.value)


def test_what_the_tokenizer_cannot_write_is_refused_by_name() -> None:
    with pytest.raises(HeadcountError, match='example "7" with " Zork"'):
        one(tiny.word_level(), target=" Zork")
    with pytest.raises(HeadcountError, match='cannot continue a prompt with "Mary"'):
        continuation_ids(tiny.word_level(), "Mary")
    with pytest.raises(HeadcountError, match='no token of the prompt " " of example "7"'):
        one(tiny.word_level(), " ")


def test_word_level_joins_words() -> None:
    encoded = one(tiny.word_level(), foils=(" John",))
    assert tokens(tiny.word_level(), encoded.target) == ["Mary"]
    assert encoded.foils == (
        (encoded.prompt[tokens(tiny.word_level(), encoded.prompt).index("John")],),
    )


def test_the_key_is_made_of_ids_alone() -> None:
    tokenizer = tiny.byte_level()
    base = one(tokenizer)
    assert base.key == one(tokenizer, template="t", content="c").key
    others = [
        one(tokenizer, bos="always"),
        one(tokenizer, target=" John"),
        one(tokenizer, foils=(" John",)),
        one(tokenizer, corrupted=PROMPT + " the"),
        one(tokenizer, PROMPT[:-3], " to"),
    ]
    assert len({base.key, *(other.key for other in others)}) == 6
    # Recorded stores hold these keys: they must not change from one release to the next.
    fixed = Encoded(base.example, (1, 2), (3,), ((4, 5), (6,)), None)
    assert fixed.key == "836874d16507c22ac1f59de942445c701b25a140efb53e551d01aa2430e2b381"


def test_require_corrupted_prompt() -> None:
    tokenizer = tiny.word_level()
    aligned = one(tokenizer, corrupted=PROMPT.replace("John", "Tom"))
    require_corrupted([aligned])
    with pytest.raises(HeadcountError, match='Example "7" has no corrupted prompt'):
        require_corrupted([aligned, one(tokenizer)])
    with pytest.raises(
        HeadcountError, match=r'corrupted prompt of example "7" has 16 tokens and its prompt 15'
    ):
        require_corrupted([one(tokenizer, corrupted=PROMPT + " the")])
    with pytest.raises(HeadcountError, match='corrupted prompt of example "7" has the same tokens'):
        require_corrupted([one(tokenizer, PROMPT + " Zork", corrupted=PROMPT + " Bork")])


def test_require_foils() -> None:
    tokenizer = tiny.byte_level()
    require_foils([one(tokenizer, foils=(" John",))], "logit difference")
    with pytest.raises(HeadcountError, match='Example "7" has no foil, and logit difference needs'):
        require_foils([one(tokenizer)], "logit difference")
    with pytest.raises(
        HeadcountError, match='target " Mary" and the foil " Mary Mary" of example "7"'
    ):
        require_foils([one(tokenizer, foils=(" Mary Mary",))], "logit difference")
