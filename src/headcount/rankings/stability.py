"""Stability by cause: how much of a ranking comes from what might as well have been otherwise.

Heads are ranked again with one cause changed at a time, several levels each:

    prompts         other prompts of the same templates
    templates       other templates, and so other prompts too
    few-shot draw   other solved examples in front of the same prompts
    seed            another seed of the ranking
    ablation        another ablation by which it ranks
    BOS             with and without a BOS token in front

Each level is ranked on every set of prompts, so that a cause crosses the prompts. Scores are
standardised: over heads, each ranking has the mean 0 and the variance 1. On the mean of all heads,

    prompts       the variance between sets of prompts of the same templates
    a cause       the variance between its levels, each the mean over sets, without what sets add
    with prompts  what a level does on some sets and not on others (the interaction)

What all of this leaves of 1 is the part of the heads themselves. Each cause is changed alone, so
the parts may be more than 1 together: then nothing is left that is the heads' own. Templates have
prompts of their own, so they have no such interaction. Intervals are a jackknife over the sets
of prompts, with one degree of freedom less than there are sets; levels are held as they are. What
two causes other than prompts do only together is not seen.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.sweep import Sweep, whole_model
from headcount.errors import HeadcountError, counted
from headcount.heads import HeadScores
from headcount.lab import Lab, check_asked, lab_for
from headcount.metrics import get_metric
from headcount.models.model import Model
from headcount.rankings.agreement import chance_overlap, spearman
from headcount.rankings.ranking import Ranking
from headcount.rankings.variance_shares import HEADS, TOGETHER, Tables, shares_of
from headcount.stats import Interval
from headcount.system.files import digest
from headcount.system.frames import data_frame
from headcount.tasks import TASKS, Example, Task, make_task
from headcount.tasks.encoding import has_bos
from headcount.tasks.task import Bos

if TYPE_CHECKING:
    import pandas

LEVELS = 3
FEWEST = 2  # prompts of one level


@dataclass(frozen=True, eq=False)
class CauseLevel:
    """A level of a cause: a request for each set of prompts.

    For fits with several seeds, `sample` is the row of their samples.
    """

    label: str
    requests: tuple[Ranking, ...]
    sample: int | None = None

    def scores(self, lab: Lab) -> list[Float[np.ndarray, "heads"]] | None:
        """The scores on each set; None if the ranking keeps no samples."""
        rows = []
        for found in (request.result(lab) for request in self.requests):
            samples = [found.values] if self.sample is None else found.samples
            if samples is None or (self.sample or 0) >= len(samples):
                return None
            rows.append(samples[self.sample or 0])
        return rows


@dataclass(frozen=True)
class CausePart:
    """What one cause does to a ranking.

    share        of the variance of the scores, on all sets of prompts alike
    together     the share of its interaction with the prompts; None where it has none
    correlation  Spearman's, on the mean of all pairs of levels and all sets
    overlap      the share of the best heads that two levels have in common, on the same mean
    """

    cause: str
    levels: tuple[str, ...]
    share: Interval
    together: Interval | None
    correlation: float
    overlap: float

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every number."""
        together = self.together and self.together.to_json()
        return {**asdict(self), "share": self.share.to_json(), "together": together}


@dataclass(frozen=True)
class VarianceTable:
    """The parts of a ranking's variance, and the causes that do not apply, with the reason."""

    ranking: str
    settings: Mapping[str, Any]
    model: str
    task: str
    prompts: int
    top: int
    chance: float  # the overlap of two random rankings
    parts: tuple[CausePart, ...]
    heads: Interval  # the share of the heads themselves
    left_out: Mapping[str, str]
    scores: Tables  # by cause: those of all heads by level and set; of prompts by set and group
    note: str = ""  # that the whole model is at chance

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every number."""
        own = {"parts": [part.to_json() for part in self.parts], "heads": self.heads.to_json()}
        numbers = {
            cause: [[[float(f"{score:.6g}") for score in row] for row in rows] for rows in table]
            for cause, table in self.scores.items()
        }
        return {"format": "headcount stability 2", **asdict(self), **own, "scores": numbers}

    def to_frame(self) -> pandas.DataFrame:
        """The parts as a pandas data frame: a row for each cause, with the ends of its share."""
        return data_frame(
            [
                {
                    **asdict(part),
                    "share": part.share.value,
                    "low": part.share.low,
                    "high": part.share.high,
                    "together": part.together.value if part.together else math.nan,
                }
                for part in self.parts
            ]
        )

    def __str__(self) -> str:
        header = ["cause", "levels", "share of variance", "with prompts", "rank correlation"]
        header.append(f"top {self.top}")
        rows = [
            [
                part.cause,
                ", ".join(part.levels),
                _share(part.share),
                _share(part.together) if part.together else "",
                "unknown" if math.isnan(part.correlation) else f"{part.correlation:.2f}",
                f"{part.overlap:.2f}",
            ]
            for part in self.parts
        ]
        rows.append([HEADS, "", _share(self.heads), "", "", f"chance {self.chance:.2f}"])
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (header, *rows)
        ]
        title = f"{self.ranking} of {self.model} on {self.task}, {self.prompts} prompts each time"
        apart = [f"{cause}: does not apply, because {why}" for cause, why in self.left_out.items()]
        apart += [f"! {self.note}"] * bool(self.note)
        return "\n".join([title, "", *lines, *[""] * bool(apart), *apart])


@dataclass(frozen=True, eq=False)
class Stability:
    """A request for the variance table of one ranking on one task."""

    model: Model
    task: Task
    name: str
    settings: Mapping[str, Any]
    levels: int = LEVELS
    top: int = 10

    def causes(self) -> tuple[dict[str, list[CauseLevel]], dict[str, str]]:
        """The levels of each cause, the base first, and why other causes do not apply."""
        if self.levels < 2 or not 1 <= self.top <= self.model.layout.total:
            raise HeadcountError(
                f"Stability needs at least 2 levels and 1 to {self.model.layout.total} best heads, "
                f"not {self.levels} and {self.top}."
            )
        grid, left_out = self._grid(), dict[str, str]()
        groups, sets = (sorted({place[axis] for place in grid}) for axis in (0, 1))
        rankings = {place: self._on(examples) for place, examples in grid.items()}
        base = [rankings[0, j] for j in sets]
        found = {
            "prompts": [
                CauseLevel(f"set {j + 1}", tuple(rankings[i, j] for i in groups)) for j in sets
            ]
        }
        if len(groups) > 1:
            found["templates"] = [
                CauseLevel(f"set {i + 1}", tuple(rankings[i, j] for j in sets)) for i in groups
            ]
        else:
            left_out["templates"] = "all prompts have the same template"
        for cause, make in {
            "few-shot draw": self._draws,
            "seed": self._seeds,
            "ablation": self._ablations,
            "BOS": self._bos,
        }.items():
            made = make(base)
            if isinstance(made, str):
                left_out[cause] = made
            else:
                found[cause] = made
        return found, left_out

    def count(self, counter: Counter) -> None:
        """Count all rankings, and the whole model."""
        counter.sweep(self._whole())
        for levels in self.causes()[0].values():
            for level in levels:
                for request in level.requests:
                    request.count(counter)

    def result(self, lab: Lab) -> VarianceTable:
        """Rank again for every level on every set, and take the variance apart."""
        causes, left_out = self.causes()
        tables = {}
        with lab.remembering() as remembering:
            for cause, levels in causes.items():
                rows = [level.scores(remembering) for level in levels]
                if any(row is None for row in rows):
                    left_out[cause] = "the ranking keeps no scores of single seeds"
                else:
                    tables[cause] = np.array(rows)
        scores = {cause: table for cause, table in tables.items() if cause != "templates"}
        shares = shares_of(scores)
        parts = tuple(
            CausePart(
                cause,
                tuple(level.label for level in causes[cause]),
                shares[cause],
                shares.get(f"{cause}{TOGETHER}"),
                *self._alike(table),
            )
            for cause, table in tables.items()
        )
        chance, _, _ = chance_overlap(self.model.layout.total, self.top)
        base = causes["prompts"][0].requests[0]
        prompts = len(base.examples)
        about = self.name, base.settings, self.model.name, self.task.name, prompts, self.top, chance
        note = lab.measure(self._whole()).at_chance
        return VarianceTable(*about, parts, shares[HEADS], left_out, scores, note)

    def _whole(self) -> Sweep:
        metric = get_metric(self.settings.get("metric", "accuracy"))
        return whole_model(self.model, self.task, metric, "ranking")

    def _alike(self, table: Float[np.ndarray, "levels sets heads"]) -> tuple[float, float]:
        """The correlation and the overlap of two levels, on the mean of all pairs and sets."""
        layout, correlations, shared = self.model.layout, [], []
        for rows in table.swapaxes(0, 1):
            tops = [set(HeadScores(layout, row, self.name).order()[: self.top]) for row in rows]
            correlations += [spearman(a, b) for a, b in combinations(rows, 2)]
            shared += [len(a & b) / self.top for a, b in combinations(tops, 2)]
        return float(np.mean(correlations)), float(np.mean(shared))

    def _on(self, examples: Sequence[Example], **settings: Any) -> Ranking:
        task = replace(self.task, examples=tuple(examples))
        return Ranking.of(self.model, task, self.name, **{**self.settings, **settings})

    def _grid(self) -> dict[tuple[int, int], list[Example]]:
        """Sets of ranking prompts of one size, by group of templates and by set of prompts.

        Templates are dealt into groups and the prompts of each template into sets, both in the
        order of a hash.
        """
        ranked = sorted(self.task.split("ranking"), key=lambda e: digest(e.id))
        templates = sorted({e.template for e in ranked}, key=digest)
        groups = {name: n % min(self.levels, len(templates)) for n, name in enumerate(templates)}
        grid: dict[tuple[int, int], list[Example]] = {
            (i, j): [] for i in set(groups.values()) for j in range(self.levels)
        }
        seen = Tally[str]()
        for example in ranked:
            own = example.template
            grid[groups[own], seen[own] % self.levels].append(example)
            seen[own] += 1
        size = min(map(len, grid.values()))
        if size < FEWEST:
            raise HeadcountError(
                f"The ranking split of {self.task.name} has {counted(len(ranked), 'prompt')}, too "
                f"few for {len(grid)} sets of at least {FEWEST}: give the task more examples."
            )
        return {place: examples[:size] for place, examples in grid.items()}

    def _draws(self, base: Sequence[Ranking]) -> list[CauseLevel] | str:
        """The same prompts behind other solved examples, where the task draws them."""
        known = TASKS[self.task.name].defaults() if self.task.name in TASKS else {}
        given = {n: value for n, value in self.task.parameters.items() if n in known}
        name = next((n for n in ("draw", "seed") if n in given), "")
        if not name or not given.get("shots"):
            return "the task draws no solved examples"
        levels, wanted = [], [[e.id for e in one.task.examples] for one in base]
        for value in range(self.levels):
            made = make_task(self.task.name, self.model, **{**given, name: value})
            by_id = {e.id: e for e in made}
            if not all(key in by_id for keys in wanted for key in keys):
                return "another draw of the task has other prompts"
            again = tuple(self._on([by_id[key] for key in keys]) for keys in wanted)
            levels.append(CauseLevel(f"{name} {value}", again))
        return levels

    def _seeds(self, base: Sequence[Ranking]) -> list[CauseLevel] | str:
        """Other seeds of a ranking, or the single fits of one that takes several."""
        settings = base[0].settings
        if "seed" in settings:
            first = int(settings["seed"])
            chosen = range(first, first + self.levels)
            return [CauseLevel(f"seed {n}", self._with(base, seed=n)) for n in chosen]
        if "seeds" in settings:
            fits = self._with(base, seeds=self.levels)
            return [CauseLevel(f"seed {row}", fits, row) for row in range(self.levels)]
        return "the ranking draws nothing at random"

    def _ablations(self, base: Sequence[Ranking]) -> list[CauseLevel] | str:
        """Other ablations that the prompts allow."""
        own = base[0].settings.get("ablation")
        if own is None:
            return "the ranking ablates nothing"
        paired = all(e.corrupted is not None for one in base for e in one.task.examples)
        others = [a for a in ("zero", "clean-mean", "resampled") if a != own]
        others += [a for a in ("corrupted", "mean") if paired and a != own]
        chosen = [own, *others[: self.levels - 1]]
        return [CauseLevel(name, self._with(base, ablation=name)) for name in chosen]

    def _bos(self, base: Sequence[Ranking]) -> list[CauseLevel] | str:
        """With and without a BOS token."""
        if self.task.chat:
            return "the chat template decides about it"
        if not has_bos(self.model.tokenizer):
            return "the tokenizer has none"
        rules: dict[str, Bos] = {"with": "always", "without": "never"}
        return [
            CauseLevel(label, tuple(replace(one, task=replace(one.task, bos=rule)) for one in base))
            for label, rule in rules.items()
        ]

    def _with(self, base: Sequence[Ranking], **settings: Any) -> tuple[Ranking, ...]:
        """The rankings of the base with other settings."""
        return tuple(self._on(one.task.examples, **settings) for one in base)


def _share(found: Interval) -> str:
    ends = f" [{found.low:.2f}, {found.high:.2f}]" if found.known else ""
    return f"{found.value:.2f}{ends}"


def variance_table(
    model: Model,
    task: Task,
    ranking: str = "attribution",
    *,
    levels: int = LEVELS,
    top: int = 10,
    lab: Lab | None = None,
    **settings: Any,
) -> VarianceTable:
    """How much of a ranking's variance is prompts, templates, few-shot draw, seed, ablation, BOS.

    Each cause is changed alone, at `levels` levels on as many sets of prompts; `top` is the number
    of best heads that are compared. Settings are those of the ranking.

    >>> from headcount import load_model, make_task
    >>> model = load_model("smollm2-135m-q4")
    >>> found = variance_table(model, make_task("ioi", model, n=96), "random", levels=2)
    >>> [(part.cause, part.share.value) for part in found.parts[:2]]
    [('prompts', 0.0), ('templates', 0.0)]
    """
    check_asked(model, task)
    return Stability(model, task, ranking, settings, levels, top).result(lab_for(lab, model))
