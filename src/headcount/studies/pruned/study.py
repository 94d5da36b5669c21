"""Study `pruned`: accuracy and loss of smaller checkpoints, against the share that is kept.

Whole key/value groups are removed, the same number in every layer, or the same number of query
heads in each group: what a stock config can hold. The best are kept by a ranking, or random ones.
Each pruned model is measured as it is, rescaled (one factor for each head, folded into the weights)
and, if asked for, healed by a short training. Pruned and rescaled models are measured by gates on
the whole model; healed ones are made.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from headcount.curves.healed import HealedRequest, PrunedShape, SpeedRequest
from headcount.curves.pruned import (
    BEST,
    HEALED,
    RANDOM,
    WHOLE,
    Chosen,
    PrunedHeads,
    PrunedRequest,
    Pruning,
)
from headcount.curves.texts import TextRequest
from headcount.engine.measure.sweep import Values
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics.chance import chance_of
from headcount.models.groups import (
    GROUPS,
    HEADS,
    Geometry,
    best_kept,
    choose_size,
    geometry_of,
    random_kept,
)
from headcount.models.model import Model
from headcount.models.prune import pruned_module, stock_sizes
from headcount.rankings import RANKINGS
from headcount.report.estimates import plain_facts
from headcount.report.study import Study
from headcount.sparse.settings import Settings
from headcount.sparse.text import text_file
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest, only_model
from headcount.studies.pruned.config import PRESETS, TEXT, Config
from headcount.studies.pruned.estimates import estimate
from headcount.studies.pruned.figure import draw
from headcount.studies.pruned.panels import (
    ACCURACY,
    COLUMNS,
    LOSS,
    SHARED,
    SPEED,
    SPEEDS,
)
from headcount.tasks import TASKS, Task, make_task, task_factory
from headcount.value_table import ValueTable

CHECKS = 25  # steps between two looks at the loss during training


def describe(models: Sequence[Model], config: Config) -> Description:
    """Every task and the text, healed models, and the speed of each size."""
    study = PrunedStudy(only_model(models, KIND.key), config)
    return Description(study.requests(), study.conclude, before=study.prove)


def check(config: Config) -> None:
    """Refuse tasks, rankings, files and settings that do not exist."""
    for key in (*config.tasks, *([] if config.ranked_on == TEXT else [config.ranked_on])):
        task_factory(key, **config.task_settings)
    if config.ranking.endswith(".json"):
        HeadScores.load(config.ranking)
    else:
        RANKINGS[config.ranking].bind()
    if config.text:
        text_file(config.text)
    _ = healing(config)


def healing(config: Config) -> Settings | None:
    """The settings of the training that heals; None without steps."""
    if not config.heal_steps:
        return None
    return Settings(
        steps=config.heal_steps,
        block=config.block,
        batch=config.batch,
        own=0.0,
        rank=config.rank,
        alpha=float(config.rank),
        check_every=CHECKS,
        evaluate_every=2 * CHECKS,
        seed=config.seed,
        anneal=0.0,
        dense_share=0.0,
    )


class PrunedStudy:
    """The study on one model: its sizes, requests and conclusions."""

    def __init__(self, model: Model, config: Config) -> None:
        self.model, self.config = model, config
        self.whole, self.sizes = geometry_of(model), _sizes(model, config)
        limit = model.context_limit
        if limit is not None and config.block > limit:
            raise HeadcountError(
                f"Blocks of {config.block} tokens are longer than the {limit} that {model.name} "
                "can read: choose a smaller --block."
            )
        self.tasks = {key: self._task(key) for key in config.tasks}
        steps = config.heal_steps * config.batch
        blocks = config.block, config.fitted, config.tested, steps, config.held_out
        self.text = TextRequest(model, config.text, *blocks)
        ranked_on = None if config.ranked_on == TEXT else self._all_of(config.ranked_on)
        ranking: str | HeadScores = config.ranking
        if config.ranking.endswith(".json"):
            ranking = given = HeadScores.load(config.ranking)
            for size in self.sizes:
                best_kept(given, self.whole, size)  # refuses scores of another model
        how = ranking, ranked_on, config.draws, config.rescale
        self.pruning = Pruning(model, self.sizes, self.text, *how)

    def _all_of(self, key: str) -> Task:
        return make_task(key, self.model.tokenizer, **self.config.task_settings)

    def _task(self, key: str) -> Task:
        """The test examples of a task; whole answers are compared where there are wrong ones."""
        test = self._all_of(key).split("test")
        return test.subset(min(self.config.n, len(test)))

    def prove(self, lab: Lab) -> None:
        """Refuse a model that cannot be pruned to these sizes, before anything is measured."""
        for size in self.sizes:
            pruned_module(self.model, random_kept(self.whole, size, 0).astype(np.float32))

    def requests(self) -> dict[Hashable, StudyRequest]:
        """All requests, by key."""
        tests = {TEXT: PrunedRequest(self.pruning, None)}
        for key, task in self.tasks.items():
            metric = "choice" if all(example.foils for example in task) else "accuracy"
            tests[key] = PrunedRequest(self.pruning, task, metric)
        found: dict[Hashable, StudyRequest] = {"chosen": self.pruning}
        for size in self.sizes:
            shape = PrunedShape(self.pruning, size)
            found[SPEED, size] = SpeedRequest(shape, rounds=self.config.rounds)
        found |= {("tested", key): test for key, test in tests.items()}
        settings = healing(self.config)
        if settings is not None:
            for size in self.sizes:
                for draw in (None, *range(self.config.healed_draws)):
                    shape = PrunedShape(self.pruning, size, draw)
                    found[HEALED, size, draw] = HealedRequest(shape, tests, settings)
        return found

    def conclude(self, results: Results) -> Study:
        """Make estimates, the figure and tables from the results."""
        name, values = self.model.name, self._values(results)
        facts = plain_facts(self._facts(results))
        found, models = estimate(values, facts), {name: self.model.facts}
        figures, captions = draw(values, facts, found, models)
        scores = results["chosen"].scores
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {name}",
            rows=found.rows,
            claims=found.claims,
            figures=figures,
            captions=captions,
            settings={**asdict(self.config), "task": dict(self.config.task_settings)},
            model=models,
            scores={f"{kind}-{score.ranking}": score for kind, score in scores.items()},
            notes=[*found.notes, *self._notes()],
            tables=found.tables,
            values=values,
            facts=facts,
        )

    def _values(self, results: Results) -> ValueTable:
        """The value of every example under every head set, and the speed of every round."""
        table = ValueTable(COLUMNS, SHARED)
        for key in (TEXT, *self.tasks):
            about = {"model": self.model.name, "task": key}
            values: Values = results["tested", key]
            named = self.tasks.get(key) or results["chosen"].text.split("test")
            table.name_examples([(e.id, *e.cluster) for e in named], **about)
            about["metric"] = LOSS if key == TEXT else ACCURACY
            sign = -1 if key == TEXT else 1  # the loss is minus the log-probability
            for label in values.head_sets.rows:
                table.put(sign * values.of(label), **about, **vars(label))
            for label, healed in self._healed(results):
                rows = np.stack([one[key] for one in healed])
                table.put(sign * rows, **about, **asdict(label))
        self._put_speeds(table, results)
        return table

    def _healed(self, results: Results) -> Iterator[tuple[PrunedHeads, list[Any]]]:
        """The values of healed models: of the best heads, and of random draws."""
        if not self.config.heal_steps:
            return
        for size in self.sizes:
            for series, draws in ((BEST, [None]), (RANDOM, [*range(self.config.healed_draws)])):
                healed = [results[HEALED, size, draw] for draw in draws]
                if healed:
                    yield self.pruning.label(series, HEALED, size), healed

    def _put_speeds(self, table: ValueTable, results: Results) -> None:
        about = {"model": self.model.name, "task": SPEED}
        rounds = [f"round {number + 1}" for number in range(self.config.rounds)]
        table.name_examples([(name, "", name) for name in rounds], **about)
        for size in self.sizes:
            for what in SPEEDS:
                for series, speeds in results[SPEED, size]["speeds"][what].items():
                    label = self.pruning.label(series, "", size)
                    table.put(speeds, **about, **asdict(label), metric=what)

    def _facts(self, results: Results) -> dict[str, Any]:
        """What estimates need besides the values."""
        chances = {}
        for key, task in self.tasks.items():
            chances[key] = chance_of(results["tested", key].metric, task)
        sizes = []
        for size in self.sizes:
            label = self.pruning.label(BEST, "", size)
            of = self.whole.per_group if label.kept == HEADS else self.whole.groups
            footprint = results[SPEED, size]["footprints"][BEST]
            sizes.append({"kept": label.kept, "count": label.count, "of": of})
            sizes[-1] |= {"footprint": footprint, "layers": self._kept(results["chosen"], size)}
        rankings = {kind: score.ranking for kind, score in results["chosen"].scores.items()}
        on = TEXT if self.config.ranked_on == TEXT else self._name(self.config.ranked_on)
        return {
            "model": self.model.name,
            "geometry": str(self.whole),
            "sizes": sizes,
            "footprint": results[SPEED, self.sizes[0]]["footprints"][WHOLE],
            "tasks": {**{key: self._name(key) for key in self.tasks}, TEXT: self.text.name},
            "chance": {key: asdict(chance) for key, chance in chances.items() if chance},
            "rankings": f"{' and '.join(dict.fromkeys(rankings.values()))} on the {on}",
            "healing": self._healing,
            "healed_draws": list(range(self.config.healed_draws)),
        }

    def _kept(self, chosen: Chosen, size: Geometry) -> list[str]:
        """The best groups, or query heads, that are kept in each layer."""
        kept: Any = self.whole.by_group(chosen.kept(size, None))
        if self.whole.removed(size) == GROUPS:
            kept = kept.any(2)
        layers = kept.reshape(self.whole.layers, -1)
        return [" ".join(map(str, np.flatnonzero(layer))) for layer in layers]

    @property
    def _healing(self) -> str:
        config = self.config
        tokens = config.heal_steps * config.batch * config.block
        return (
            f"{config.heal_steps} steps of {config.batch} blocks ({tokens:,} tokens of "
            f"{self.text.name}), adapters of rank {config.rank}, merged"
        )

    @staticmethod
    def _name(key: str) -> str:
        return TASKS[key].name if key in TASKS else Path(key).stem

    def _notes(self) -> list[str]:
        config, speed = self.config, SpeedRequest(PrunedShape(self.pruning, self.sizes[0]))
        notes = [
            "A group counts as the mean of its query heads' scores. Pruned and rescaled models "
            "were measured by gates on the whole model, to which they are proven equal; healed "
            "ones and speeds on the pruned weights themselves.",
            "Rescaled: in every layer, the factors of the heads that are kept are the least "
            "squares of the block's output on "
            f"{config.fitted} blocks of {self.text.name}, as the whole model has it there†.",
            f"Speeds: {speed.rows} texts of {speed.read} tokens, and {speed.new} more tokens each, "
            f"on {self.model.device}, both models in turns.",
            "Intervals hold the ranking and the training seed fixed.",
        ]
        if not self.text.path:
            notes.append(
                "The text was written by the whole model, so that its loss there is the lowest "
                "that any model can be expected to have, and a difference of losses is the "
                "divergence from it."
            )
        if config.heal_steps:
            notes.append(f"Healed: {self._healing}; a short training, which does not converge.")
        return notes


def _sizes(model: Model, config: Config) -> list[Geometry]:
    """The sizes that are asked for, which a stock config must hold; all, if none are named."""
    possible, whole = stock_sizes(model), geometry_of(model)
    groups, heads = config.keep_groups, config.keep_heads_per_group
    asked = [{"keep_groups": number} for number in groups or ()]
    asked += [{"keep_heads_per_group": number} for number in heads or ()]
    if asked or groups is not None or heads is not None:
        named = [choose_size(model.name, whole, possible, **one) for one in asked]
        possible = sorted({*named}, key=possible.index)
    if not possible:
        raise HeadcountError(f"No stock config of {model.name} holds fewer heads ({whole}).")
    return possible


KIND = StudyKind("pruned", describe, Config, PRESETS, check=check, estimate=estimate, draw=draw)
