"""Benchmarks of lm-eval under the best heads of a ranking and under random controls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, cast

import numpy as np
from lm_eval.api.metrics import mean, nanmean

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, head_gates
from headcount.errors import HeadcountError
from headcount.figures.style import SERIES
from headcount.heads import HeadScores, HeadSet, check_counts, check_listed, listed_counts
from headcount.integrations.lm_eval.model import Asked, HeadcountLM, TokenWriting
from headcount.integrations.lm_eval.settings import CONTROLS, BenchmarkSettings
from headcount.lab import Lab, lab_for
from headcount.models.model import Model, check_model
from headcount.rankings import fitting
from headcount.rankings.random_draws import draw_matched, draw_random
from headcount.registry import make_settings
from headcount.report.benchmark_study import COLUMNS, SHARED, benchmark_study
from headcount.report.study import Study
from headcount.tasks.lm_eval_docs import load_benchmarks, quiet_lm_eval
from headcount.value_table import ValueTable

GIVEN = "given heads"
Found = dict[str, dict[int, float]]  # by metric: the value of each document


def benchmarks(
    model: Model,
    names: Sequence[str],
    heads: Any,
    *,
    lab: Lab | None = None,
    **settings: Any,
) -> Study:
    """Run benchmarks of lm-eval under the best heads of a ranking, or under given heads.

    `heads` are scores (`rank` makes them), of which the best are masked, or names of heads. The
    whole model and random heads are run, too. Settings are those of `BenchmarkSettings`;
    docs/examples/run_benchmark.py is an example.
    """
    chosen = make_settings("benchmarks", BenchmarkSettings, settings)
    check_model(model)
    loaded = load_benchmarks(names, chosen.include_path, chosen.num_fewshot)
    request = BenchmarksRequest(model, loaded, scores_of(heads, model), chosen)
    return request.result(lab_for(lab, model))


def scores_of(heads: Any, model: Model) -> HeadScores:
    """Scores that fit the model; given heads are the best heads of scores of their own."""
    if isinstance(heads, HeadScores):
        return fitting(heads, model)
    gates = HeadSet(heads).gates(model.layout)
    if (gates == 1).all():
        raise HeadcountError("Give at least one head, or scores of a ranking.")
    return HeadScores(model.layout, 1.0 - gates, GIVEN)


@dataclass(frozen=True, eq=False)
class BenchmarksRequest:
    """Benchmarks under all head sets, before they are run: `loaded` as `load_benchmarks` does."""

    model: Model
    loaded: Mapping[str, Sequence[Any]]
    scores: HeadScores
    settings: BenchmarkSettings

    @cached_property
    def counts(self) -> list[int]:
        """The numbers of heads, with that of the whole model."""
        given = self.scores.ranking == GIVEN
        usual = [int(self.scores.values.sum())] if given else [8, 16]
        asked = usual if self.settings.counts is None else self.settings.counts
        whole = self.model.layout.total if self.settings.keep else 0
        if self.settings.counts is None:
            asked = listed_counts(self.scores, asked)
        check_listed(self.scores, asked)
        return check_counts([whole, *asked], self.model.layout)

    @cached_property
    def points(self) -> tuple[list[tuple[str, int]], list[str]]:
        """The series and counts that can be measured, and a sentence for each that cannot."""
        points, left_out, total = [], [], self.model.layout.total
        for series in dict.fromkeys(self.settings.series):
            for count in self.counts:
                outside = total - count
                if (
                    series in CONTROLS
                    and count > outside
                    and not (self.settings.keep and not outside)
                ):
                    left_out.append(
                        f"{SERIES[series]} at {count} heads is left out: only {outside} of {total} "
                        f"heads are outside the top {count}."
                    )
                else:
                    points.append((series, count))
        return points, left_out

    @cached_property
    def head_sets(self) -> HeadSets:
        """The gates of all points, with one row for each draw."""
        return HeadSets.build(self.model.layout, self._entries())

    def _entries(self) -> Iterator[HeadSetEntry]:
        layout, chosen = self.model.layout, self.settings
        for series, count in self.points[0]:
            top = self.scores.best(count).tolist()
            for draw in range(chosen.seeds if series in CONTROLS else 1):
                heads = top
                if series in CONTROLS and count < layout.total:
                    heads = (
                        draw_random(layout, count, outside=top, seed=draw).tolist()
                        if series == "random"
                        else draw_matched(layout, top, seed=draw)[0].tolist()
                    )
                gates = head_gates(layout, heads, keep=chosen.keep, off=chosen.epsilon)
                yield HeadSetEntry((series, count), gates)

    @cached_property
    def asked(self) -> dict[str, list[tuple[Any, list[Asked]]]]:
        """The measurements that each part of each benchmark needs."""
        lm = HeadcountLM(self.model, head_sets=self.head_sets)
        return {
            name: [(part, lm.asked(_requests(part, lm, self.settings))) for part in parts]
            for name, parts in self.loaded.items()
        }

    def count(self, counter: Counter) -> None:
        """Tell the counter what will be measured."""
        for parts in self.asked.values():
            for one in (one for _, asked in parts for one in asked):
                if isinstance(one.request, TokenWriting):
                    counter.writing(one.request)
                else:
                    counter.sweep(one.request)

    def result(self, lab: Lab) -> Study:
        """Measure, let lm-eval score the answers, and put the scores of all documents together."""
        values, notes = ValueTable(COLUMNS, SHARED), list(self.points[1])
        chances: dict[str, float] = {}
        with lab.remembering() as own:
            for name, parts in self.asked.items():
                # For each part, the scores of each head set.
                scored = [(part, _scored(part, asked, own)) for part, asked in parts]
                notes += self._put(values, name, scored)
                if chance := _chance([part for part, _ in parts]):
                    chances[name] = chance
        settings = {
            **asdict(self.settings),
            "counts": self.counts,
            "benchmarks": {
                name: {part.task_name: _version(part) for part in parts}
                for name, parts in self.loaded.items()
            },
            "ranking": self.scores.ranking,
            "lm-eval": version("lm-eval"),
        }
        about = self.model, self.scores, settings
        return benchmark_study(values, *about, chances=chances, notes=notes)

    def _put(
        self, values: ValueTable, name: str, scored: Sequence[tuple[Any, list[Found]]]
    ) -> list[str]:
        """Put the values of a benchmark into the table; returns what is left out of it."""
        about = {"model": self.model.name, "task": name}
        ids = [
            (part.task_name, f"{part.task_name}/{number}")
            for part, found in scored
            for number in _documents(found)
        ]
        # The parts of a group are drawn anew, too; a single one is none of many.
        several = len(scored) > 1
        named = [(own, part if several else own, own) for part, own in ids]
        values.name_examples(named, **about)
        metrics = dict.fromkeys(metric for _, found in scored for metric in found[0])
        kept = [metric for metric in metrics if all(_averages(*one, metric) for one in scored)]
        if not kept:
            raise HeadcountError(
                f"No score of {name} is a mean over its documents ({', '.join(metrics)}), so that "
                "nothing can be said of its intervals: run it by lm_eval --model headcount."
            )
        for metric in kept:
            for label, rows in self.head_sets.rows.items():
                series, count = cast("tuple[str, int]", label)
                table = [
                    [float(v) for _, found in scored for v in found[row][metric].values()]
                    for row in rows
                ]
                values.put(table, **about, series=series, metric=metric, count=count)
        left = [metric for metric in metrics if metric not in kept]
        return [f"{name}: left out, as no mean over documents: {', '.join(left)}."] * bool(left)


def _requests(part: Any, lm: HeadcountLM, settings: BenchmarkSettings) -> list[Any]:
    """The requests of a task of lm-eval, each as often as it is to be answered."""
    if getattr(part, "UNSAFE_CODE", False) or getattr(part, "MULTIMODAL", False):
        raise HeadcountError(
            f"{part.task_name} runs code that the model wrote, or shows it pictures, which "
            "headcount does not do: leave it out."
        )
    chat: dict[str, Any] = {}
    if settings.chat:
        chat = {"chat_template": lm.apply_chat_template, "tokenizer_name": lm.tokenizer_name}
        chat |= {"apply_chat_template": True, "fewshot_as_multiturn": True}
    with _running(part, "make the prompts"):
        part.build_all_requests(limit=settings.limit, rank=0, world_size=1, **chat)
    if any(one.request_type not in ("loglikelihood", "generate_until") for one in part.instances):
        raise HeadcountError(
            f"{part.task_name} scores whole texts, and headcount lm-eval scores choices and "
            "written answers: run it by lm_eval --model headcount."
        )
    return [one for one in part.instances for _ in range(one.repeats or 1)]


@contextmanager
def _running(part: Any, what: str) -> Iterator[None]:
    """Run a task of lm-eval; templates and functions of task files let any error through."""
    try:
        with quiet_lm_eval():
            yield
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise HeadcountError(
            f"Cannot {what} of {part.task_name} ({reason.rstrip('.')}): check its task file; what "
            "was measured is kept."
        ) from error


def _scored(part: Any, asked: Sequence[Asked], lab: Lab) -> list[Found]:
    """The scores of each head set, which lm-eval gives to its answers."""
    numbers = np.concatenate([one.numbers for one in asked])
    answers = np.concatenate([one.answers(lab) for one in asked], axis=1)[:, np.argsort(numbers)]
    return [_score(part, row.tolist()) for row in answers]


def _score(part: Any, answers: Sequence[Any]) -> Found:
    """The metrics of every document, as lm-eval computes them from answers to its requests."""
    documents: dict[int, list[Any]] = defaultdict(list)
    given = iter(answers)
    for one in part.instances:
        one.resps, one.filtered_resps = [next(given) for _ in range(one.repeats or 1)], {}
        documents[one.doc_id].append(one)
    found: Found = defaultdict(dict)
    with _running(part, "score the answers"):
        part.apply_filters()
        for name in part.instances[0].filtered_resps:
            for number, some in sorted(documents.items()):
                some.sort(key=lambda one: one.idx)
                texts = [one.filtered_resps[name] for one in some]
                for metric, value in part.process_results(some[0].doc, texts).items():
                    found[metric if name == "none" else f"{metric},{name}"][number] = value
    return found


def _documents(found: Sequence[Found]) -> list[int]:
    return sorted({number for values in found[0].values() for number in values})


def _averages(part: Any, found: Sequence[Found], metric: str) -> bool:
    """Whether a score of a benchmark is the mean of a number for every document."""
    by = part.aggregation().get(metric.split(",")[0], mean)
    numbers = [value for row in found for value in row.get(metric, {}).values()]
    every = all(len(row.get(metric, ())) == len(_documents(found)) for row in found)
    return (
        by in (mean, nanmean)
        and every
        and all(isinstance(n, int | float | np.number) for n in numbers)
    )


def _chance(parts: Sequence[Any]) -> float | None:
    """The share of right guesses among the choices of each document; None without choices."""
    shares = []
    for part in parts:
        if part.OUTPUT_TYPE != "multiple_choice":
            return None
        documents: dict[int, Any] = {one.doc_id: one.doc for one in part.instances}
        for document in documents.values():
            right = (
                part.doc_to_text(document) if part.multiple_input else part.doc_to_target(document)
            )
            choices = len(part.doc_to_choice(document))
            shares.append((len(right) if isinstance(right, list) else 1) / choices)
    return float(np.mean(shares))


def _version(part: Any) -> dict[str, Any]:
    return {"version": str(part.VERSION), "num_fewshot": part.config.num_fewshot}
