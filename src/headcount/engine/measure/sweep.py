"""A measurement, written down before anything runs: what a `Lab` is asked for, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.engine.measure.ablations import OVER_RANKING, Ablation, make_ablation
from headcount.engine.measure.head_sets import Expected, HeadSets, Label, OnHeadSets
from headcount.engine.measure.measuring import late_lengths
from headcount.engine.measure.plan import default_tokens
from headcount.engine.measure.positions import check_acting
from headcount.engine.write.writing import Scope, Writing, check_scope
from headcount.errors import HeadcountError, counted, unknown
from headcount.figures.style import figure_of, shown
from headcount.figures.values import draw_values
from headcount.metrics import Metric, get_metric
from headcount.metrics.answers import AnswerRows, answer_rows
from headcount.metrics.chance import Chance, chance_of
from headcount.metrics.text import TextMetric
from headcount.models.model import Model
from headcount.models.streaming import Streaming
from headcount.registry import own_code
from headcount.stats import Interval, accuracy_interval, bootstrap, paired_difference
from headcount.system.frames import data_frame
from headcount.tasks import Encoded, Task
from headcount.tasks.task import Split

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from headcount.engine.measure.cost import Counter

COLUMNS = ("example", "template", "content", "value")  # of a data frame, after label and draw


@dataclass(frozen=True, eq=False)
class Sweep(OnHeadSets):
    """One metric of one model on one split of a task, under each head set.

    The store's key of a value is the sweep without its head sets, the example, and the gates: a
    further head set costs only its own values. `scope` concerns metrics of texts: "decode" gates
    only passes over new tokens, and the prompt is read with all heads. `positions` concerns metrics
    of logits: at which tokens gates act (see `positions`).
    """

    model: Model
    task: Task
    metric: Metric | TextMetric
    head_sets: HeadSets
    split: Split = "test"
    ablation: str = "zero"
    scope: Scope = "all"
    positions: str = "all"

    def check(self) -> None:
        """Refuse what cannot be measured."""
        check_scope(self.scope)
        metric = self.metric
        if not isinstance(metric, TextMetric):
            if self.scope != "all":
                raise HeadcountError(
                    f'Scope "{self.scope}" needs a model that writes, and {metric.key} scores the '
                    "logits of given answers: choose a metric of texts, such as exact_match."
                )
            check_acting(self.positions, self.examples)
            _ = self.answers  # refuses answers that the metric cannot compare
        elif self.positions != "all":
            raise HeadcountError(
                f'The metric {metric.key} lets the model write: leave the positions at "all", or '
                'gate only new tokens by the scope "decode".'
            )
        elif any(example.example.whole_text for example in self.examples):
            raise HeadcountError(
                f"The metric {metric.key} scores written answers, and the examples of "
                f'"{self.task.name}" are whole texts without a prompt: choose a metric of given '
                "answers, such as choice."
            )
        elif self.head_sets.wanted is not None:
            raise HeadcountError(
                f"The metric {metric.key} scores written texts: give head sets that are the same "
                "for all examples."
            )
        elif self.ablation != "zero":
            raise HeadcountError(
                f"The metric {metric.key} lets the model write, which works only with zero "
                'ablation: leave the ablation at "zero".'
            )
        else:
            self.writing().check()

    def count(self, counter: Counter) -> None:
        """Tell the counter what will be measured."""
        counter.sweep(self)

    @cached_property
    def answers(self) -> AnswerRows:
        """What is run for a metric of logits: one row or several for each example."""
        metric: Any = self.metric
        answers = answer_rows(metric, self.examples)
        check_answers(self.model, self.task, answers)
        return answers

    @property
    def rows(self) -> list[Encoded]:
        """The rows of the metric's answers; metrics of texts have one row for each example."""
        return self.examples if isinstance(self.metric, TextMetric) else self.answers.rows

    def asked(self, table: HeadSets | Expected) -> Bool[np.ndarray, "sets rows"]:
        """Which rows are asked for under which head sets."""
        asked = super().asked(table)
        return asked if isinstance(self.metric, TextMetric) else asked[:, self.answers.owners]

    @cached_property
    def ranking(self) -> list[Encoded]:
        """The examples from which ablations by mean or by other prompts come; none for others."""
        if self.ablation not in OVER_RANKING:
            return []
        return self.model.encode(self.task.split("ranking"))

    @property
    def streams(self) -> bool:
        """Whether ablated heads attend anew in every pass."""
        return Streaming.read(self.ablation) is not None

    @cached_property
    def gated_lengths(self) -> Int[np.ndarray, "rows"]:
        """How many tokens of each row run once for each head set."""
        if self.positions != "all" and self.model.late and not self.streams:
            return late_lengths(self.rows, self.positions)
        return np.array([row.length for row in self.rows])

    def make_ablation(self, tokens: int | None = None) -> Ablation:
        """The ablation of masked heads; up to `tokens` tokens run at once to compute it."""
        tokens = default_tokens(self.model) if tokens is None else tokens
        return make_ablation(self.ablation, self.model, self.rows, self.ranking, tokens)

    def writing(self) -> Writing:
        """The request for the texts that a metric of texts scores."""
        return Writing(self.model, self.task, self.head_sets, self.split, self.scope)

    def context(self, ablation: str) -> dict[str, Any]:
        """Everything but gates and examples that determines a value."""
        own = own_code(self.metric.function)
        if isinstance(self.metric, TextMetric):
            facts = {"metric": self.metric.key, "metric_identity": self.metric.identity()}
            return self.writing().context() | facts | {"right_answers": "all"} | own
        where = {} if self.positions == "all" else {"positions": self.positions}
        return self.facts(self.metric.key, ablation) | self.metric.store_facts | where | own


def check_answers(model: Model, task: Task, answers: AnswerRows) -> None:
    """Refuse answers that are too long to be read after their prompts.

    `Model.encode` has checked the targets, which are the only rows of many metrics.
    """
    if answers.metric.combine is not None:
        for row in answers.rows:
            what = f'The answer "{row.example.target}" of "{task.name}", with its prompt,'
            model.check_readable((*row.prompt, *row.target[:-1]), what)


def whole_model(
    model: Model, task: Task, metric: Metric | TextMetric, split: Split = "test"
) -> Sweep:
    """A sweep of the whole model alone, which tells whether it is better than chance.

    If nobody can tell chance by this metric, it is by accuracy, or by that of written answers.
    """
    right = "exact_match" if isinstance(metric, TextMetric) else "accuracy"
    chosen = metric if chance_of(metric, task) else get_metric(right)
    return Sweep(model, task, chosen, HeadSets.of([], model.layout), split)


@dataclass(frozen=True, eq=False)
class Values:
    """One value per head set and example, and the clusters that intervals need.

    If every label names one head set, `values` has one row for each label, in the order of the
    labels. `of` gives the values of one label, also if it names several head sets.
    """

    table: Float[np.ndarray, "different examples"]
    head_sets: HeadSets
    examples: tuple[str, ...]
    clusters: Int[np.ndarray, "examples 2"]
    metric: Metric | TextMetric
    ablation: str
    chance: Chance | None = None  # of the task by this metric, if known

    def __repr__(self) -> str:
        means = [f"{label} {self.of(label).mean():.3g}" for label in list(self.head_sets.rows)[:8]]
        sets = f"{self.metric.key}, {counted(len(self.head_sets.rows), 'head set')}"
        return f"<Values of {sets}, n = {len(self.examples)}: {', '.join(means)}>"

    @cached_property
    def values(self) -> Float[np.ndarray, "sets examples"]:
        """The values of each label's head set."""
        return self.table[list(chain.from_iterable(self.head_sets.rows.values()))]

    def of(self, label: Label) -> Float[np.ndarray, "draws examples"]:
        """The values of a label: one row for each draw, or one if examples have own head sets."""
        labels = self.head_sets.rows
        if label not in labels:
            raise unknown("head set", str(label), map(str, labels))
        rows = list(labels[label])
        if label in self.head_sets.per_example:
            return self.table[rows, range(self.table.shape[1])][None]
        return self.table[rows]

    def mean(self) -> Float[np.ndarray, "sets"]:
        """The mean over examples of each head set."""
        return np.asarray(self.values.mean(axis=1))

    def interval(self, label: Label = None) -> Interval:
        """The mean over draws and examples, with the interval that suits the metric.

        `label` may be left out where there is only one head set.

        >>> from headcount import evaluate, load_model, make_task
        >>> model = load_model("smollm2-135m-q4")
        >>> task = make_task("ioi", model.tokenizer, n=20)
        >>> values = evaluate(model, task, model.layout.gates(off=[]), metric="accuracy")
        >>> values.interval() == values.interval(0)
        True
        """
        labels = list(self.head_sets.rows)
        if label is None and label not in labels:
            if len(labels) != 1:
                raise HeadcountError(
                    f"There are {len(labels)} head sets: give the label of one of them "
                    f"({', '.join(map(str, labels))})."
                )
            (label,) = labels
        return self._interval(self.of(label))

    def _interval(self, values: Float[np.ndarray, "draws examples"]) -> Interval:
        estimate: Any = accuracy_interval if self.metric.binary else bootstrap
        interval: Interval = estimate(values, clusters=self.clusters)
        return interval

    @property
    def tells_chance(self) -> bool:
        """Whether the whole model is among the head sets, and chance by the metric is known."""
        return self.chance is not None and bool((self.head_sets.gates == 1).all(1).any())

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text.

        It is empty, too, if the whole model is not among the head sets, or chance is not known.

        >>> from headcount import evaluate, load_model, make_task
        >>> model = load_model("smollm2-135m-q4")
        >>> task = make_task("ioi", model.tokenizer, n=20)
        >>> evaluate(model, task, [], metric="choice").at_chance
        ''
        """
        whole = self.table[(self.head_sets.gates == 1).all(1)][:1]  # (at most 1, examples)
        if self.chance is None or not len(whole) or np.isnan(whole).any():
            return ""
        return self.chance.sentence(self._interval(whole), self.metric.name)

    def difference(self, a: Label, b: Label) -> Interval:
        """The mean under head set `a` minus the mean under `b`, paired by example.

        >>> from headcount import evaluate, load_model, make_task
        >>> model = load_model("smollm2-135m-q4")
        >>> task = make_task("ioi", model.tokenizer, n=20)
        >>> gates = [model.layout.gates(off=off) for off in ([], ["3.4"])]
        >>> values = evaluate(model, task, gates)
        >>> values.difference(0, 1).value == -values.difference(1, 0).value
        True
        """
        how: dict[str, Any] = {"clusters": self.clusters, "binary": self.metric.binary}
        return paired_difference(self.of(a), self.of(b), **how)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean and the interval of each head set, into `ax` or into a new figure.

        >>> from headcount import evaluate, load_model, make_task
        >>> model = load_model("smollm2-135m-q4")
        >>> task = make_task("ioi", model.tokenizer, n=20)
        >>> gates = [model.layout.gates(off=off) for off in ([], ["3.4"])]
        >>> evaluate(model, task, gates, metric="logprob").plot().get_xlabel()
        'Log-probability of right answer'
        """
        points = []
        for label in self.head_sets.rows:
            name = " ".join(map(str, label)) if isinstance(label, tuple) else str(label)
            found = self.interval(label)
            points.append((name, found.value, found.low, found.high))
        note = f"n = {len(self.examples)} · ablation: {self.ablation}"
        note += " · the whole model is at chance" * bool(self.at_chance)
        binary = self.metric.binary
        drawn = draw_values(points, xlabel=self.metric.name, note=note, shares=binary, axes=ax)
        if ax is None:
            shown(figure_of(drawn))
        return drawn

    def to_frame(self) -> pandas.DataFrame:
        """A pandas data frame with one row for each head set and example.

        The columns are label, draw (where a label has several draws), example, the numbers of its
        template and content, and value.

        >>> from headcount import evaluate, load_model, make_task
        >>> model = load_model("smollm2-135m-q4")
        >>> task = make_task("ioi", model.tokenizer, n=20)
        >>> frame = evaluate(model, task, model.layout.gates(off=["3.4"])).to_frame()
        >>> frame.columns.tolist()
        ['label', 'example', 'template', 'content', 'value']
        """
        tables = {label: self.of(label).tolist() for label in self.head_sets.rows}
        several = any(len(draws) > 1 for draws in tables.values())
        rows = []
        for label, draws in tables.items():
            for draw, values in enumerate(draws):
                which = {"label": label, "draw": draw} if several else {"label": label}
                each = zip(self.examples, *self.clusters.T.tolist(), values, strict=True)
                rows += [which | dict(zip(COLUMNS, cells, strict=True)) for cells in each]
        return data_frame(rows)
