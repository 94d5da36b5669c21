"""Text: three kinds of files, blocks, parts that share nothing, batches that come again."""

from __future__ import annotations

import json
import lzma
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from corpus import write_text
from toy import toy_tokenizer

from headcount import HeadcountError
from headcount.sparse.text import batches, cut, load_text, read_articles


def test_the_same_articles_come_from_every_kind_of_file(tmp_path: Path) -> None:
    plain = write_text(tmp_path / "a.txt", articles=5)
    packed = tmp_path / "a.txt.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    articles = read_articles(plain)
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join(json.dumps({"text": one}) for one in articles))
    assert len(articles) == 5
    assert read_articles(packed) == articles == read_articles(lines)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.pdf", b"", "is not a text file"),
        ("a.txt", b"\xff\xfe\xff", "not UTF-8 text"),
        ("a.txt.xz", b"not packed", "damaged"),
        ("a.jsonl", b'{"words": "x"}', "must hold one JSON object"),
        *(
            ("a.jsonl", content, r'must hold one JSON object with a "text" in each line\.$')
            for content in (b"no json", b"9" * 5000, b"[" * 100_000)
        ),
    ],
)
def test_unreadable_files_are_refused(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HeadcountError, match=says):
        read_articles(tmp_path / name)
    with pytest.raises(HeadcountError, match="There is no file"):
        read_articles(tmp_path / "gone.txt")


def test_parts_share_no_article_and_lose_nothing_but_their_ends(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt", articles=30, words=20)
    text = load_text(path, toy_tokenizer(), 16, held_out=4, constraint=3, progress=False)
    # An article is twenty words and one token for its end.
    assert [len(part) for part in (text.final, text.constraint, text.train)] == [
        4 * 21 // 16,
        3 * 21 // 16,
        23 * 21 // 16,
    ]
    tokenizer = toy_tokenizer()
    first = tokenizer(read_articles(path)[0])["input_ids"]
    assert text.final.ravel()[:21].tolist() == [*first, tokenizer.eos_token_id]


def test_tokens_are_kept_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_text(tmp_path / "a.txt", articles=30, words=20)
    options = {"held_out": 4, "constraint": 3, "keep": tmp_path / "kept", "progress": False}
    first = load_text(path, toy_tokenizer(), 16, **options)
    tokenizer = toy_tokenizer()
    monkeypatch.setattr(type(tokenizer), "__call__", None)
    again = load_text(path, tokenizer, 16, **options)
    assert np.array_equal(first.train, again.train)
    assert np.array_equal(first.final, again.final)


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt", articles=6, words=10)
    with pytest.raises(HeadcountError, match="6 articles"):
        load_text(path, toy_tokenizer(), 8, held_out=4, constraint=2)
    with pytest.raises(HeadcountError, match="do not fill a block of 64 tokens"):
        load_text(path, toy_tokenizer(), 64, held_out=2, constraint=2, progress=False)


def test_a_round_of_batches_is_the_whole_text_once() -> None:
    blocks = np.arange(40).reshape(10, 4)
    one = list(islice(batches(blocks, 3, seed=1), 3))
    seen = np.concatenate(one)
    assert len(np.unique(seen[:, 0])) == 9  # ten blocks make three batches of three
    other = list(islice(batches(blocks, 3, seed=1), 6))[3:]
    assert not np.array_equal(one, other)
    for start in range(6):
        again = next(batches(blocks, 3, seed=1, start=start))
        assert np.array_equal(again, [*one, *other][start])


def test_blocks_are_whole() -> None:
    made = cut([np.arange(5), np.arange(4)], 3)
    assert made.tolist() == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
