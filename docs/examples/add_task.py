"""A task of your own: the opposite of an everyday word."""

import headcount
from headcount import Example, Task, evaluate, load_model, make_task

PAIRS = [("hot", "cold"), ("old", "young"), ("up", "down"), ("day", "night"), ("fast", "slow"),
         ("rich", "poor"), ("open", "closed"), ("left", "right"), ("wet", "dry"),
         ("early", "late"), ("hard", "soft"), ("full", "empty")]  # fmt: skip


@headcount.task("opposites", "Opposites")
def opposites(tokenizer, *, n: int = 0) -> Task:
    """The opposite of an everyday word; `n` words, 0 for all."""
    examples = [
        Example(
            id=word,
            prompt=f"The opposite of big is small. The opposite of {word} is",
            target=f" {other}",  # with the space in front, as in running text
            foils=(f" {word}",),  # for metrics that compare
            corrupted=f"The opposite of big is small. The colour of {word} is",  # for patching
            content=word,  # examples of one content stay in one split
        )
        for word, other in PAIRS
    ]
    return Task("opposites", version=1, examples=tuple(examples[: n or None]))


if __name__ == "__main__":
    model = load_model("smollm2-135m-q4")
    task = make_task("opposites", model.tokenizer, n=10)
    whole = evaluate(model, task, model.layout.gates(off=[]), metric="choice")
    print(f"{task}: the right word before the given one in {whole.mean()[0]:.0%}")
