"""Text to tune on: articles from a file, cut into blocks of tokens, some of them held out."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from headcount.errors import HeadcountError
from headcount.models.fingerprint import fingerprint_tokenizer
from headcount.sparse.settings import Settings
from headcount.system.files import digest, replacing
from headcount.system.progress import progress as progress_bar

Blocks = Int[np.ndarray, "blocks tokens"]

SUFFIXES = (".txt", ".txt.xz", ".jsonl")
BATCH = 256  # articles that the tokenizer takes at once


@dataclass(frozen=True, eq=False)
class Text:
    """Blocks of tokens in three parts that share no article.

    `final` is for the last evaluation alone, `constraint` for the loss that training must keep, and
    `train` for everything else.
    """

    train: Blocks
    constraint: Blocks
    final: Blocks
    source: str  # sha256 of its articles
    own: Blocks | None = None  # that the model wrote itself, to train on beside them

    @property
    def tokens(self) -> int:
        """How many there are to train on."""
        return int(self.train.size)


def read_articles(path: str | Path) -> list[str]:
    """The articles of a .txt or .txt.xz file (blank lines between them) or a .jsonl file ("text").

    >>> file = getfixture("tmp_path") / "two.txt"
    >>> _ = file.write_text("One.\\nStill one.\\n\\nTwo.\\n")
    >>> read_articles(file)
    ['One.\\nStill one.', 'Two.']
    """
    path = Path(path)
    if not path.name.endswith(SUFFIXES):
        raise HeadcountError(f"{path} is no text to read: give one of {', '.join(SUFFIXES)}.")
    if not path.is_file():
        raise HeadcountError(f"There is no file {path}.")
    try:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8")
        if path.suffix == ".jsonl":
            lines = [line for line in text.splitlines() if line.strip()]
            articles = [str(json.loads(line)["text"]) for line in lines]
        else:
            articles = text.replace("\r\n", "\n").split("\n\n")
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise HeadcountError(f"{path} is damaged or no UTF-8 text ({error}).") from error
    except (ValueError, KeyError, TypeError) as error:
        raise HeadcountError(
            f'{path} is not JSON Lines with a "text" in each line ({error}).'
        ) from error
    return [article.strip() for article in articles if article.strip()]


def load_text(
    path: str | Path,
    tokenizer: Any,
    block: int,
    *,
    held_out: int = Settings.held_out,
    constraint: int = Settings.constraint_articles,
    keep: Path | None = None,
    progress: bool = True,
) -> Text:
    """Read a file and cut it into blocks of `block` tokens.

    The first `held_out` articles are for the last evaluation, the next `constraint` for the
    constraint, the rest is trained on. With `keep`, the tokens stay in that folder for the next
    time.
    """
    articles = read_articles(path)
    if len(articles) <= held_out + constraint:
        raise HeadcountError(
            f"{path} has {len(articles)} articles (blank lines separate them), of which "
            f"{held_out} + {constraint} are held out: give more text or hold out fewer "
            "(--held-out, --constraint-articles)."
        )
    source = digest("\0".join(articles))
    ids = _token_ids(articles, source, tokenizer, keep, progress)
    first, second = held_out, held_out + constraint
    parts = [
        cut(ids[chosen], block)
        for chosen in (slice(second, None), slice(first, second), slice(first))
    ]
    for part, name in zip(parts, ("training", "the constraint", "evaluation"), strict=True):
        if not len(part):
            raise HeadcountError(
                f"{path} is too short: what it holds for {name} is less than one block of {block} "
                "tokens (give more text, or a smaller --block)."
            )
    train, limit, final = parts
    return Text(train, limit, final, source)


def cut(articles: Sequence[Int[np.ndarray, "_"]], block: int) -> Blocks:
    """Join articles and cut them into whole blocks; what is left at the end is left out."""
    joined = np.concatenate(articles) if len(articles) else np.empty(0, np.int64)
    whole = len(joined) // block
    return joined[: whole * block].reshape(whole, block).astype(np.int64)


def _token_ids(
    articles: Sequence[str], source: str, tokenizer: Any, keep: Path | None, progress: bool
) -> list[Int[np.ndarray, "_"]]:
    """The token ids of each article, with the end-of-text token behind it."""
    key = digest(source + fingerprint_tokenizer(tokenizer))[:16]
    file = None if keep is None else keep / f"tokens-{key}.npz"
    if file is not None and file.exists():
        with np.load(file, allow_pickle=False) as kept:
            return np.split(kept["ids"], kept["ends"][:-1])
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    ids = []
    with progress_bar("tokens", len(articles), show=progress, unit="article") as bar:
        for start in range(0, len(articles), BATCH):
            some = list(articles[start : start + BATCH])
            encoded = tokenizer(some, add_special_tokens=False)["input_ids"]
            ids += [np.array(article + end, dtype=np.int32) for article in encoded]
            bar.update(len(some))
    if file is not None:
        ends = np.cumsum([len(article) for article in ids])
        with replacing(file) as beside, beside.open("wb") as stream:
            np.savez(stream, ids=np.concatenate(ids), ends=ends)
    return ids


def training_batches(
    text: Text, rows: int, own: int, seed: int, start: int = 0
) -> Iterator[Int[np.ndarray, "rows tokens"]]:
    """Batches of `rows` blocks of which the last `own` are the model's own text."""
    given = batches(text.train, rows - own, seed, start)
    if not own:
        return given
    assert text.own is not None
    written = batches(text.own, own, seed, start)
    return (np.concatenate(both) for both in zip(given, written, strict=False))


def batches(
    blocks: Blocks, rows: int, seed: int, start: int = 0
) -> Iterator[Int[np.ndarray, "rows tokens"]]:
    """Batches without end from step `start` on: each round goes through all blocks, shuffled anew.

    Which blocks a step gets depends on the seed and the step alone, so a run that goes on takes
    those it would have taken.
    """
    per_round = max(1, len(blocks) // rows)
    step = start
    while True:
        round_, place = divmod(step, per_round)
        order = np.random.default_rng([seed, round_]).permutation(len(blocks))
        while place < per_round:
            chosen = order[place * rows : (place + 1) * rows]
            yield blocks[chosen]
            place += 1
            step += 1
