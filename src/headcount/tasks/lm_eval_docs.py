"""Benchmarks of lm-eval: how they are loaded, and their multiple-choice documents as a task.

    make_task("lm-eval", tokenizer, benchmark="arc_easy", docs="training", n=200)

Heads are ranked on such a task, best on its training documents, and tested on the benchmark itself
by `headcount lm-eval`. Benchmarks keep their authors' licences.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headcount.errors import HeadcountError, did_you_mean, unknown
from headcount.system.transformers_compat import replaced
from headcount.tasks.task import Bos, Example, Task, Tokenizer

DOCS = ("test", "training", "validation")
MISSING = "Standard benchmarks need lm-eval: run pip install 'headcount[lm-eval]'."
SHOTS_SEED = 1234  # of lm-eval: which solved examples stand in front
DATA_SEED = 0  # of lm-eval, for benchmarks that shuffle their choices


@dataclass(frozen=True)
class LmEvalSettings:
    """Which documents of which benchmark become examples.

    `docs` are the "test" documents, which lm-eval scores, or those for "training" or "validation".
    `num_fewshot` solved examples stand in front of each (None: as many as the benchmark says). `n`
    examples are used, spread evenly over the parts of a group; 0 means all.
    """

    benchmark: str = ""
    docs: str = "test"
    num_fewshot: int | None = None
    include_path: str = ""
    n: int = 0
    bos: Bos = "auto"

    def __post_init__(self) -> None:
        if self.docs not in DOCS:
            raise unknown("kind of documents", self.docs, DOCS)


def lm_eval_docs(tokenizer: Tokenizer | None = None, *, settings: LmEvalSettings) -> Task:
    """The multiple-choice documents of a benchmark of lm-eval, each with its wrong choices."""
    name = settings.benchmark
    if not name:
        raise HeadcountError("Name the benchmark: benchmark=NAME, such as arc_easy.")
    how = settings.include_path, settings.num_fewshot
    examples: list[Example] = []
    for part in load_benchmarks([name], *how)[name]:
        if part.OUTPUT_TYPE != "multiple_choice" or part.multiple_input:
            raise HeadcountError(
                f"{part.task_name} is no task of examples with choices behind one prompt: test it "
                "by headcount lm-eval, and rank heads on another task."
            )
        documents = islice(_documents(part, settings.docs), settings.n or None)
        with quiet_lm_eval():
            examples += [_example(part, n, document) for n, document in enumerate(documents)]
    task = Task(f"lm-eval: {name}", 1, tuple(examples), bos=settings.bos)
    return task.subset(min(settings.n, len(task))) if settings.n else task


def _documents(part: Any, docs: str) -> Any:
    if docs == "test":
        return part.eval_docs
    if not getattr(part, f"has_{docs}_docs")():
        raise HeadcountError(f"{part.task_name} has no {docs} documents: choose other docs.")
    config, shots = part.config, part.fewshot_cfg
    solved = shots.split or (
        not shots.samples and (config.training_split or config.validation_split)
    )
    if config.num_fewshot and solved == config[f"{docs}_split"]:
        raise HeadcountError(
            f"{part.task_name} takes its solved examples from its {docs} documents, which would "
            "stand in front of themselves: set num_fewshot to 0, or choose other docs."
        )
    return getattr(part, f"{docs}_docs")()


def _example(part: Any, number: int, document: Mapping[str, Any]) -> Example:
    shots, prefix = part.config.num_fewshot, part.doc_to_prefix(document)
    prompt = part.fewshot_context(document, num_fewshot=shots, gen_prefix=prefix)
    requests = part.construct_requests(document, prompt, metadata=(part.task_name, number, 1))
    spaces = prompt[len(prompt.rstrip()) :]  # lm-eval counts them to the answer
    choices = [spaces + request.args[1] for request in requests if request.args[0] == prompt]
    gold = part.doc_to_target(document)
    right = gold if isinstance(gold, list) else [gold]
    if isinstance(gold, str):
        right = [part.doc_to_choice(document).index(gold)]
    target, *also = dict.fromkeys(choices[place] for place in right)
    foils = [choice for choice in dict.fromkeys(choices) if choice not in (target, *also)]
    example = Example(
        id=f"{part.task_name}/{number}",
        prompt=prompt.rstrip(),
        target=target,
        foils=tuple(foils),
        also=tuple(also),
        template=part.task_name,
        content=f"{part.task_name}/{number}",
    )
    return example.checked(f"Document {number} of {part.task_name}")


def load_benchmarks(
    names: Sequence[str], include_path: str = "", num_fewshot: int | None = None
) -> dict[str, list[Any]]:
    """Tasks of lm-eval by the name of their benchmark: one, or the parts of a group.

    `include_path` is a folder of further task files.
    """
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise HeadcountError(MISSING) from error
    if include_path and not Path(include_path).is_dir():
        raise HeadcountError(f"There is no folder {include_path} of task files.")
    with quiet_lm_eval(), _seeded():
        # Reading the index of lm-eval's own tasks takes seconds.
        manager = TaskManager(include_path=include_path or None, include_defaults=not include_path)
        if not set(names) <= set(manager.all_tasks):
            manager = TaskManager(include_path=include_path or None)
        found = {}
        for name in dict.fromkeys(names):
            if name not in manager.all_tasks:
                raise HeadcountError(
                    f'lm-eval has no benchmark "{name}": lm_eval ls tasks lists those it has, and '
                    f"--include-path names a folder of your own."
                    f"{did_you_mean(name, manager.all_tasks)}"
                )
            found[name] = _load(manager, name)
            for part in found[name]:
                _set_shots(part, num_fewshot)
    return found


def _load(manager: Any, name: str) -> list[Any]:
    try:
        return list(manager.load([name])["tasks"].values())
    except Exception as error:  # lm-eval and datasets let errors of many libraries through
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise HeadcountError(
            f"Cannot load the benchmark {name} ({reason.rstrip('.')}): check its task file, its "
            "data set and the network."
        ) from error


def _set_shots(part: Any, num_fewshot: int | None) -> None:
    """Set the number of solved examples, as lm-eval itself does; 0 in a task's own file stays."""
    own = part.config.num_fewshot
    if num_fewshot is not None and own != 0:
        part.set_config(key="num_fewshot", value=num_fewshot)
    elif own is None:
        part.set_config(key="num_fewshot", value=0)
    part.set_fewshot_seed(seed=SHOTS_SEED)


@contextmanager
def quiet_lm_eval() -> Iterator[None]:
    """Silence the messages and progress bars of lm-eval and datasets inside this context."""
    import datasets

    with ExitStack() as stack:
        for name in ("lm_eval", "datasets", "httpx"):
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        stack.enter_context(replaced("lm_eval.api.task", "tqdm", lambda items, **_: items))
        if not datasets.are_progress_bars_disabled():
            stack.callback(datasets.enable_progress_bars)
            datasets.disable_progress_bars()
        yield


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed the global generators, with which some benchmarks shuffle, and restore them."""
    before = random.getstate(), np.random.get_state()
    random.seed(DATA_SEED)
    np.random.seed(SHOTS_SEED)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
