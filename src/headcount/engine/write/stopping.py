"""Where a written text ends: at an end token, before a stop string, or by the rule `until`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headcount.engine.write.settings import Decoding
from headcount.models.model import Model
from headcount.tasks.answer_endings import ENDINGS


@dataclass(frozen=True)
class Generation:
    """The text that a model wrote after one prompt.

    `ids` are the tokens before the end token; if a stop string ended the text, they include it,
    while `text` does not.
    """

    ids: tuple[int, ...]
    text: str
    finished: bool  # whether the text came to an end; False if `max_new_tokens` cut it


def cut(model: Model, ids: list[int], ends: set[int], decoding: Decoding) -> Generation:
    """Decode new tokens, and cut them where the text ends."""
    end = next((i for i, token in enumerate(ids) if token in ends), None)
    finished = end is not None
    ids = ids if end is None else ids[:end]
    text = _text(model, ids)
    stop = decoding.stop
    cuts = [text.index(string) for string in stop if string in text]
    if cuts:
        text, finished = text[: min(cuts)], True
        # A row that stopped goes on receiving tokens until all rows have stopped: remove them.
        while any(string in _text(model, ids[:-1]) for string in stop):
            ids = ids[:-1]
    sign, end_of = _ending(decoding)
    if end_of is not None and end_of(text) is not None:
        finished = True
        last = next(
            n
            for n in range(1, len(ids) + 1)
            if sign in _text(model, ids[n - 1 : n]) and end_of(_text(model, ids[:n])) is not None
        )
        if last < len(ids):
            ids, text = ids[:last], _text(model, ids[:last])
    return Generation(tuple(ids), text, finished)


def _text(model: Model, ids: Sequence[int]) -> str:
    if model.tokenizer is None:
        return ""
    text: str = model.tokenizer.decode(
        ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return text


def _ending(decoding: Decoding) -> tuple[str, Callable[[str], int | None] | None]:
    ending = ENDINGS.get(decoding.until)
    return ("", None) if ending is None else (ending.sign, ending.end)


class Stopping:
    """Ends rows whose text contains a stop string or is complete by the rule `until`.

    It compares decoded text, since a stop string can be tokenized in several ways. transformers'
    own stop strings analyse the vocabulary instead, which does not work for every tokenizer.
    """

    def __init__(self, model: Model, decoding: Decoding, width: int = 0) -> None:
        self.model, self.stop, self.width = model, decoding.stop, width
        self.sign, self.end_of = _ending(decoding)
        # As many last tokens as can hold a stop string: most have a byte or more, 8 may be empty.
        self.tail = max((len(string.encode()) for string in self.stop), default=0) + 8
        self.signs: dict[int, bool] = {}  # whether a token's own text contains the sign

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        """Called by `generate` after each step."""
        start = self.width if self.end_of else max(self.width, input_ids.shape[1] - self.tail)
        return torch.tensor(self.ended(input_ids[:, start:].tolist()), device=input_ids.device)

    def ended(self, rows: list[list[int]], new: int = 1) -> list[bool]:
        """Which rows contain a stop string near their end, or are complete.

        `new` is the number of tokens that each row has gained since the last call.
        """
        return [self._complete(row, new) or self._stopped(row, new) for row in rows]

    def _stopped(self, row: list[int], new: int) -> bool:
        text = _text(self.model, row[-self.tail - new + 1 :]) if self.stop else ""
        return any(string in text for string in self.stop)

    def _complete(self, row: list[int], new: int) -> bool:
        """Whether `until` ends the text; decodes it only if a new token contains the sign."""
        if self.end_of is None or not any(map(self._has_sign, row[-new:])):
            return False
        return self.end_of(_text(self.model, row)) is not None

    def _has_sign(self, token: int) -> bool:
        if token not in self.signs:
            self.signs[token] = self.sign in _text(self.model, [token])
        return self.signs[token]
