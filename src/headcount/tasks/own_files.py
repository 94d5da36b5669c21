"""Tasks from your own files of examples, for any tokenizer.

A JSON Lines file has one example per line; empty lines are skipped:

    {"prompt": "The capital of France is", "target": " Paris", "foils": [" Rome", " Madrid"]}

prompt      the text right before the target; required
target      the text that should follow, with its leading space; required
foils       a list of wrong answers
also        a list of further right answers, besides the target
corrupted   the corrupted prompt, for patching and for the corrupted and mean ablations
template    the name of the sentence pattern that the prompt fills
content     what fills the pattern (default: the prompt); examples of one content stay in one split,
            and intervals treat examples of one template and content as one cluster
id          a text or a whole number, different in every line (default: "line-N")

A line may also hold two whole sentences, of which a model should find the first more likely (the
layout of BLiMP); then all lines do:

    {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps.", "UID": "agreement"}

sentence_good   the target; nothing but a BOS token stands before it
sentence_bad    the foil
UID             the template (default: none)

Other fields are ignored. With bos "auto" a BOS token stands before each sentence if the tokenizer
has one; without it, the first token of each sentence is read and not scored.

JSON files of clean and corrupt prompts have the layout that circuit-finding projects share:

    {"prompts": [{"clean": "The war lasted from 1742 to 17", "corrupt": "The war lasted …",
                  "answers": ["43", "44"], "wrong_answers": ["41", "42"]}, …]}

clean           the text right before the answer; required
corrupt         the corrupted prompt; required
answers         right answers, as they continue the prompt, with their leading space; the first is
                the target
wrong_answers   the foils

Other fields are ignored. The layout has no templates, so each prompt is a cluster of its own, and
the mean ablation takes means over all positions.

Both kinds of file: an example whose corrupted prompt has another number of tokens than its prompt,
or is equal to it, is left out, for all ablations alike, if this concerns at most a fifth of the
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.system.files import readable
from headcount.tasks.encoding import MOST_LEFT_OUT, has_bos, leave_out_unaligned
from headcount.tasks.json_files import (
    Record,
    Values,
    document,
    exact_text,
    exact_texts,
    lines,
    list_or_lines,
    records,
)
from headcount.tasks.task import Bos, Example, Task, Tokenizer, how_many

NEEDED = ("prompt", "target")
SENTENCES = ("sentence_good", "sentence_bad")
LISTS = ("foils", "also")
FIELDS = (*NEEDED, "corrupted", "template", "content", "id", *LISTS)


def jsonl(
    tokenizer: Tokenizer | None = None,
    *,
    path: str = "",
    n: int = 0,
    bos: Bos = "auto",
    chat: bool = False,
) -> Task:
    """Your own examples, or pairs of sentences, from a JSON Lines file.

    The first `n` lines are used, 0 means all.
    """
    equal: dict[str, str] = {}
    examples = [
        _checked(_example(record, where), f"{where}: the example", equal)
        for where, record in records(path, "examples", lines)
    ]
    kept = tuple(examples[: how_many(n, len(examples), path, "examples")])
    task = Task(readable(Path(path).stem), 1, kept, bos=bos, chat=chat)
    if tokenizer is not None and kept[0].whole_text and bos == "auto":
        rule: Bos = "always" if has_bos(tokenizer) else "never"
        return replace(task, bos=rule, parameters={"bos": rule})  # recorded with every result
    return _aligned(task, tokenizer, equal)


def _checked(example: Example, where: str, equal: dict[str, str]) -> Example:
    """The example, unless it cannot be used.

    Where the corrupted prompt is the prompt, `equal` gets the id of the example and `where` it is,
    and the example loses its corrupted prompt.
    """
    if example.corrupted is not None and example.corrupted == example.prompt:
        equal[example.id] = where
        example = replace(example, corrupted=None)
    return example.checked(where)


def _aligned(task: Task, tokenizer: Tokenizer | None, equal: Mapping[str, str]) -> Task:
    """The task without examples whose corrupted prompts do not fit; too many equal ones refuse it.

    Without a tokenizer, only corrupted prompts that are equal to their prompts are known.
    """
    equal = {example.id: equal[example.id] for example in task if example.id in equal}
    if tokenizer is not None:
        task = leave_out_unaligned(task, tokenizer, equal)
    elif len(equal) <= MOST_LEFT_OUT * len(task):
        task = replace(task, examples=tuple(e for e in task if e.id not in equal))
    stays = next((example.id for example in task if example.id in equal), None)
    if stays is not None:
        raise HeadcountError(
            f"{equal[stays]} has a corrupted prompt that is equal to its prompt: change it (up to "
            f"{MOST_LEFT_OUT:.0%} of the prompts of a file may be so, or differ in length, and are "
            "left out)."
        )
    return task


def _sentences(record: Record, where: str) -> Example:
    """A pair of sentences; the good one is right."""
    good, bad = (exact_text(record, name, where) for name in SENTENCES)
    template = record.get("UID")
    example = Example(
        id=f"line-{where.rsplit(' ', 1)[1]}",
        prompt="",
        target=good,
        foils=(bad,),
        template=template if isinstance(template, str) else "",
        content=f"{good} / {bad}",
        whole_text=True,
    )
    return example.checked(f"{where}: the pair of sentences")


def _example(record: Record, where: str) -> Example:
    if any(name in record for name in SENTENCES):
        return _sentences(record, where)
    refuse_cogqa(record, where)
    fields: dict[str, Any] = {"id": f"line-{where.rsplit(' ', 1)[1]}"}
    for name in dict.fromkeys((*record, *NEEDED)):
        value = record.get(name)
        if name not in FIELDS:
            raise HeadcountError(f"{where}: {unknown('field', name, FIELDS)}")
        if name == "id" and type(value) is int:
            fields[name] = str(value)
        elif value is not None or name in (*NEEDED, "id"):
            fields[name] = (exact_texts if name in LISTS else exact_text)(record, name, where)
    return Example(**fields)


def refuse_cogqa(record: Any, where: str) -> None:
    """Say which task reads a record in the layout of CogQA."""
    if isinstance(record, dict) and "generated" in record:
        path = where.split(", ")[0]
        raise HeadcountError(
            f"{where}: this is a record of CogQA; read the file with --task cogqa --set "
            f"path={path}, or make_task('cogqa', model, path='{path}')."
        )


def clean_corrupt(
    tokenizer: Tokenizer | None = None, *, path: str = "", n: int = 0, bos: Bos = "auto"
) -> Task:
    """Clean and corrupt prompts with right and wrong answers, from a JSON file.

    The first `n` prompts are used, 0 means all.
    """
    prompts = list(records(path, "prompts", _prompts, ids=False))
    equal: dict[str, str] = {}
    examples = []
    for where, record in prompts[: how_many(n, len(prompts), path, "prompts")]:
        answers, wrong = (
            tuple(dict.fromkeys(exact_texts(record, name, where)))  # without repetitions
            for name in ("answers", "wrong_answers")
        )
        if not answers or not wrong:
            raise HeadcountError(
                f'{where}: the fields "answers" and "wrong_answers" each need at least one text.'
            )
        example = Example(
            id=where.removeprefix(f"{path}, ").replace(" ", "-"),
            prompt=exact_text(record, "clean", where),
            target=answers[0],
            foils=wrong,
            corrupted=exact_text(record, "corrupt", where),
            also=answers[1:],
        )
        examples.append(_checked(example, where, equal))
    return _aligned(Task(readable(Path(path).stem), 1, tuple(examples), bos=bos), tokenizer, equal)


def _prompts(path: Path) -> Values:
    try:
        _, first = next(list_or_lines(path))
    except (HeadcountError, StopIteration):
        first = None  # `document` says what is wrong
    refuse_cogqa(first, str(path))
    data = document(path)
    prompts = data.get("prompts") if isinstance(data, dict) else None
    if not isinstance(prompts, list):
        raise HeadcountError(
            f'{path} has no list "prompts": the layout is {{"prompts": [{{"clean": …, "corrupt": …,'
            ' "answers": […], "wrong_answers": […]}]}.'
        )
    return ((f"prompt {number}", prompt) for number, prompt in enumerate(prompts, start=1))
