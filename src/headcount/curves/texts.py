"""Text without questions: blocks of a file, or of text that the model itself writes, as a task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headcount.engine.measure.cost import Counter
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.sparse.settings import OWN_ROUNDS
from headcount.sparse.text import Blocks, Text, load_text, write_own_text
from headcount.store import Store
from headcount.system.files import digest
from headcount.system.paths import cache_dir
from headcount.tasks.encoding import own_prefix
from headcount.tasks.task import Bos, Example, Task

KEEP = "texts"  # folder of the cache for token ids and unfinished own text
VERSION = 1  # of own text; raised when the same request would write another one


@dataclass(frozen=True, eq=False)
class TextRequest:
    """Blocks of text in three parts: for fitting, for testing, and for training.

    path      a file of articles; empty: the model writes the text
    block     tokens in a block
    fitted    blocks of the ranking split, on which heads are ranked and rescaled
    tested    blocks of the test split
    trained   blocks that training will use, each step counted
    held_out  the first articles of a file, which are only tested on; two fifths as many are only
              fitted on
    """

    model: Model
    path: str = ""
    block: int = 128
    fitted: int = 32
    tested: int = 64
    trained: int = 0
    held_out: int = 500

    @property
    def name(self) -> str:
        """What the text is called."""
        return "text of the file" if self.path else "the model's own text"

    @property
    def written(self) -> int:
        """How many blocks the model writes for training."""
        return math.ceil(self.trained / OWN_ROUNDS)

    def count(self, counter: Counter) -> None:
        """Count the tokens that the model writes."""
        if self.known(counter.store) is None and counter.first((id(self), "written")):
            blocks = self.fitted + self.tested + self.written
            counter.passes(self.model, blocks * self.block, "writing")

    def known(self, store: Store | None) -> Text | None:
        """The text, unless the model has to write it."""
        if "_text" not in vars(self):
            if self.path:
                vars(self)["_text"] = self._read()
            elif store is not None:
                own = [store.get_document("own-text", self._context(*part)) for part in self._parts]
                if all(own):
                    vars(self)["_text"] = self._own(*own)
        text: Text | None = vars(self).get("_text")
        return text

    def result(self, lab: Lab) -> Text:
        """Read or write the text; the blocks for testing are spread over all held-out articles."""
        text = self.known(lab.store)
        if text is not None:
            return text

        def written(blocks: int, seed: int) -> Any:
            def make() -> list[list[int]]:
                # Pieces are kept as they are written, so that a run which was stopped goes on.
                how: dict[str, Any] = {"seed": seed, "keep": cache_dir() / KEEP}
                how["progress"] = lab.progress
                found = write_own_text(self.model, blocks, self.block, **how)
                assert found is not None  # there is no deadline
                made: list[list[int]] = found.tolist()
                return made

            return lab.document("own-text", lambda: self._context(blocks, seed), make)

        vars(self)["_text"] = text = self._own(*(written(*part) for part in self._parts))
        return text

    @property
    def _parts(self) -> list[tuple[int, int]]:
        """How many blocks the model writes by which seed.

        Those for training have a seed of their own: how many they are changes no others.
        """
        parts = [(self.tested + self.fitted, 0), (self.written, 1)]
        return parts if self.written else parts[:1]

    def _context(self, blocks: int, seed: int) -> dict[str, Any]:
        about = {"blocks": blocks, "tokens": self.block, "seed": seed, "version": VERSION}
        return {**self.model.identity, **about}

    def _read(self) -> Text:
        parts = (self.held_out, max(1, self.held_out * 2 // 5))
        keep = cache_dir() / KEEP
        text = load_text(self.path, self.model.tokenizer, self.block, *parts, keep=keep)
        fitted, tested = spread(text.constraint, self.fitted), spread(text.final, self.tested)
        return Text(text.train, fitted, tested, text.source)

    def _own(self, held: Any, train: Any = None) -> Text:
        """Own text in its parts."""
        blocks = np.array(held)
        trained = blocks[:0] if train is None else np.array(train)
        source = digest(np.concatenate([blocks, trained]).astype("<i4").tobytes())
        return Text(trained, blocks[self.tested :], blocks[: self.tested], source)

    def task(self, text: Text) -> Task:
        """The blocks for fitting and for testing, as whole texts."""
        tokenizer = self.model.tokenizer
        bos: Bos = "always" if own_prefix(tokenizer, "a") else "never"

        def whole(blocks: Blocks) -> list[str]:
            # The task puts BOS there itself.
            kept = [
                ids[ids != tokenizer.bos_token_id] if bos == "always" else ids for ids in blocks
            ]
            return [tokenizer.decode(ids.tolist()) for ids in kept]

        parts = {"fitted": whole(text.constraint), "tested": whole(text.final)}
        names = {part: [f"{part} {n}" for n in range(len(some))] for part, some in parts.items()}
        examples = [
            Example(name, "", words, content=name, whole_text=True)
            for part, some in parts.items()
            for name, words in zip(names[part], some, strict=True)
        ]
        about = {"text": text.source, "block": self.block, "bos": bos}
        tested = frozenset(names["tested"])
        return Task("text", 1, tuple(examples), about, bos=bos, test_contents=tested)


def spread(blocks: Blocks, count: int) -> Blocks:
    """At most `count` blocks, evenly spread over all, so that they come from many articles.

    >>> spread(np.arange(10).reshape(5, 2), 3)[:, 0].tolist()
    [0, 4, 8]
    """
    places = np.linspace(0, len(blocks) - 1, min(count, len(blocks))).round().astype(int)
    chosen: Blocks = blocks[places]
    return chosen
