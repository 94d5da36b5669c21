"""The cases of `heads-kept`: the prompts, rankings and counts of one task and model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from headcount.curves.keep import KeepRequest
from headcount.engine.measure.ablations import form
from headcount.heads import HeadLayout, check_counts
from headcount.metrics import get_logit_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking
from headcount.studies.heads_kept.config import Config
from headcount.tasks import TASKS, Encoded, Task, make_task

ALIKE = 3  # a mean by position needs this many ranking prompts of one template and length
# Shares of all heads, dense where curves rise. Of 270 heads: 5, 11, 16, 22, 30, 40, 54, 73, …
SHARES = (0.02, 0.04, 0.06, 0.08, 0.11, 0.15, 0.2, 0.27, 0.35, 0.5, 0.7)
COARSE = (0.04, 0.08, 0.15, 0.27, 0.5, 0.7)


@dataclass(frozen=True, eq=False)
class Case:
    """One task and one model."""

    key: str
    title: str
    request: KeepRequest
    ranked: Task  # its ranking split is what heads are ranked on
    left_out: int  # test prompts without their like in the ranking split
    missing: dict[str, tuple[int, int]]  # prompts asked for and there, by setting, where too few

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.request.model.name


def make_case(key: str, model: Model, config: Config) -> Case:
    """Make the task for the model, and choose prompts, metric, rankings and counts."""
    settings = dict(config.task_settings or {})
    named = key in TASKS
    known = TASKS[key].defaults() if named else {}
    if "n" in known and "path" not in known:  # a file gives all that it has
        settings = {"n": config.pool, **settings}
    task = make_task(key, model.tokenizer, **settings)
    title = TASKS[key].name if named else task.name
    metric = config.metric
    if metric == "auto":
        metric = _metric_for(model.encode(task))
    per_prompt = config.per == "prompt"
    measured, ranked, left_out = choose_prompts(
        task, model, config.n, config.ranked, per_prompt=per_prompt
    )
    request = KeepRequest(
        model,
        measured,
        {ranking: _ranking(model, ranked, ranking, metric) for ranking in config.rankings},
        get_logit_metric(metric),
        *_counts(config, model.layout),
        config.seeds,
        per_prompt,
    )
    asked = {"n": (config.n, request.prompts)}
    if not per_prompt:
        asked["ranked"] = config.ranked, len(ranked)
    missing = {name: pair for name, pair in asked.items() if pair[1] < pair[0]}
    return Case(key, title, request, ranked, left_out, missing)


def _metric_for(examples: list[Encoded]) -> str:
    """The published metrics for answers of one token, and whole answers for longer ones."""
    answers = [ids for e in examples for ids in (e.target, *e.also, *e.foils)]
    if max(map(len, answers)) > 1:
        return "logprob_difference"
    return "mass_difference" if any(e.also for e in examples) else "logit_difference"


def choose_prompts(
    task: Task, model: Model, n: int, ranked: int, *, per_prompt: bool = False
) -> tuple[Task, Task, int]:
    """The task to measure on, the task to rank on, and how many test prompts are left out.

    `n` test prompts are measured. The mean ablation takes its means over the whole ranking split.
    Heads are ranked on `ranked` prompts of the ranking split, or with `per_prompt` on the test
    prompts themselves.

    A mean by position needs ranking prompts of the same template and length. Test prompts without
    them are left out; if more than half would be left out, all stay, and means are taken over all
    positions instead.
    """
    ranking, test = task.split("ranking"), task.split("test")
    forms = Counter(form(prompt, corrupted=True) for prompt in model.encode(ranking))
    alike = tuple(
        prompt.example
        for prompt in model.encode(test)
        if prompt.example.template and forms[form(prompt, corrupted=False)] >= ALIKE
    )
    by_position = 2 * len(alike) >= len(test)
    usable = replace(test, examples=alike) if by_position else test
    tested = usable.subset(min(n, len(usable)))
    if per_prompt:  # call the other contents the test split, so that the tested prompts are ranked
        others = frozenset(example.content_id for example in ranking)
        to_rank = replace(tested, test_contents=others)
    else:
        to_rank = ranking.subset(min(ranked, len(ranking)))
    measured = replace(task, examples=(*ranking.examples, *tested.examples))
    return measured, to_rank, len(test) - len(alike) if by_position else 0


def _ranking(model: Model, task: Task, ranking: str, metric: str) -> Ranking:
    """Rank heads by the loss of the metric when their outputs on the corrupted prompt go in."""
    wanted = {"metric": metric, "ablation": "corrupted"}
    known = RANKINGS[ranking].defaults()
    settings = {name: value for name, value in wanted.items() if name in known}
    return Ranking.of(model, task, ranking, **settings)


def _counts(config: Config, layout: HeadLayout) -> tuple[list[int], list[int]]:
    """The counts of the first ranking, and the fewer counts of all other orders."""
    total, counts = layout.total, config.counts
    if counts is None and config.fine:
        counts = tuple(range(0, total, max(1, total // 90)))
    if counts is not None:
        chosen = check_counts(counts, layout)
        return chosen, chosen[::2]
    fine, coarse = ([max(1, round(s * total)) for s in shares] for shares in (SHARES, COARSE))
    return check_counts(fine, layout), check_counts(coarse, layout)
