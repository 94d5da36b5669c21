"""Study `needle`: retrieval at length, with and without the heads that look at the needle.

After "Retrieval Head Mechanistically Explains Long-Context Factuality" (Wu et al., 2024), who mask
the heads that copy most and ask for a sentence in texts of up to 50,000 tokens. Heads are ranked at
one length; at every length the best k are masked, at all positions or only where the answer is
predicted, beside as many random heads and as many random heads of the same layers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headcount.curves import Curve, CurveRequest, CurveSettings
from headcount.errors import HeadcountError
from headcount.heads import check_counts
from headcount.metrics import get_logit_metric
from headcount.metrics.chance import chance_of
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking
from headcount.rankings.retrieval import UNIFORM
from headcount.report.estimates import plain_facts
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest, only_model
from headcount.studies.needle.config import LENGTHS, PRESETS, SHARE, Config
from headcount.studies.needle.estimates import estimate
from headcount.studies.needle.figure import draw
from headcount.studies.needle.panels import COLUMNS, METRICS, POSITIONS, SERIES
from headcount.studies.needle.score import SIGNED, both
from headcount.tasks import make_task, task_factory
from headcount.tasks.needle import NeedleSettings, depth_of
from headcount.value_table import ValueTable

ANSWER = 8  # tokens that an answer may have, beyond its prompt
RETRIEVING = 0.1  # the published score from which a head is called a retrieval head


def describe(models: Sequence[Model], config: Config) -> Description:
    """A curve of every length, for both places of the gates."""
    study = _NeedleStudy(only_model(models, KIND.key), config)
    return Description(study.requests(), study.conclude)


def check(config: Config) -> None:
    """Refuse rankings, counts, lengths and settings of the task that do not exist."""
    _ = RANKINGS[config.ranking]
    if config.counts is not None and not any(check_counts(config.counts)):
        raise HeadcountError("needle compares masked heads with the whole model: name a count.")
    for length in config.lengths or LENGTHS[:1]:
        task_factory("needle", length=length, **_settings(config))


def _settings(config: Config) -> dict[str, Any]:
    settings = {"depths": config.depths, "n": config.n, **config.task_settings}
    NeedleSettings(**{"length": 1000, **settings})  # refuses depths and numbers of examples
    return settings


class _NeedleStudy:
    """The study on one model: its tasks, requests and conclusions."""

    def __init__(self, model: Model, config: Config) -> None:
        self.model, self.config = model, config
        total = model.layout.total
        counts = config.counts or [max(1, round(total * SHARE))]
        self.counts = check_counts([0, *counts], model.layout)
        if 2 * self.counts[-1] > total:
            raise HeadcountError(
                f"Random controls need {self.counts[-1]} heads outside the best "
                f"{self.counts[-1]}, and {model.name} has only {total}: choose a smaller count."
            )
        lengths = config.lengths or _readable(model)
        ranked_at = config.ranked_at or lengths[0]
        for length in (*lengths, ranked_at):
            model.check_room(length, ANSWER)
        made = {
            length: make_task("needle", model.tokenizer, length=length, **_settings(config))
            for length in (*lengths, ranked_at)
        }
        self.tasks = {length: made[length] for length in lengths}
        self.ranked = made[ranked_at]
        self.ranking = Ranking.of(model, self.ranked, config.ranking)
        self.metrics = [get_logit_metric(key) for key in METRICS]

    def requests(self) -> dict[Hashable, StudyRequest]:
        requests: dict[Hashable, StudyRequest] = {}
        for length, task in self.tasks.items():
            for positions in POSITIONS:
                settings = CurveSettings(
                    counts=self.counts,
                    series=SERIES,
                    seeds=self.config.seeds,
                    positions=positions,
                )
                how = self.ranking, SIGNED, settings
                requests[length, positions] = CurveRequest(self.model, task, *how)
        return requests

    def conclude(self, results: Results) -> Study:
        """Make estimates, figures and tables of heads from the results."""
        values, name = self._values(results), self.model.name
        scores = next(iter(results.values())).scores
        facts = plain_facts(self._facts(results))
        found = estimate(values, facts)
        models = {name: self.model.facts}
        figures, captions = draw(values, facts, found, models)
        by = {self.config.ranking: scores}
        heads = head_rows(name, "needle", by, clusters=self.ranked.split("ranking").clusters)
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {name}",
            rows=found.rows,
            claims=found.claims,
            figures=figures,
            captions=captions,
            settings={
                **asdict(self.config),
                "lengths": list(self.tasks),
                "counts": self.counts,
                "task": _settings(self.config),
            },
            model=models,
            scores={f"needle-{self.config.ranking}": scores},
            heads=heads,
            notes=[*found.notes, *NOTES],
            tables=found.tables,
            values=values,
            facts=facts,
        )

    def _values(self, results: Results) -> ValueTable:
        """The value of every example at every length, under every head set."""
        values = ValueTable(COLUMNS, ("model", "task"))
        for length, task in self.tasks.items():
            about: dict[str, Any] = {"model": self.model.name, "task": f"needle-{length}"}
            values.name_examples([(e.id, *e.cluster) for e in task.split("test")], **about)
            for positions in POSITIONS:
                curve: Curve = results[length, positions]
                for (series, count), signed in curve.raw.items():
                    # With no head masked, all series and positions are the whole model.
                    if count or (series, positions) == ("top", POSITIONS[0]):
                        how = {"positions": positions, "series": series, "count": count}
                        for metric, table in both(signed).items():
                            values.put(table, **about, metric=metric, **how)
        return values

    def _facts(self, results: Results) -> dict[str, Any]:
        """What estimates need besides the values."""
        scores = next(iter(results.values())).scores
        chances, unmatched = {}, {}
        for length, task in self.tasks.items():
            key = f"needle-{length}"
            chances[key] = chance_of(self.metrics[0], task.split("test"))
            curve: Curve = results[length, POSITIONS[0]]
            unmatched = {p.count: p.unmatched for p in curve.series("matched") if p.unmatched}
        return {
            "model": self.model.name,
            "total": self.model.layout.total,
            "lengths": {f"needle-{length}": length for length in self.tasks},
            "depths": [depth_of(e.id) for e in next(iter(self.tasks.values())).split("test")],
            "metrics": {m.key: m.name for m in self.metrics},
            "chance": {key: asdict(chance) for key, chance in chances.items() if chance},
            "unmatched": unmatched,
            "ranking": self.config.ranking,
            "ranked_at": self.ranked.parameters["length"],
            "ranked_on": len(self.ranked.split("ranking")),
            "retrieving": _retrieving(self.config.ranking, scores),
        }


def _retrieving(ranking: str, scores: Any) -> Mapping[str, Any]:
    """How many heads are retrieval heads by the published threshold, beside knowing nothing."""
    if ranking != "retrieval-score":
        return {}
    heads = int((scores.values >= RETRIEVING).sum())
    return {"heads": heads, "threshold": RETRIEVING, "uniform": scores.parameters[UNIFORM]}


def _readable(model: Model) -> tuple[int, ...]:
    """The lengths that the model can read, with an answer."""
    limit = model.context_limit
    lengths = tuple(n for n in LENGTHS if limit is None or n + ANSWER <= limit)
    if not lengths:
        model.check_room(LENGTHS[0], ANSWER)  # says both numbers
    return lengths


NOTES = (
    "The published heads are of larger models, and the published texts are essays of up to 50,000 "
    "tokens. Ours are made of short sentences, so that no number is compared with a published one.",
    "The answer begins with the needle's own words, so that a model without training in answering "
    "questions can be asked. An answer is right if greedy decoding writes all of its tokens.",
    "Intervals hold the ranking fixed: other ranking prompts were not tried.",
)
KIND = StudyKind(
    "needle", describe, Config, PRESETS, check=check, estimate=estimate, draw=draw, one_model=True
)
