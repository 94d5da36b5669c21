"""Stability by cause: how much of a ranking comes from what might as well have been otherwise.

Heads are ranked again with one cause changed at a time, several levels each:

    prompts         other prompts of the same templates
    templates       other templates, and so other prompts too
    few-shot draw   other solved examples in front of the same prompts
    seed            another seed of the ranking
    ablation        another ablation by which it ranks
    BOS             with and without a BOS token in front

Scores are standardised: over heads, each ranking has the mean 0 and the variance 1. The component
of a cause is the variance of a head's score between the levels, on the mean of all heads; that of
templates is less by that of prompts, which change with them. What the components leave of 1 is the
part of the heads themselves, and the shares of all parts sum to 1. Causes are changed one at a
time from one base, so what they do only together is not seen.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

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
from headcount.system.files import digest
from headcount.tasks import TASKS, Example, Task, make_task
from headcount.tasks.encoding import has_bos

LEVELS = 3
FEWEST = 2  # prompts of one level
HEADS = "heads"  # what no cause explains


@dataclass(frozen=True, eq=False)
class CauseLevel:
    """One ranking of a cause: a request and, for fits with several seeds, one row of samples."""

    label: str
    request: Ranking
    sample: int | None = None

    def scores(self, found: HeadScores) -> Float[np.ndarray, "heads"] | None:
        """The scores of this level; None if the ranking keeps no samples."""
        if self.sample is None:
            return found.values
        samples = found.samples
        return None if samples is None or self.sample >= len(samples) else samples[self.sample]


@dataclass(frozen=True)
class CausePart:
    """What one cause does to a ranking.

    share        of the variance of the scores
    correlation  Spearman's, on the mean of all pairs of levels
    overlap      the share of the best heads that two levels have in common, on the mean of pairs
    """

    cause: str
    levels: tuple[str, ...]
    variance: float
    share: float
    correlation: float
    overlap: float


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
    heads: float  # the share of the heads themselves
    left_out: Mapping[str, str]
    note: str = ""  # that the whole model is at chance

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every number."""
        return {"format": "headcount stability 1", **asdict(self)}

    def __str__(self) -> str:
        header = ["cause", "levels", "share of variance", "rank correlation", f"top {self.top}"]
        rows = [
            [
                part.cause,
                ", ".join(part.levels),
                f"{part.share:.2f}",
                "unknown" if math.isnan(part.correlation) else f"{part.correlation:.2f}",
                f"{part.overlap:.2f}",
            ]
            for part in self.parts
        ]
        rows.append([HEADS, "", f"{self.heads:.2f}", "", f"chance {self.chance:.2f}"])
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
        base = self._on(grid[0, 0])
        found: dict[str, list[CauseLevel]] = {
            "prompts": [
                CauseLevel(f"set {j + 1}", self._on(grid[0, j])) for j in range(self.levels)
            ]
        }
        groups = sorted({i for i, _ in grid})
        if len(groups) > 1:
            found["templates"] = [CauseLevel(f"set {i + 1}", self._on(grid[i, 0])) for i in groups]
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
                level.request.count(counter)

    def result(self, lab: Lab) -> VarianceTable:
        """Rank again for every level, and take the variance apart."""
        causes, left_out = self.causes()
        tables = {}
        for cause, levels in causes.items():
            rows = [level.scores(level.request.result(lab)) for level in levels]
            if any(row is None for row in rows):
                left_out[cause] = "the ranking keeps no scores of single seeds"
            else:
                tables[cause] = (levels, np.array(rows))
        variances = components({cause: table for cause, (_, table) in tables.items()})
        whole = max(1.0, sum(variances.values()))
        parts = tuple(
            CausePart(
                cause,
                tuple(level.label for level in levels),
                variances[cause],
                variances[cause] / whole,
                *self._alike(table),
            )
            for cause, (levels, table) in tables.items()
        )
        chance, _, _ = chance_overlap(self.model.layout.total, self.top)
        heads = 1 - sum(part.share for part in parts)
        base = next(iter(causes.values()))[0].request
        prompts = len(base.examples)
        about = self.name, base.settings, self.model.name, self.task.name, prompts, self.top, chance
        note = lab.measure(self._whole()).at_chance
        return VarianceTable(*about, parts, max(0.0, heads), left_out, note)

    def _whole(self) -> Sweep:
        metric = get_metric(self.settings.get("metric", "accuracy"))
        return whole_model(self.model, self.task, metric, "ranking")

    def _alike(self, table: Float[np.ndarray, "levels heads"]) -> tuple[float, float]:
        """The correlation and the overlap of two levels, on the mean of all pairs."""
        layout, pairs = self.model.layout, list(combinations(table, 2))
        tops = [set(HeadScores(layout, row, self.name).order()[: self.top]) for row in table]
        shared = [len(a & b) / self.top for a, b in combinations(tops, 2)]
        return float(np.mean([spearman(a, b) for a, b in pairs])), float(np.mean(shared))

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

    def _draws(self, base: Ranking) -> list[CauseLevel] | str:
        """The same prompts behind other solved examples, where the task draws them."""
        known = TASKS[self.task.name].defaults() if self.task.name in TASKS else {}
        given = {n: value for n, value in self.task.parameters.items() if n in known}
        name = next((n for n in ("draw", "seed") if n in given), "")
        if not name or not given.get("shots"):
            return "the task draws no solved examples"
        levels, wanted = [], [e.id for e in base.task.examples]
        for value in range(self.levels):
            made = make_task(self.task.name, self.model, **{**given, name: value})
            by_id = {e.id: e for e in made}
            if not all(key in by_id for key in wanted):
                return "another draw of the task has other prompts"
            levels.append(CauseLevel(f"{name} {value}", self._on([by_id[key] for key in wanted])))
        return levels

    def _seeds(self, base: Ranking) -> list[CauseLevel] | str:
        """Other seeds of a ranking, or the single fits of one that takes several."""
        examples = base.task.examples
        if "seed" in base.settings:
            first = int(base.settings["seed"])
            chosen = range(first, first + self.levels)
            return [CauseLevel(f"seed {value}", self._on(examples, seed=value)) for value in chosen]
        if "seeds" in base.settings:
            fits = self._on(examples, seeds=self.levels)
            return [CauseLevel(f"seed {row}", fits, row) for row in range(self.levels)]
        return "the ranking draws nothing at random"

    def _ablations(self, base: Ranking) -> list[CauseLevel] | str:
        """Other ablations that the prompts allow."""
        own = base.settings.get("ablation")
        if own is None:
            return "the ranking ablates nothing"
        paired = all(e.corrupted is not None for e in base.task.examples)
        others = [a for a in ("zero", "clean-mean", "resampled") if a != own]
        others += [a for a in ("corrupted", "mean") if paired and a != own]
        examples = base.task.examples
        chosen = [own, *others[: self.levels - 1]]
        return [CauseLevel(name, self._on(examples, ablation=name)) for name in chosen]

    def _bos(self, base: Ranking) -> list[CauseLevel] | str:
        """With and without a BOS token."""
        if self.task.chat:
            return "the chat template decides about it"
        if not has_bos(self.model.tokenizer):
            return "the tokenizer has none"
        rules = {"with": "always", "without": "never"}
        return [
            CauseLevel(label, replace(base, task=replace(base.task, bos=rule)))  # type: ignore[arg-type]
            for label, rule in rules.items()
        ]


def components(tables: Mapping[str, Float[np.ndarray, "_ heads"]]) -> dict[str, float]:
    """The component of variance of each cause, from the scores at its levels.

    >>> same, other = np.array([[1.0, 2.0, 3.0]] * 2), np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    >>> found = components({"prompts": same, "seed": other})
    >>> found["prompts"], round(found["seed"], 2)
    (0.0, 2.0)
    """
    found = {}
    for cause, table in tables.items():
        spread = table.std(1, keepdims=True)
        even = (table - table.mean(1, keepdims=True)) / np.where(spread > 0, spread, 1)
        # Equal scores have no variance, not even by rounding.
        equal = bool((even == even[0]).all())
        found[cause] = 0.0 if equal else float(even.var(0, ddof=1).mean())
    if "templates" in found:
        found["templates"] = max(0.0, found["templates"] - found.get("prompts", 0.0))
    return found


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

    Each cause is changed alone, at `levels` levels; `top` is the number of best heads that are
    compared. Settings are those of the ranking.

    >>> from headcount import load_model, make_task
    >>> model = load_model("smollm2-135m-q4")
    >>> found = variance_table(model, make_task("ioi", model, n=96), "random", levels=2)
    >>> [(part.cause, part.share) for part in found.parts[:2]]
    [('prompts', 0.0), ('templates', 0.0)]
    """
    check_asked(model, task)
    return Stability(model, task, ranking, settings, levels, top).result(lab_for(lab, model))
