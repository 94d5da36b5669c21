"""Training text: articles from a file in blocks of tokens, and blocks that the model writes.

A model forgets skills that the given text does not use, such as code or arithmetic, and training
closes the edges that only these skills need. Text that the model writes itself, before training,
uses all of its skills, so training on this text too preserves them without a second corpus.
"""

from __future__ import annotations

import json
import lzma
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO
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
from headcount.system.files import checked_path, digest, replacing, write_file
from headcount.system.progress import progress as progress_bar

Blocks = Int[np.ndarray, "blocks tokens"]

SUFFIXES = (".txt", ".txt.xz", ".jsonl")
BATCH = 256  # articles that are tokenised at once
LEAST = 0.05  # the model never writes tokens below this share of the likeliest one's probability
ROWS = {"cuda": 2048, "cpu": 64}  # blocks that the model writes at once


@dataclass(frozen=True, eq=False)
class Text:
    """Blocks of tokens in three parts that share no article.

    `train` is trained on, `constraint` measures the loss that training must keep, and `final` is
    used only in the last evaluation.
    """

    train: Blocks
    constraint: Blocks
    final: Blocks
    source: str  # sha256 of all articles
    own: Blocks | None = None  # written by the model itself, also trained on

    @property
    def own_digest(self) -> str:
        """Identifies the model's own text, which depends on memory and device too."""
        return digest(np.ascontiguousarray(self.own, dtype="<i4").tobytes())


def text_file(path: str | Path) -> Path:
    """The path of a text; one that is missing or of another kind is refused."""
    path = checked_path(path)
    if not path.name.endswith(SUFFIXES):
        raise HeadcountError(
            f"{path} is not a text file: its name must end in {', '.join(SUFFIXES)}."
        )
    if not path.is_file():
        raise HeadcountError(f"There is no file {path}: check the path.")
    return path


def read_articles(path: str | Path) -> list[str]:
    """The articles of a .txt or .txt.xz file (blank lines between them) or a .jsonl file ("text").

    >>> file = getfixture("tmp_path") / "two.txt"
    >>> _ = file.write_text("One.\\nStill one.\\n\\nTwo.\\n")
    >>> read_articles(file)
    ['One.\\nStill one.', 'Two.']
    """
    path = text_file(path)
    try:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8")
        if path.suffix == ".jsonl":
            lines = [line for line in text.splitlines() if line.strip()]
            articles = [str(json.loads(line)["text"]) for line in lines]
        else:
            articles = text.replace("\r\n", "\n").split("\n\n")
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise HeadcountError(f"{path} is damaged or not UTF-8 text: give a text file.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HeadcountError(
            f'{path} must hold one JSON object with a "text" in each line.'
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
    constraint, the rest for training. With `keep`, the tokens are stored in that folder for the
    next call.
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
    parts = [cut(part, block) for part in (ids[second:], ids[first:second], ids[:first])]
    for part, name in zip(parts, ("training", "the constraint", "evaluation"), strict=True):
        if not len(part):
            raise HeadcountError(
                f"{path} is too short: its articles for {name} do not fill a block of {block} "
                "tokens (give more text, or a smaller --block)."
            )
    train, limit, final = parts
    return Text(train, limit, final, source)


def cut(articles: Sequence[Int[np.ndarray, "_"]], block: int) -> Blocks:
    """Join articles and cut them into blocks; an incomplete block at the end is dropped."""
    joined = np.concatenate(articles) if len(articles) else np.empty(0, np.int64)
    whole = len(joined) // block
    return joined[: whole * block].reshape(whole, block).astype(np.int64)


def _token_ids(
    articles: Sequence[str], source: str, tokenizer: Any, keep: Path | None, progress: bool
) -> list[Int[np.ndarray, "_"]]:
    """The token ids of each article, followed by the end-of-text token."""
    key = digest(source + fingerprint_tokenizer(tokenizer))[:16]
    file = None if keep is None else keep / f"tokens-{key}.npz"
    if file is not None and file.exists():
        with np.load(file, allow_pickle=False) as kept:
            return np.split(kept["ids"], kept["ends"][:-1])
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    ids = []
    with progress_bar("tokens", len(articles), show=progress, unit="article") as bar:
        for start in range(0, len(articles), BATCH):
            batch = list(articles[start : start + BATCH])
            encoded = tokenizer(batch, add_special_tokens=False)["input_ids"]
            ids += [np.array(article + end, dtype=np.int32) for article in encoded]
            bar.update(len(batch))
    if file is not None:
        ends = np.cumsum([len(article) for article in ids])
        with replacing(file) as temporary, temporary.open("wb") as stream:
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
    """Endless batches from step `start` on: every epoch shuffles the blocks anew.

    A step's blocks depend only on the seed and the step, so a resumed run gets the same blocks as
    an uninterrupted one.
    """
    per_epoch = max(1, len(blocks) // rows)
    for step in count(start):
        epoch, index = divmod(step, per_epoch)
        if step == start or not index:
            order = np.random.default_rng([seed, epoch]).permutation(len(blocks))
        yield blocks[order[index * rows : (index + 1) * rows]]


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
    """Let the model write blocks; each begins with a random token that is not a special one.

    Random first words lead to prose, chat, code and arithmetic alike. A block ends only at its full
    length. With `keep`, finished blocks are stored in that folder and not written again. None if
    `deadline` (of time.monotonic) passed before the last block; every call writes at least some.
    """
    request = {"blocks": blocks, "tokens": tokens, "seed": seed, "least": LEAST, "version": 1}
    key = digest(json.dumps({**model.identity, **request}, sort_keys=True))[:16]
    starts = _starts(model, blocks, seed)
    rows = ROWS.get(model.device.type, 256)
    written: list[Blocks] = []
    done, new = 0, 0
    with progress_bar("own text", blocks, show=progress, unit="block") as bar:
        while done < blocks:
            file = None if keep is None else keep / f"own-{key}-{done}.npy"
            if file is not None and file.exists():
                batch = np.load(file, allow_pickle=False).astype(np.int64)
            elif new and time.monotonic() > deadline:
                return None
            else:
                try:
                    batch = _write(model, starts[done : done + rows], tokens, [seed, done])
                except RuntimeError as error:
                    if not out_of_memory(error):
                        raise
                    if rows == 1:
                        raise too_large(model, tokens) from error
                    rows = min(rows, blocks - done) // 2 or 1
                    continue
                new += len(batch)
                if file is not None:
                    # Through memory: NumPy's own error at a full disk does not say so.
                    stream = BytesIO()
                    np.save(stream, batch.astype(np.int32))
                    write_file(file, stream.getvalue())
            written.append(batch)
            done += len(batch)
            bar.update(len(batch))
    return np.concatenate(written)


def _starts(model: Model, blocks: int, seed: int) -> list[tuple[int, ...]]:
    """The first tokens of each block: the BOS token, if texts have one, and a random token."""
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
    """Blocks that continue these starts, computed in bfloat16 on an accelerator."""
    module = cast(Any, plain(model.module))
    number = int(np.random.default_rng(seed).integers(1 << 62))
    rng: torch.Generator | None = None  # on the device of the logits
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
                    f"{model.name} keeps no keys and values while it writes, so it cannot write "
                    "text of its own: give --own 0."
                )
            scores = output.logits[:, -1]
            rng = rng or torch.Generator(scores.device).manual_seed(number)
            ids = noisy(scores, rng).argmax(-1, keepdim=True).to(model.device)
            text.append(ids)
    return torch.cat(text, 1).cpu().numpy()


def noisy(scores: Float[Tensor, "rows vocab"], rng: torch.Generator) -> Float[Tensor, "rows vocab"]:
    """Add noise to scores so that their argmax is a draw from their softmax over likely tokens.

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
