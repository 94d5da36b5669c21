"""Questions of published data sets, from the hub or from local files in the published layouts.

The data are not ours and do not come with headcount. A file is a JSON list of records, or has one
record per line. GSM8K (Cobbe et al., 2021):

    {"question": "Anna has 3 pens and buys 4. How many …?",
     "answer": "She has 3 + 4 = <<3+4=7>>7 pens.\\n#### 7"}

CommonsenseQA (Talmor et al., 2019), in any of its common layouts:

    {"id": …, "question": {"stem": …, "choices": [{"label": "A", "text": …}, …]}, "answerKey": "A"}
    {"id": …, "question": …, "choices": {"label": ["A", …], "text": [..., …]}, "answerKey": "A"}
    {"input": "question\\na: option\\nb: option\\n…", "output": "a"}

OpenMathInstruct-2 (Toshniwal et al., 2024):

    {"problem": …, "generated_solution": …, "expected_answer": "7", "problem_source": …}

BIG-bench (Srivastava et al., 2022), as `tasksource/bigbench` has it; a folder has one file for each
of its tasks, such as tense.jsonl:

    {"inputs": "The keys to the cabinet", "targets": ["are"],
     "multiple_choice_targets": ["is", "are"], "multiple_choice_scores": [0, 1]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from headcount.errors import HeadcountError, unknown
from headcount.tasks.hub import rows_of
from headcount.tasks.items import Item
from headcount.tasks.json_files import Record, exact_texts, text_of
from headcount.tasks.roles import PublishedSettings, pool_task
from headcount.tasks.task import Task, Tokenizer, quoted

Ending = Literal["words", "marks", "none"]
ENDINGS: dict[Ending, str] = {"words": "The answer is {}.", "marks": "#### {}", "none": ""}


def _rows(
    settings: PublishedSettings, what: str, config: str = "", path: str = ""
) -> Iterator[tuple[str, Record]]:
    where = path or settings.path
    return rows_of(where, what, config=config, split=settings.split, revision=settings.revision)


@dataclass(frozen=True)
class Gsm8kSettings(PublishedSettings):
    """`ending` says what the last line, "#### 7", becomes: words, the same marks, or nothing."""

    path: str = "openai/gsm8k"
    config: str = "main"
    ending: Ending = "words"
    max_new_tokens: int = 256


def gsm8k(tokenizer: Tokenizer, settings: Gsm8kSettings) -> Task:
    """GSM8K: word problems with whole solutions, from the hub or a file in its layout.

    The target is the whole solution. The calculator annotations (<<3+4=7>>) are removed, and the
    last line becomes a sentence ("The answer is 7."): our choice, not the published study's.
    """
    if settings.ending not in ENDINGS:
        raise unknown("ending", settings.ending, ENDINGS)
    items: dict[Item, None] = {}
    for where, record in _rows(settings, "GSM8K records", settings.config):
        question = " ".join(text_of(record, "question", where).split())
        answer = solution(text_of(record, "answer", where), settings.ending)
        if not answer:
            raise HeadcountError(f'{where}: the field "answer" holds no solution.')
        items[Item(question, answer, "", question)] = None
    return pool_task("gsm8k", list(items), tokenizer, settings, stop=("\n\n",))


def solution(answer: str, ending: Ending = "words") -> str:
    r"""The solution as a target, without the calculator annotations.

    >>> solution("3 + 4 = <<3+4=7>>7 pens.\n#### 7")
    '3 + 4 = 7 pens.\nThe answer is 7.'
    """
    lines = []
    for line in re.sub(r"<<[^<>]*>>", "", answer).splitlines():
        text = " ".join(line.split())
        if final := re.fullmatch(r"#### ?(.+)", text):
            text = ENDINGS[ending].format(final[1])
        lines.append(text)
    return "\n".join(filter(None, lines))


@dataclass(frozen=True)
class CommonsenseQASettings(PublishedSettings):
    """The target is the text of the answer; with `letters`, the letter of a listed option."""

    path: str = "tau/commonsense_qa"
    letters: bool = False


def commonsense_qa(tokenizer: Tokenizer, settings: CommonsenseQASettings) -> Task:
    """CommonsenseQA from the hub or a file, with one solved item in front of each question.

    An option that a record gives twice (a few records do) is listed once.
    """
    options: dict[Item, tuple[str, ...]] = {}
    for where, record in _rows(settings, "CommonsenseQA records"):
        question, choices, key = _choices(record, where)
        right = [text for label, text in choices if label.casefold() == key.casefold()]
        if len(right) != 1:
            raise HeadcountError(
                f"{where}: the answer {quoted(key)} names {len(right)} of the options; name one."
            )
        listed = tuple(dict.fromkeys(text for _, text in choices))
        wrong = tuple(text for text in listed if text != right[0])
        if not wrong:
            raise HeadcountError(f"{where}: give at least one wrong option besides the answer.")
        options.setdefault(Item(question, right[0], "", question, wrong), listed)
    chosen = options if settings.letters else None
    return pool_task("commonsense-qa", list(options), tokenizer, settings, options=chosen)


def _choices(record: Record, where: str) -> tuple[str, list[tuple[str, str]], str]:
    """The question, the label and text of each option, and the label of the right option."""
    if "input" in record:
        question, *lines = text_of(record, "input", where).splitlines()
        matches = [re.fullmatch(r"\s*(\w)\s*[:.)]\s*(.+)", line) for line in lines]
        if not lines or None in matches:
            raise HeadcountError(
                f'{where}: write the question in the first line of the field "input", and an '
                'option such as "a: chair" in each further line.'
            )
        options = [(match[1], match[2].strip()) for match in matches if match]
        return question.strip(), options, text_of(record, "output", where)
    fields = record.get("question")
    if isinstance(fields, dict):
        question, choices = text_of(fields, "stem", where), fields.get("choices")
    else:
        question, choices = text_of(record, "question", where), record.get("choices")
    if isinstance(choices, dict):
        labels, texts = choices.get("label"), choices.get("text")
        if not (isinstance(labels, list) and isinstance(texts, list) and len(labels) == len(texts)):
            raise HeadcountError(f"{where}: the choices need as many labels as texts.")
        choices = [{"label": label, "text": t} for label, t in zip(labels, texts, strict=True)]
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise HeadcountError(f'{where}: the field "choices" must list objects with label and text.')
    options = [
        (
            text_of(choice, "label", f"{where}, a choice"),
            text_of(choice, "text", f"{where}, a choice"),
        )
        for choice in choices
    ]
    if not str(record.get("answerKey") or "").strip():
        raise HeadcountError(
            f'{where}: the field "answerKey" is missing or empty; take a file that comes with the '
            "answers."
        )
    return question, options, text_of(record, "answerKey", where)


@dataclass(frozen=True)
class OpenMathSettings(PublishedSettings):
    """`shortest` problems with their solutions are used, by tokens; 0 takes all."""

    path: str = "nvidia/OpenMathInstruct-2"
    split: str = "train_1M"
    shortest: int = 55_050
    max_new_tokens: int = 256


def openmath(tokenizer: Tokenizer, settings: OpenMathSettings) -> Task:
    """OpenMathInstruct-2: the shortest problems with whole solutions, from the hub or a file."""
    items: dict[str, Item] = {}
    for where, record in _rows(settings, "OpenMathInstruct records"):
        if str(record.get("expected_answer") or "").strip():
            problem = text_of(record, "problem", where)
            solution = text_of(record, "generated_solution", where)
            items.setdefault(problem, Item(problem, solution, "", problem))
    chosen = list(items.values())
    if settings.shortest:
        # Tokens of a million texts take minutes, so few are counted: the shortest by characters.
        chosen = sorted(chosen, key=_characters)[: 2 * settings.shortest]
        texts = [f"{item.question} {item.answer}" for item in chosen]
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        order = sorted(range(len(chosen)), key=lambda number: len(ids[number]))
        chosen = [chosen[number] for number in order[: settings.shortest]]
    return pool_task("openmath", chosen, tokenizer, settings, stop=("\n\n",))


def _characters(item: Item) -> int:
    return len(item.question) + len(item.answer)


@dataclass(frozen=True)
class BigBenchSettings(PublishedSettings):
    """`subsets` are the tasks of BIG-bench, and `each` how many rows of each are used (0: all)."""

    path: str = "tasksource/bigbench"
    subsets: str = "linguistic_mappings tense subject_verb_agreement"
    each: int = 0


def big_bench(tokenizer: Tokenizer, settings: BigBenchSettings) -> Task:
    """Syntax of BIG-bench: three of its tasks together, from the hub, a folder or a file."""
    items: dict[tuple[str, str], Item] = {}
    folder = Path(settings.path).is_dir()
    names = settings.subsets.replace(",", " ").split()
    for name in names if folder or not Path(settings.path).exists() else [""]:
        path = f"{settings.path}/{name}.jsonl" if folder else settings.path
        rows = _rows(settings, "BIG-bench rows", name, path)
        for where, record in islice(rows, settings.each or None):
            item = _big_bench_item(record, name, where)
            items.setdefault((name, item.question), item)
    return pool_task("big-bench", list(items.values()), tokenizer, settings)


def _big_bench_item(record: Record, name: str, where: str) -> Item:
    """A row as an item; the frame of the question (Q:, choices, A:) is removed."""
    lines = text_of(record, "inputs", where).splitlines()
    kept = [line.strip() for line in lines if not re.match(r"\s*choice:", line)]
    question = re.sub(r"^Q:\s*|\s*A:$", "", " ".join(filter(None, kept))).strip()
    right = exact_texts(record, "targets", where)
    if not right or not right[0].strip() or not question:
        raise HeadcountError(f'{where}: "inputs" and "targets" must not be empty.')
    answer = right[0].strip()
    given = exact_texts(record, "multiple_choice_targets", where)
    wrong = tuple(dict.fromkeys(text.strip() for text in given if text not in right))
    return Item(question, answer, name, question, tuple(filter(None, wrong)))
