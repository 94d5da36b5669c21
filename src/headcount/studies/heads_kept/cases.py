"""The cases of `heads-kept`: the prompts, rankings and counts of one task and model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from headcount.curves.keep import KeepRequest
from headcount.engine.measure.ablations import form
from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, check_counts
from headcount.metrics import get_logit_metric
from headcount.metrics.answers import usual_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking
from headcount.registry import settings_of
from headcount.studies.heads_kept.config import Config
from headcount.tasks import TASKS, Task, make_task

ALIKE = 3  # a mean by position needs this many ranking prompts of one template and length
FEW = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)  # counts, dense where curves rise
TENTHS = 10  # … and every tenth of all heads, so that nothing above is a straight line


class Sizes(Protocol):
    """How many prompts a study measures, ranks on and validates on, and whether per prompt."""

    @property
    def n(self) -> int:
        """The number of tested prompts."""

    @property
    def ranked(self) -> int:
        """The number of prompts to rank on."""

    @property
    def validated(self) -> int:
        """The number of prompts on which orders are compared with each other."""

    @property
    def per(self) -> str:
        """What has a ranking of its own: "task" or "prompt"."""


@dataclass(frozen=True, eq=False)
class Prompts:
    """The prompts of a case.

    measured    a task whose test split is measured, and whose ranking split gives the means
    ranked      a task on whose ranking split heads are ranked
    validated   a task on whose test split orders are compared with each other; None without any
    left_out    test prompts without their like in the ranking split
    by_position means can be taken by position: most test prompts have their like
    """

    measured: Task
    ranked: Task
    validated: Task | None
    left_out: int
    by_position: bool


@dataclass(frozen=True, eq=False)
class Case:
    """One task and one model."""

    key: str
    title: str
    request: KeepRequest
    validation: KeepRequest | None  # the same orders on prompts that are neither ranked nor tested
    prompts: Prompts
    missing: dict[str, tuple[int, int]]  # prompts asked for and there, by setting, where too few

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.request.model.name


def make_case(key: str, model: Model, config: Config) -> Case:
    """Make the task for the model, and choose prompts, metric, rankings and counts."""
    title, task = make_pool(key, model, config.pool, config.task_settings)
    metric = config.metric
    if metric == "auto":
        metric = usual_metric(model.encode(task))
    prompts = choose_prompts(task, model, config)
    # Without templates no prompt is like another.
    ablations = tuple(a for a in config.ablations if a != "resampled" or prompts.by_position)
    if not ablations:
        raise HeadcountError(
            f"{title} has no prompts of one template and length to resample from: choose another "
            "ablation than resampled."
        )
    rankings = {
        ranking: _ranking(model, prompts.ranked, ranking, metric) for ranking in config.rankings
    }
    request = KeepRequest(
        model,
        prompts.measured,
        rankings,
        get_logit_metric(metric),
        kept_counts(config, model.layout),
        config.seeds,
        config.absolute,
        config.per == "prompt",
        ablations,
    )
    validation = None
    if prompts.validated is not None:
        first = ablations[:1]
        validation = replace(request, task=prompts.validated, seeds=0, ablations=first)
    asked = {"n": (config.n, request.prompts)}
    if config.per == "task":
        asked["ranked"] = config.ranked, len(prompts.ranked.split("ranking"))
    missing = {name: pair for name, pair in asked.items() if pair[1] < pair[0]}
    return Case(key, title, request, validation, prompts, missing)


def make_pool(
    key: str, model: Model, pool: int, task_settings: Mapping[str, Any] | None
) -> tuple[str, Task]:
    """The title of a task and the task, with `pool` prompts unless it is a file of prompts."""
    settings = settings_of(task_settings, key)
    known = TASKS[key].defaults() if key in TASKS else {}
    if known.get("n") and "path" not in known:  # 0 stands for all that there are, as in a file
        settings = {"n": pool, **settings}
    task = make_task(key, model.tokenizer, **settings)
    return (TASKS[key].name if key in TASKS else task.name), task


def choose_prompts(task: Task, model: Model, config: Sizes) -> Prompts:
    """The prompts to measure on, to rank on, and to compare orders on.

    `n` test prompts are measured. Means for ablations are taken over the whole ranking split, but
    for the contents on which orders are validated. Heads are ranked on `ranked` prompts of the
    ranking split, or per prompt on the test prompts themselves.

    A mean by position needs ranking prompts of the same template and length. Test prompts without
    them are left out; if more than half would be left out, all stay, and means are taken over all
    positions instead.
    """
    ranking, test = task.split("ranking"), task.split("test")
    held = _held_out(ranking, config.validated)
    rest = replace(ranking, examples=tuple(e for e in ranking if e.content_id not in held))
    alike = _with_their_like(test, rest, model)
    tested = test if alike is None else alike
    left_out = len(test) - len(tested)
    tested = tested.subset(min(config.n, len(tested)))
    if config.per == "prompt":  # the tested prompts become the ranking split
        others = frozenset(example.content_id for example in ranking)
        to_rank = replace(tested, test_contents=others)
    else:
        to_rank = rest.subset(min(config.ranked, len(rest)))
    measured = replace(task, examples=(*rest.examples, *tested.examples))
    validated = None
    if held:
        chosen = replace(ranking, examples=tuple(e for e in ranking if e.content_id in held))
        compared = _with_their_like(chosen, rest, model) or chosen
        compared = compared.subset(min(config.validated, len(compared)))
        validated = replace(task, examples=(*rest.examples, *compared.examples), test_contents=held)
    return Prompts(measured, to_rank, validated, left_out, alike is not None)


def _held_out(ranking: Task, wanted: int) -> frozenset[str]:
    """Contents of the ranking split that hold about twice as many prompts as are wanted."""
    sizes = Counter(example.content_id for example in ranking)
    held: set[str] = set()
    for content in sorted(sizes, key=lambda content: (sizes[content], content)) if wanted else ():
        if sum(sizes[one] for one in held) >= min(2 * wanted, len(ranking) // 3):
            break
        held.add(content)
    return frozenset(held)


def _with_their_like(test: Task, ranking: Task, model: Model) -> Task | None:
    """The prompts with enough ranking prompts of their form; None if most have too few."""
    forms = Counter(form(prompt, corrupted=True) for prompt in model.encode(ranking))
    alike = tuple(
        prompt.example
        for prompt in model.encode(test)
        if prompt.example.template and forms[form(prompt, corrupted=False)] >= ALIKE
    )
    return replace(test, examples=alike) if 2 * len(alike) >= len(test) else None


def _ranking(model: Model, task: Task, ranking: str, metric: str) -> Ranking:
    """Rank heads by the loss of the metric when their outputs on the corrupted prompt go in."""
    wanted = {"metric": metric, "ablation": "corrupted"}
    known = RANKINGS[ranking].defaults()
    settings = {name: value for name, value in wanted.items() if name in known}
    return Ranking.of(model, task, ranking, **settings)


def kept_counts(config: Config, layout: HeadLayout) -> list[int]:
    """The chosen counts, or few and then every tenth of all heads; with `fine` every fortieth."""
    if config.counts is not None:
        return check_counts(config.counts, layout)
    steps = 4 * TENTHS if config.fine else TENTHS
    spread = [round(layout.total * step / steps) for step in range(1, steps)]
    return check_counts({count for count in (*FEW, *spread) if 0 < count < layout.total}, layout)
