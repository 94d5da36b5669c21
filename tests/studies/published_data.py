"""Data files in the published layouts, and tiny models of the published architectures.

The questions are made up; only their layout is that of the published data.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tasks.tiny_tokenizers import CHAT, SPECIAL, wrap
from tiny import tiny_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast

from headcount.sparse.checkpoint import SparseFacts, write_facts
from headcount.tasks import FUNCTIONS
from headcount.tasks.items import tables

NAMES = ["Mary", "John", "Anna", "Paul", "Rose", "Mark"]
VOCABULARY = 3000
LONG: dict[str, int] = {"vocab_size": VOCABULARY, "max_position_embeddings": 4096}


@cache
def tokenizer(bos: bool) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer, as all these models have, that knows the words of our templates."""
    words = [*tables("ioi").words("names"), *tables("ioi").words("places")]
    words += [*tables("ioi").words("objects"), *tables("greater_than").words("nouns")]
    words += [*tables("docstring").words("names"), *tables("docstring").words("words")]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    parts = ("templates", "openings", "passages", "closings")
    lines = [line for part in parts for line in tables("ioi").lines(part)]
    trained.train_from_iterator([*lines, *lines, *(f"a {w} a {w}" for w in words)], trainer)
    return wrap(trained, bos=bos, chat=CHAT)


def model_folder(folder: Path, kind: str, *, seed: int = 0, sampled: bool = False) -> str:
    """A tiny model of random weights as a folder, as from the hub."""
    sizes = {"vocab_size": VOCABULARY, "n_positions": 2048} if kind == "gpt2" else LONG
    module = tiny_model(kind, seed=seed, **sizes)
    if sampled:
        module.generation_config = GenerationConfig(do_sample=True, temperature=0.6, top_p=0.9)
    module.save_pretrained(folder)
    tokenizer(bos=kind == "llama").save_pretrained(folder)
    return str(folder)


def sparse_folder(folder: Path, kind: str, *, seed: int = 0) -> str:
    """The same with sparse attention."""
    model_folder(folder, kind, seed=seed)
    write_facts(folder, SparseFacts(base=None, gate_bias=0.0))
    return str(folder)


def cogqa_records(first: int, count: int) -> list[dict[str, Any]]:
    records = []
    for number in range(first, first + count):
        skills = [function.name for function in FUNCTIONS.values()]
        steps = [
            {
                "subquestion": f"What is step {n} of {number}?",
                "answer": answer,
                "cognitive_skill": s,
            }
            for n, (s, answer) in enumerate(
                zip(skills, [number, "$3", "yes", *NAMES], strict=False)
            )
        ]
        records.append({"question": f"Mary has {number} lamps?", "answer": "", "generated": steps})
    return records


def big_bench_rows(kind: str, count: int) -> list[dict[str, Any]]:
    rows = []
    for number in range(count):
        right, wrong = ("are", "is") if number % 2 else ("is", "are")
        choices = {"multiple_choice_targets": [right, wrong], "multiple_choice_scores": [1, 0]}
        if kind != "subject_verb_agreement":
            right = NAMES[number % len(NAMES)]
            choices = {"multiple_choice_targets": [], "multiple_choice_scores": []}
        about = {"idx": number, "inputs": f"Q: The {kind} of {number}\nA:", "targets": [right]}
        rows.append({**about, **choices})
    return rows


def commonsense_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"q{number}",
            "question": f"Who went to garden {number}?",
            "question_concept": "garden",
            "choices": {"label": list("ABCDE"), "text": NAMES[:5]},
            "answerKey": "ABCDE"[number % 5],
        }
        for number in range(count)
    ]


def openmath_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "problem": f"What is {number} + 1?",
            "generated_solution": f"{number} + 1 = {number + 1}.\nSo \\boxed{{{number + 1}}}.",
            "expected_answer": str(number + 1) if number != 3 else "",
            "problem_source": "augmented_math",
        }
        for number in range(count)
    ]


def math_500_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "problem": f"What is $2 + {number:02}$?",
            "solution": f"It is \\boxed{{{number + 2}}}.",
            "answer": str(number + 2),
            "subject": ("Algebra", "Geometry")[number % 2],
            "level": 1,
            "unique_id": f"test/{number}.json",
        }
        for number in range(count)
    ]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def write_list(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text(json.dumps(rows), encoding="utf-8")
    return str(path)
