"""Text to tune on: articles from a file in blocks of tokens, and blocks that the model writes.

What the given text does not show, a model unlearns while it learns that text, and more so where
edges are to be shut: nothing speaks for those that only code or sums would need. What the model
itself writes shows what it could do before. No other text is needed for it, and none is chosen.
"""

from __future__ import annotations

import json
import lzma
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.models.fingerprint import fingerprint_tokenizer
from headcount.models.memory import out_of_memory, too_large
from headcount.models.model import Model
from headcount.models.sites import accepted, plain
from headcount.sparse.settings import Settings
from headcount.system.files import digest, replacing
from headcount.system.progress import progress as progress_bar

Blocks = Int[np.ndarray, "blocks tokens"]

SUFFIXES = (".txt", ".txt.xz", ".jsonl")
BATCH = 256  # articles that the tokenizer takes at once
LEAST = 0.05  # of the likeliest token's probability, or the model's own text leaves a token out
ROWS = {"cuda": 2048, "cpu": 64}  # blocks that the model writes at once


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
    def own_digest(self) -> str:
        """By which a run knows its own text again: memory and device decide how it is drawn."""
        return digest(np.ascontiguousarray(self.own, dtype="<i4").tobytes())


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
    held_out: int = Settings.held_out,
    constraint: int = Settings.constraint_articles,
    *,
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
    parts = [cut(some, block) for some in (ids[second:], ids[first:second], ids[:first])]
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
    for step in count(start):
        round_, place = divmod(step, per_round)
        if step == start or not place:
            order = np.random.default_rng([seed, round_]).permutation(len(blocks))
        yield blocks[order[place * rows : (place + 1) * rows]]


def write_own_text(
    model: Model,
    blocks: int,
    tokens: int,
    *,
    seed: int = 0,
    keep: Path | None = None,
    deadline: float = float("inf"),
    progress: bool = True,
) -> Blocks | None:
    """Let the model write: each block begins with a token drawn from all ordinary ones.

    A random first word leads to prose, chat, code and sums alike. Nothing ends a block but its
    length. With `keep`, blocks stay in that folder for the next time, so that nothing is written
    twice; None where `deadline` (of time.monotonic) came before the last of them, though some are
    written in every call.
    """
    asked = {"blocks": blocks, "tokens": tokens, "seed": seed, "least": LEAST, "version": 1}
    key = digest(json.dumps({**model.identity, **asked}, sort_keys=True))[:16]
    starts = _starts(model, blocks, seed)
    rows = ROWS.get(model.device.type, 256)
    written: list[Blocks] = []
    done, new = 0, 0
    with progress_bar("own text", blocks, show=progress, unit="block") as bar:
        while done < blocks:
            file = None if keep is None else keep / f"own-{key}-{done}.npy"
            if file is not None and file.exists():
                some = np.load(file, allow_pickle=False).astype(np.int64)
            elif new and time.monotonic() > deadline:
                return None
            else:
                try:
                    some = _write(model, starts[done : done + rows], tokens, [seed, done])
                except RuntimeError as error:
                    if not out_of_memory(error):
                        raise
                    if rows == 1:
                        raise too_large(model, tokens) from error
                    rows = min(rows, blocks - done) // 2 or 1
                    continue
                new += len(some)
                if file is not None:
                    with replacing(file) as beside, beside.open("wb") as stream:
                        np.save(stream, some.astype(np.int32))
            written.append(some)
            done += len(some)
            bar.update(len(some))
    return np.concatenate(written)


def _starts(model: Model, blocks: int, seed: int) -> list[tuple[int, ...]]:
    """The first tokens of each block: one of all ordinary ones, behind what texts begin with."""
    tokenizer, module = model.tokenizer, cast(Any, plain(model.module))
    known = min(len(tokenizer), module.get_input_embeddings().num_embeddings)
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {token for token, added_token in added.items() if added_token.special}
    special |= set(tokenizer.all_special_ids)
    ordinary = [token for token in range(known) if token not in special]
    drawn = np.random.default_rng([seed, 1]).choice(ordinary, size=blocks)
    first = tokenizer("a")["input_ids"][:1]
    begin = first if first == [tokenizer.bos_token_id] else []
    return [(*begin, int(token)) for token in drawn]


@torch.no_grad()
def _write(
    model: Model, starts: Sequence[tuple[int, ...]], tokens: int, seed: Sequence[int]
) -> Blocks:
    """Blocks that go on from these starts, in bfloat16 where there is an accelerator."""
    module = cast(Any, plain(model.module))
    number = int(np.random.default_rng(seed).integers(1 << 62))
    rng: torch.Generator | None = None  # where the logits are
    ids = torch.tensor(starts, device=model.device)
    text, cache = [ids], None
    device = model.device.type
    with nullcontext() if device == "cpu" else torch.autocast(device, torch.bfloat16):
        for _ in range(tokens - ids.shape[1]):
            options = accepted(module, past_key_values=cache, use_cache=True)
            output = module(input_ids=ids, **options)
            cache = getattr(output, "past_key_values", None)
            if cache is None:
                raise HeadcountError(
                    f"{model.name} keeps no keys and values while it writes, so it can write no "
                    "text of its own: give --own 0."
                )
            scores = output.logits[:, -1]
            rng = rng or torch.Generator(scores.device).manual_seed(number)
            ids = noisy(scores, rng).argmax(-1, keepdim=True).to(model.device)
            text.append(ids)
    return torch.cat(text, 1).cpu().numpy()


def noisy(scores: Float[Tensor, "rows vocab"], rng: torch.Generator) -> Float[Tensor, "rows vocab"]:
    """Scores whose highest is a draw from their softmax, unlikely tokens left out.

    >>> rng = torch.Generator().manual_seed(0)
    >>> scores = torch.tensor([0.6, 0.39, 0.01]).log().expand(10_000, -1)
    >>> drawn = noisy(scores, rng).argmax(-1)
    >>> [round(float((drawn == token).float().mean()), 1) for token in range(3)]
    [0.6, 0.4, 0.0]
    """
    scores = scores.float()
    likely = scores >= scores.amax(-1, keepdim=True) + math.log(LEAST)
    gumbel = -torch.empty_like(scores).exponential_(generator=rng).log()
    return torch.where(likely, scores + gumbel, -torch.inf)
