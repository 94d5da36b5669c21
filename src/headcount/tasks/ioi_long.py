"""Indirect object identification over a distance: neutral sentences between meeting and giving.

    Last Friday, Mary and John met at the market. The weather was mild … In the end, John gave a
    lamp to →  Mary, not John

The task is that of `ioi`; two to four sentences without any person stand between the clause that
names both and the one in which something is given, so that prompts have 40 to 100 tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.errors import HeadcountError
from headcount.tasks.ioi import giving
from headcount.tasks.task import Bos, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHORTEST, LONGEST = 40, 100  # tokens of a prompt

OPENINGS = (
    "Last Friday, {first} and {second} met at the {place}.",
    "Early in the morning, {first} and {second} went to the {place}.",
    "In the summer, {first} and {second} spent a whole week near the {place}.",
    "After lunch, {first} and {second} walked to the {place} together.",
    "It was almost dark when {first} and {second} came to the {place}.",
    "For the first time, {first} and {second} worked side by side at the {place}.",
)
PASSAGES = (
    "The weather was mild and the streets were quiet that day. A bus went by from time to time, "
    "and the trees stood very still.",
    "A clock struck the hour, and then everything was silent again. The walls were old and painted "
    "white. On the floor lay dust and some dry leaves.",
    "It had rained all night, and the ground was still wet. The air smelled of grass. Far away, a "
    "train could be heard. The clouds moved slowly towards the hills.",
    "Most of the shops were closed, because it was a holiday. The lights in the windows had been "
    "turned off, and nothing moved.",
    "There was music in the distance, and the smell of fresh bread. The sun stood low over the "
    "roofs. Soon the evening would begin.",
    "The news had been good all week. Prices were falling, and the roads were being repaired. The "
    "water in the fountain was running again. Everything looked clean and bright.",
    "Snow covered the fields, and the wind was cold. The river had frozen over during the night, "
    "which was rare in that part of the country.",
    "A long table stood in the middle, covered with old papers. The door was open. Through it came "
    "the noise of the street.",
    "The day was hot. Dust hung in the air, and the grass had turned yellow. Not a single cloud "
    "could be seen. It was the third week without rain.",
    "Posters on the wall spoke of a concert in the autumn. The tickets were cheap, and the hall "
    "was said to be very large.",
    "Years ago there had been a factory here. Now the place was full of flowers and benches. Birds "
    "were singing in the bushes.",
    "The floor had just been cleaned and was still shining. The chairs were set in rows. A warm "
    "light came from the ceiling. It was a quarter past six.",
)
CLOSINGS = (
    "In the end, {giver} gave a {object} to",
    "A little later, {giver} handed a {object} to",
    "Then, {giver} showed a {object} to",
    "Before it was time to leave, {giver} gave a {object} to",
)


def ioi_long(
    tokenizer: PreTrainedTokenizerBase, *, n: int = 200, seed: int = 0, bos: Bos = "auto"
) -> Task:
    """Indirect object identification with two to four neutral sentences in between.

    Each of the `n` examples has its own pair of template and content (place and object); templates
    and orders come round evenly. Templates that this tokenizer writes with fewer than 40 or more
    than 100 tokens are left out.
    """
    forms = [
        (f"l{number:02d}", template)
        for number, template in enumerate(long_templates())
        if _fits(tokenizer, template)
    ]
    if not forms:
        raise HeadcountError(
            f"This tokenizer writes none of the long prompts with {SHORTEST} to {LONGEST} tokens: "
            "choose the task ioi, or bring yours as a JSON Lines file."
        )
    return giving(tokenizer, "ioi-long", "IOI Long", forms, n=n, seed=seed, bos=bos)


def long_templates() -> list[str]:
    """One template for each passage; openings and closings come round."""
    return [
        f"{OPENINGS[number % len(OPENINGS)]} {passage} {CLOSINGS[number % len(CLOSINGS)]}"
        for number, passage in enumerate(PASSAGES)
    ]


def _fits(tokenizer: PreTrainedTokenizerBase, template: str) -> bool:
    filled = template.format(
        first="Mary", second="John", giver="John", place="garden", object="lamp"
    )
    # Other places and objects may take a few tokens more.
    return SHORTEST <= len(tokenizer.encode(filled)) <= LONGEST - 6
