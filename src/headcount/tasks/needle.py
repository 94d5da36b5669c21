"""A needle in a haystack: one sentence in a text of any length, and a question about it at the end.

    Read the text and answer the question after it.

    Text: Mary left a lamp at the beach last Monday. … The password for the old mill is silver
    eagle. … Tom met Ann by chance in front of the station in May.

    Question: What is the password for the old mill?
    Answer: The password for the old mill is                       → silver eagle

The text is made of our own sentences, none of which comes twice, and none of which is like a
needle. A prompt has exactly the asked number of tokens wherever whole sentences can make it up, and
else a few less. A needle (form, key and value) is asked at several depths; its examples have one
content, and so they are all in one split. The same needles are asked at all lengths.

An encoded prompt has three pieces: `borders[1]` and `borders[2]` are the positions where the needle
starts and where it ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headcount.errors import HeadcountError, counted
from headcount.tasks.encoding import continuation_ids, front_ids
from headcount.tasks.items import tables
from headcount.tasks.task import Bos, Example, Task, Tokenizer, of_task

INTRODUCTION = "Read the text and answer the question after it.\n\nText:"
FOILS = 3
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
LONGEST = 1_000_000  # tokens: more sentences than can be told apart
MOST = 2_400  # examples: as many needles as there are keys for each form, at ten depths
SPARE = 1.5  # times as many sentences as one text needs, so that texts differ
NEARLY_FULL = 28  # tokens that are left for the last two sentences


@dataclass(frozen=True)
class NeedleSettings:
    """How long the prompts are, where their needles stand, and how many examples there are.

    length  tokens of a prompt, with BOS and question; the answer comes on top
    depths  where needles stand: 0 is the beginning of the text, 1 its end
    n       examples; every needle is asked at all depths before the next one
    seed    decides which sentences stand around the needles
    """

    length: int = 1000
    depths: tuple[float, ...] = DEPTHS
    n: int = 80
    seed: int = 0
    max_new_tokens: int = 16
    bos: Bos = "auto"

    def __post_init__(self) -> None:
        depths = self.depths if isinstance(self.depths, tuple | list) else (self.depths,)
        object.__setattr__(self, "depths", tuple(depths))
        numbers = all(isinstance(depth, int | float) and 0 <= depth <= 1 for depth in depths)
        if not depths or not numbers or len(set(depths)) < len(depths):
            raise HeadcountError(
                f"The depths of needles are different numbers from 0 to 1, not {self.depths}."
            )
        if not 1 <= self.length <= LONGEST:
            raise HeadcountError(
                f"A needle prompt has from 1 to {LONGEST:,} tokens, not {self.length:,}."
            )
        if not 2 <= self.n <= MOST:
            raise HeadcountError(
                f"The task needle has from 2 to {MOST:,} examples, not {self.n:,}."
            )


def needle(tokenizer: Tokenizer, *, settings: NeedleSettings) -> Task:
    """Find one sentence in a text of a given length, and copy a word or two from it."""
    haystack = _Haystack(tokenizer, settings)
    numbers = range(-(-settings.n // len(settings.depths)))
    needles = [_Needle.of(number) for number in numbers]
    examples = [haystack.example(one, depth) for one in needles for depth in settings.depths][
        : settings.n
    ]
    # By turns, so that every form is in both splits; a single needle cannot be divided.
    tested = frozenset(one.content for one in needles[1::2])
    return Task("needle", 1, tuple(examples), test_contents=tested, **of_task(settings))


def depth_of(example_id: str) -> float:
    """The depth that the id of an example names.

    >>> depth_of("7 at 0.25")
    0.25
    """
    return float(example_id.rpartition(" at ")[2])


@dataclass(frozen=True)
class _Needle:
    """A needle: its form, its key, its value, and other values."""

    number: int
    form: str
    key: str
    value: str
    foils: tuple[str, ...]

    @classmethod
    def of(cls, number: int) -> _Needle:
        """The needle of this number: two of each form follow each other, one for each split."""
        data = tables("needle")
        forms, keys = list(data.pairs("needles")), data.phrases("keys")
        rng = random.Random(f"needle {number}")
        first, second = (rng.sample(data.words(part), FOILS + 1) for part in ("first", "second"))
        value, *foils = (" ".join(words) for words in zip(first, second, strict=True))
        form = forms[number // 2 % len(forms)]
        return cls(number, form, keys[7 * number % len(keys)], value, tuple(foils))

    @property
    def content(self) -> str:
        return f"{self.number}: {self.key}, {self.value}"

    @property
    def sentence(self) -> str:
        pattern = tables("needle").pairs("needles")[self.form]
        return " " + pattern.format(key=self.key, value=self.value)

    @property
    def question(self) -> str:
        question, stem = tables("needle").pairs("questions")[self.form].split(" | ")
        return f"\n\nQuestion: {question}\nAnswer: {stem}".format(key=self.key)


class _Haystack:
    """Sentences as token ids, and prompts of the asked length that are made of them."""

    def __init__(self, tokenizer: Tokenizer, settings: NeedleSettings) -> None:
        self.tokenizer, self.settings = tokenizer, settings
        self.start = tuple(tokenizer.encode(INTRODUCTION, add_special_tokens=False))
        shape = Task("needle", 1, (Example("0", INTRODUCTION, " "),), **of_task(settings))
        self.fixed = len(front_ids(tokenizer, shape)) + len(self.start)
        self.texts: list[str] = []
        self.ids: list[tuple[int, ...]] = []
        tokens = 0
        for text in sentences():
            if tokens > SPARE * settings.length + 200:
                break
            self.texts.append(text)
            self.ids.append(self._continued(text))
            tokens += len(self.ids[-1])

    def _continued(self, text: str) -> tuple[int, ...]:
        return continuation_ids(self.tokenizer, text, inner=True)

    def example(self, one: _Needle, depth: float) -> Example:
        """The prompt of a needle at a depth."""
        sentence, question = self._continued(one.sentence), self._continued(one.question)
        least = self.fixed + len(sentence) + len(question)
        if least > self.settings.length:
            raise HeadcountError(
                f"A needle prompt of {counted(self.settings.length, 'token')} is too short: its "
                f"needle and question alone have {least}; ask for a length of at least {least}."
            )
        chosen = self._chosen(one.number, self.settings.length - least)
        place = self._place(chosen, depth)
        before, after = chosen[:place], chosen[place:]
        ids = [sum((self.ids[i] for i in some), ()) for some in (before, after)]
        texts = ["".join(self.texts[i] for i in some) for some in (before, after)]
        return Example(
            id=f"{one.number} at {depth:g}",
            prompt=f"{INTRODUCTION}{texts[0]}{one.sentence}{texts[1]}{one.question}",
            target=f" {one.value}",
            foils=tuple(f" {foil}" for foil in one.foils),
            template=one.form,
            content=one.content,
            pieces=(self.start + ids[0], sentence, ids[1] + question),
        )

    def _chosen(self, number: int, room: int) -> list[int]:
        """Different sentences with as many tokens as there is room, or a few less."""
        order = list(range(len(self.ids)))
        random.Random(f"haystack {self.settings.seed} {number}").shuffle(order)
        chosen: list[int] = []
        while order and room - len(self.ids[order[-1]]) >= NEARLY_FULL:
            room -= len(self.ids[order[-1]])
            chosen.append(order.pop())
        return chosen + self._last(order, room)

    def _last(self, order: Sequence[int], room: int) -> list[int]:
        """At most three sentences that fill the room, or come nearest to it from below."""
        by_length = {len(self.ids[i]): i for i in order}
        made: dict[int, list[int]] = {0: []}
        for _ in range(3):
            more = {
                total + length: [*some, index]
                for total, some in made.items()
                for length, index in by_length.items()
                if total + length <= room and index not in some
            }
            made = more | made
        return made[max(made)]

    def _place(self, chosen: Sequence[int], depth: float) -> int:
        """How many of these sentences stand before the needle: at the border nearest the depth."""
        lengths = [len(self.ids[i]) for i in chosen]
        wanted = depth * sum(lengths)
        borders = [0]
        for length in lengths:
            borders.append(borders[-1] + length)
        return min(range(len(borders)), key=lambda place: abs(borders[place] - wanted))


def sentences() -> Iterator[str]:
    """Sentences of the haystack without end, none twice, each with a space in front."""
    ioi, own = tables("ioi"), tables("needle")
    patterns = own.lines("sentences")
    words = {
        "place": ioi.words("places"),
        "object": ioi.words("objects"),
        "time": own.phrases("times"),
        "quality": own.phrases("qualities"),
        "state": own.phrases("states"),
        "weather": own.phrases("weathers"),
    }
    names, rng = ioi.words("names"), random.Random("needle sentences")
    seen: set[str] = set()
    while True:
        for pattern in patterns:
            fill = {slot: rng.choice(some) for slot, some in words.items()}
            name, other = rng.sample(names, 2)
            first = fill["time"][0].upper() + fill["time"][1:]
            text = " " + pattern.format(name=name, other=other, time_first=first, **fill)
            if text not in seen:
                seen.add(text)
                yield text
