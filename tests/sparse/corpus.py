"""A text that tiny models can learn, and a tiny model with a tokenizer that reads it."""

from __future__ import annotations

import random
from pathlib import Path

from tiny import tiny_model
from toy import WORDS, toy_tokenizer

from headcount import wrap
from headcount.models.model import Model


def write_text(path: Path, articles: int = 120, words: int = 40, seed: int = 0) -> Path:
    """Articles in which each word depends on the one before: three of four times, the same one."""
    rng = random.Random(seed)
    after = {word: rng.choice(WORDS) for word in WORDS}
    made = []
    for _ in range(articles):
        article = [rng.choice(WORDS)]
        while len(article) < words:
            follows = after[article[-1]] if rng.random() < 0.75 else rng.choice(WORDS)
            article.append(follows)
        made.append(" ".join(article))
    path.write_text("\n\n".join(made) + "\n", encoding="utf-8")
    return path


def tiny(name: str = "llama", **overrides: object) -> Model:
    return wrap(tiny_model(name, **overrides), toy_tokenizer(), name=f"tiny-{name}")
