"""A session of the explorer: one model, what is known of its heads, and the answers to inquiries.

The page, the notebook's widget and tests all ask here, by the name of an inquiry and plain data.
Whatever computes runs in the session's one thread.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from headcount.engine.read.edges import open_edges
from headcount.errors import HeadcountError, unknown
from headcount.explorer.findings import findings_page
from headcount.explorer.inquiries import Emit, Inquiries, Inquiry
from headcount.explorer.prompts import PromptPasses
from headcount.explorer.reading import activity, why
from headcount.explorer.scores import Scores
from headcount.explorer.state import ExplorerState, choose
from headcount.explorer.texts import write
from headcount.explorer.trials import Trials, lab_that_pauses
from headcount.heads import HeadScores, HeadSet
from headcount.lab import Lab, lab_for
from headcount.metrics import get_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking
from headcount.sparse.make_sparse import gate_bias
from headcount.store import Store
from headcount.system.progress import duration
from headcount.tasks import Task

DRAWS = 5  # random head sets beside the head set on a prompt
MOST_NEW = 64  # tokens of a written text
PROMPTS = 4  # prompts whose passes are kept
METRICS = ("accuracy", "logprob", "logit_difference", "choice")
ACTIVITY, EDGES = "activity", "open edges"
PROMPT = "The capital of France is"  # where there is no task

# How urgent an inquiry is: a click before a text, a text before what takes minutes.
URGENCY = {
    **dict.fromkeys(("start", "probabilities", "choose", "open", "same", "example"), 0),
    **dict.fromkeys(("why", "activity", "compare", "findings"), 1),
    "text": 2,
    **dict.fromkeys(("costs", "trial", "rank", "curve"), 3),
}
OF_TASK = ("example", "compare", "trial", "rank", "curve")


@dataclass(eq=False)
class ExplorerSession:
    """What an explorer knows: the model, the task, the scores, and the head sets that were tried.

    `store` is the path of the stored measurements, None for none, or "default".
    """

    model: Model
    task: Task | None = None
    scores: Scores = field(default_factory=Scores)
    store: Any = "default"
    names: Mapping[str, str] = field(default_factory=dict)  # model and task as a user names them
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the task, as the user chose them
    heads: HeadSet = field(default_factory=lambda: HeadSet(()))  # with which a page starts

    def __post_init__(self) -> None:
        self.first_state()  # refuses a head set of another model
        self.inquiries = Inquiries()
        self.trials = None if self.task is None else Trials(self.model, self.task)
        self._passes: dict[Any, PromptPasses] = {}
        self._texts: dict[Any, list[str]] = {}
        self._costs_in_words: dict[str, str] = {}
        self.written: tuple[ExplorerState, dict[str, list[str]]] | None = None  # the last text

    def close(self) -> None:
        """End the thread."""
        self.inquiries.close()

    def ask(self, page: str, kind: str, asked: Mapping[str, Any], emit: Emit) -> Inquiry:
        """Enter an inquiry of a page; its events go to `emit`, in the session's thread."""
        if kind not in URGENCY:
            raise unknown("inquiry", kind[:40], URGENCY)
        state = ExplorerState.of(asked.get("state", {}), self.model.layout)
        self._check(kind, state)
        answer: Callable[..., None] = getattr(self, f"_{kind}")
        return self.inquiries.ask(
            page, kind, URGENCY[kind], lambda inquiry: answer(inquiry, state, asked), emit
        )

    def _check(self, kind: str, state: ExplorerState) -> None:
        """Refuse at once, whatever is being computed, what needs no computing to be refused."""
        if kind in OF_TASK and self.task is None:
            raise HeadcountError(
                "This session has no task: start headcount explore with --task ioi, or in Python "
                'explore(model, "ioi").'
            )
        if kind == "trial" and not (state.heads or state.keep):
            raise HeadcountError("No head is off, so this is the whole model: choose heads first.")
        if kind == "curve" and state.colour not in self.scores.known:
            raise HeadcountError("A curve goes along a ranking: colour the map by one first.")
        if kind == "why" and not state.selected:
            raise HeadcountError("Select a head first.")
        if kind == "text" and state.ablation == "corrupted":
            raise HeadcountError(
                "A corrupted prompt has no outputs for new tokens: choose the ablation zero or "
                "mean to let the model write."
            )

    @cached_property
    def lab(self) -> Lab:
        """The lab; opened in the session's thread, as stores must be."""
        lab = Lab(store=None, progress=False)
        if self.store is not None:
            lab.store = Store.default() if self.store == "default" else Store.open(self.store)
        return lab_for(lab, self.model)

    def first_state(self) -> ExplorerState:
        """The state that a new page shows: the whole model on the first example of the task."""
        colour = next(iter(self.scores.known), ACTIVITY)
        given = {"prompt": PROMPT} if self.task is None else self.example(self.task, 0)
        return ExplorerState(colour=colour, **given, **self._given(self.heads))

    def _given(self, heads: HeadSet) -> dict[str, Any]:
        """A head set as settings of a state; refuses one of another model, or one that is none."""
        heads.gates(self.model.layout)
        chosen: dict[str, Any] = {
            "heads": tuple(map(str, heads)),
            "keep": heads.keep,
            "gate": heads.gate,
        }
        ExplorerState(**chosen).checked(self.model.layout)
        return chosen

    @staticmethod
    def example(task: Task, number: int) -> dict[str, Any]:
        """The prompt and the answers of one example of a task's test split."""
        examples = task.split("test").examples
        one = examples[number % len(examples)]
        return {
            "prompt": one.prompt,
            "target": one.target,
            "foils": one.foils,
            "corrupted": one.corrupted or "",
        }

    def passes(self, state: ExplorerState) -> PromptPasses:
        """The passes over the prompt of a state, kept for the next click."""
        corrupted = state.corrupted if state.ablation == "corrupted" else ""
        key = (state.prompt, state.target, state.foils, state.ablation, corrupted)
        known = self._passes.pop(key, None) or PromptPasses.of(self.model, state, self.task)
        self._passes[key] = known
        for old in list(self._passes)[:-PROMPTS]:
            del self._passes[old]
        return known

    # The inquiries

    def _start(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        model, task = self.model, self.task
        bundled = {
            name: {"labels": labels} for name, labels in self.scores.roles(self.model).items()
        }
        examples = 0 if task is None else len(task.split("test"))
        foils = task is not None and all(example.foils for example in task)
        metrics = [m for m in METRICS if foils or not getattr(get_metric(m), "needs_foils", False)]
        inquiry.emit(
            "start",
            {
                "model": model.name,
                "weights": model.precision,
                "counts": list(model.layout.counts),
                "task": task and {"name": task.name, "examples": examples},
                "state": self.first_state().settings(),
                "scores": {**self.scores.to_json(task), **bundled},
                "edges": gate_bias(model.module) is not None,
                "metrics": [{"key": m, "name": get_metric(m).name} for m in metrics],
                "trials": [] if self.trials is None else [t.to_json() for t in self.trials.tried],
                "curves": [] if self.trials is None else [c.to_json() for c in self.trials.curves],
                "tunnel": "ssh -L",
            },
        )

    def _probabilities(
        self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]
    ) -> None:
        passes, layout = self.passes(state), self.model.layout
        controls, note = state.controls(layout, DRAWS)
        gates = state.gates(layout)
        same = bool((controls == gates).all())  # there is no other choice of as many heads
        about = {"tokens": passes.tokens, "note": note, "count": len(state.heads), "same": same}
        _ = passes.whole
        inquiry.check()
        rows = passes.under(np.stack([gates, controls[0]]))
        inquiry.emit("probabilities", about | passes.table(rows[0], rows[1:]))
        if (controls == controls[0]).all():
            return
        inquiry.check()
        rows = np.concatenate([rows, passes.under(controls[1:])])
        inquiry.emit("probabilities", about | passes.table(rows[0], rows[1:]))

    def _text(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        new = asked.get("new", 24)
        if type(new) is not int or not 1 <= new <= MOST_NEW:
            raise HeadcountError(f"A text has 1 to {MOST_NEW} new tokens.")
        # A mean for new tokens is one over all positions, which a prompt without a template has.
        passes, layout = self.passes(state), self.model.layout
        control, _ = state.controls(layout, 1)
        gates = np.stack([state.gates(layout), control[0]])
        key = (passes.encoded.prompt, new)
        whole = self._texts.get(key)
        if whole is None:
            gates = np.concatenate([np.ones((1, layout.total), dtype=np.float32), gates])

        def say(texts: list[list[str]]) -> None:
            inquiry.check()
            first = texts[0] if whole is None else whole
            rest = texts[1:] if whole is None else texts
            self.written = state, {"whole": first, "set": rest[0], "random": rest[1]}
            inquiry.emit("text", self.written[1])

        texts = write(passes, gates, new, say, inquiry)
        if whole is None:
            self._texts[key] = texts[0]
            for old in list(self._texts)[:-PROMPTS]:
                del self._texts[old]

    def _why(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        head = self.model.layout.parse(state.selected)
        zero = replace(state, ablation="zero")
        inquiry.emit("why", why(self.passes(zero), head))

    def _activity(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        found = self._colour(state)
        assert found is not None
        values = [float(f"{value:.6g}") for value in found.values]
        note = str(found.parameters["note"])
        inquiry.emit("colour", {"name": state.colour, "values": values, "note": note})

    def _colour(self, state: ExplorerState) -> HeadScores | None:
        """The scores that colour the map; those on one prompt are computed."""
        if state.colour in self.scores.known:
            return self.scores.known[state.colour]
        if state.colour == EDGES:
            values = open_edges(self.model, [state.prompt], progress=False)
            note = "share of open edges on this prompt"
        elif state.colour == ACTIVITY:
            values = activity(self.passes(replace(state, ablation="zero")))
            note = "norm of what a head writes, mean over the tokens of this prompt"
        else:
            return None
        return HeadScores(self.model.layout, values, state.colour, {"note": note})

    def _choose(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        text, draw = str(asked.get("text", ""))[:4000], asked.get("draw")
        scores = self._colour(state) if re.search("top|bottom", text.lower()) else None
        seed = (state.seed, draw) if type(draw) is int and draw >= 0 else state.seed
        inquiry.emit("heads", {"heads": choose(text, self.model.layout, scores, seed)})

    def _open(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        """The head set in a file, whose text the page has read."""
        try:
            data = json.loads(str(asked.get("text")))
        except (ValueError, RecursionError):
            data = None
        inquiry.emit("heads", self._given(HeadSet.from_json(data)))

    def _example(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        number = asked.get("number", 0)
        assert self.task is not None
        inquiry.emit("example", self.example(self.task, number if type(number) is int else 0))

    def _same(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        inquiry.emit("same", self.same(state, str(asked.get("metric", "accuracy"))[:80]))

    def same(self, state: ExplorerState, metric: str) -> dict[str, Any]:
        """The same as a command line, as Python, and as a file of the head set."""
        model = self.names.get("model", self.model.name)
        task = self.names.get("task", "" if self.task is None else self.task.name)
        layout = self.model.layout
        heads = HeadSet(state.heads, keep=state.keep, gate=state.gate, layout=layout)
        return {
            "command": state.command(model, task, metric, self.settings),
            "python": state.python(model, task, metric, self.settings),
            "file": heads.to_json(),
        }

    def _costs(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        """Each ranking that can run on the task, and about how long it takes."""
        if self.task is not None and not self._costs_in_words:
            found = {}
            for name in RANKINGS.entries:
                inquiry.pause()
                with suppress(HeadcountError):  # it asks for another task, or for settings
                    cost = self.lab.cost([Ranking.of(self.model, self.task, name)])
                    seconds = cost.seconds() if cost.tokens else 0
                    found[name] = f"about {duration(seconds)}" if seconds >= 1 else ""
            self._costs_in_words = found
        inquiry.emit("costs", self._costs_in_words)

    def _rank(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        task, name = self.task, str(asked.get("ranking", ""))
        assert task is not None
        if name not in RANKINGS.entries:
            raise unknown("ranking", name[:40], RANKINGS.entries)
        lab = lab_that_pauses(self.lab, inquiry, self.model)
        found = Ranking.of(self.model, task, name).result(lab)
        self.scores.add(name, found)
        inquiry.emit("scores", self.scores.to_json(task, only=name))

    def _trial(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        assert self.trials is not None
        metric = str(asked.get("metric", "accuracy"))[:80]
        trial = self.trials.measure(state, metric, self.lab, inquiry)
        inquiry.emit("trial", trial.to_json())

    def _curve(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        assert self.trials is not None
        metric = str(asked.get("metric", "accuracy"))[:80]
        scores = self.scores.known[state.colour]
        curve = self.trials.curve(state, scores, metric, self.lab, inquiry)
        inquiry.emit("curve", curve.to_json())

    def _compare(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        assert self.trials is not None
        one, other = asked.get("one"), asked.get("other")
        if not (isinstance(one, int) and isinstance(other, int)):
            raise HeadcountError("Choose two head sets to compare.")
        inquiry.emit("compared", self.trials.compare(one, other))

    def _findings(self, inquiry: Inquiry, state: ExplorerState, asked: Mapping[str, Any]) -> None:
        metric = str(asked.get("metric", "accuracy"))[:80]
        inquiry.emit("findings", {"html": findings_page(self, state, metric)})


def page_id(given: Any) -> str:
    """A short name for a page, whatever it calls itself."""
    return hashlib.sha256(str(given)[:200].encode()).hexdigest()[:16]
