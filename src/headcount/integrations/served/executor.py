"""Measure sweeps on a server: one request for each example and head set.

A head set is an adapter on the server (`headcount.models.adapter`), and the name of the adapter is
the `model` of a request. The prompt is sent as token ids, with the answer behind it, and the server
tells the log-probability of each token of the answer; metrics of texts let it continue the prompt
greedily. Values go through the lab into the store like all others, under a key that names the
server's model, because its numbers are rounded in other ways than ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from headcount.engine.measure.executor import Job, Unit
from headcount.engine.measure.measuring import MeasuringJob
from headcount.engine.write.writing import WritingJob
from headcount.errors import HeadcountError, counted
from headcount.integrations.served.client import Client, NotServedError, TokenScores
from headcount.metrics import METRICS, Metric
from headcount.models.adapter import MAX_RANK, check_rank
from headcount.models.adapter_folder import AdapterFolder, adapter_name
from headcount.models.fingerprint import fingerprint_tokenizer, settings_of
from headcount.models.model import Model
from headcount.models.unloaded import unloaded_model
from headcount.system.files import digest
from headcount.system.fingerprint import as_json
from headcount.tasks.answer_endings import ENDINGS
from headcount.tasks.encoding import Encoded

Cell = tuple[int, int]  # one head set and one example
# Metrics, by the name under which their values are stored: the value of a row, from the
# log-probability of each of its answers and of each token of the first.
VALUES: dict[str, Callable[[np.ndarray, list[float]], float]] = {
    "logprob": lambda answers, tokens: float(np.logaddexp.reduce(answers)),
    "answer_logprob": lambda answers, tokens: float(answers.max()),
    "logprob_per_token": lambda answers, tokens: float(np.mean(tokens)),
}


class Served:
    """An executor for a `Lab`: a server that serves head sets as adapters of one model.

    url        where the server is, such as http://localhost:8000
    adapters   the folder that `headcount export --as adapter` wrote
    base       the model's name on the server (default: that in the folder's index, or the only one)
    precision  how the server was told to compute, such as "bfloat16": a part of the store's keys,
               since no server tells it
    in_flight  how many requests are under way at once
    api_key    the server's key, if it asks for one
    names      how the server names an adapter; SGLang takes "BASE:{name}"
    write      write adapters that the folder lacks, of up to `max_rank`, from the checkpoint of the
               model; the server must look for them there (see docs/serving.md)

    >>> from headcount import Lab, evaluate, make_task
    >>> served = Served("http://localhost:8000", "adapters")  # doctest: +SKIP
    >>> model = served.model("./Llama-3.3-70B-Instruct")  # doctest: +SKIP
    >>> task = make_task("ioi", model)  # doctest: +SKIP
    >>> lab = Lab(executor=served)  # doctest: +SKIP
    >>> evaluate(model, task, ["3.4"], metric="logprob", lab=lab)  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        adapters: str | Path,
        *,
        base: str = "",
        precision: str = "auto",
        in_flight: int = 16,
        api_key: str | None = None,
        names: str = "{name}",
        write: bool = False,
        max_rank: int = MAX_RANK,
    ) -> None:
        if in_flight < 1:
            raise HeadcountError(f"At least one request must be under way, not {in_flight}.")
        if "{name}" not in names:
            raise HeadcountError(f'"{names}" lacks {{name}}, the place of an adapter\'s name.')
        self.folder = AdapterFolder.open(adapters)
        self.client = Client(url, api_key)
        self.precision, self.in_flight, self.names = precision, in_flight, names
        self.write, self.max_rank = write, max_rank
        self.base = self._base(base)
        self.server = " ".join(filter(None, [self.base, self.client.version()]))
        self._active = False  # whether an adapter was seen to change something

    def _base(self, wanted: str) -> str:
        """The name of the model on the server; refused if the server has another one."""
        models = self.client.models()
        whole = [one["id"] for one in models if not one.get("parent")]
        name = wanted or (self.folder.base if self.folder.base in whole else "")
        if not name and len(whole) == 1:
            name = whole[0]
        if name not in whole:
            asked = f'no model "{wanted}"' if wanted else f"several models, none {self.folder.base}"
            raise HeadcountError(
                f"{self.client.url} serves {asked} (it has: {', '.join(whole) or 'none'}): give "
                "one of these names as base."
            )
        return name

    def model(self, spec: str | Path | None = None, **how: Any) -> Model:
        """The served model, for tasks and sweeps: its config and tokenizer, without weights.

        `spec` is the folder or the hub id from which they are read (default: the base model of the
        adapters). The other arguments are those of `unloaded_model`.
        """
        model = unloaded_model(spec or self.folder.base, **how)
        if model.layout != self.folder.layout:
            raise HeadcountError(
                f"{model.name} has {model.layout}, and the adapters in {self.folder.path} are for "
                f"{self.folder.layout}: give the model that they were exported from."
            )
        vars(model)["identity"] = {
            "weights": digest(as_json(settings_of(model.module))),  # the server's are not seen
            "tokenizer": fingerprint_tokenizer(model.tokenizer),
            "dtype": self.precision,
            "device": "server",
            "kernel": model.kernel,
            "server": self.server,
        }
        return model

    def workers(self, model: Model) -> int:
        """How many requests are under way at once."""
        return self.in_flight

    def run(
        self, model: Model, job: Job, units: Sequence[Unit], keep: Callable[[Unit, Any], None]
    ) -> None:
        """Ask the server for every value or text; each goes to `keep` as soon as it is there."""
        if model.identity.get("server") != self.server:
            raise HeadcountError(
                f"{model.name} was loaded here, and values of a server are kept apart from those "
                "measured here: measure the model that the server's executor makes, by its method "
                "model."
            )
        if isinstance(job, MeasuringJob):
            _check_measuring(job)
            cells = {cell for unit in units for share in unit.work for cell in _cells(share)}

            def done(cell: Cell, value: Any) -> None:
                keep(units[0], ([cell[0]], [cell[1]], np.array([[value]])))

        elif isinstance(job, WritingJob):
            _check_writing(job)
            cells = {cell for unit in units for cell in unit.work}

            def done(cell: Cell, value: Any) -> None:
                keep(replace(units[0], work=[cell]), [value])

        else:
            raise HeadcountError(
                "A server measures log-probabilities and writes texts, and cannot do this: "
                f"{units[0].name}. Load the model for it."
            )
        self._carry_out(self._requests(model, job, sorted(cells)), len(cells), done)

    def _requests(
        self, model: Model, job: MeasuringJob | WritingJob, cells: Sequence[Cell]
    ) -> Iterator[tuple[Cell, Callable[[], Any]]]:
        """What to ask for each cell; cells of one head set follow each other, for its adapter."""
        rows = sorted({row for row, _ in cells})
        self._check_adapters(model, job.gates[rows])
        name, row = "", -1
        for cell in cells:
            if cell[0] != row:
                row, name = cell[0], self._name(model, job.gates[cell[0]])
            example = job.examples[cell[1]]
            if name != self.base and not self._active:
                self._require_effect(name, example)
            if isinstance(job, MeasuringJob):
                yield cell, partial(self._value, name, job.metric, example)
            else:
                yield cell, partial(self._text, name, job, example)

    def _check_adapters(self, model: Model, gates: Float[np.ndarray, "sets heads"]) -> None:
        """Refuse head sets that have no adapter, before anything is asked."""
        lacking = [one for one in gates if (one != 1).any() and self.folder.named(one) is None]
        for one in lacking if self.write else ():
            check_rank(model, torch.from_numpy(one), "in the sweep", self.max_rank)
        if lacking and not self.write:
            first = adapter_name(0, lacking[0], model.layout)
            raise HeadcountError(
                f"{counted(len(lacking), 'head set')} of {len(gates)} have no adapter in "
                f"{self.folder.path} (the first is {first}): export them, or let them be written "
                "with write=True (--write-adapters)."
            )

    def _name(self, model: Model, gates: Float[np.ndarray, "heads"]) -> str:
        """The server's name of a head set."""
        if (gates == 1).all():
            return self.base
        known = self.folder.named(gates)
        if known is None:
            name = adapter_name(0, gates, model.layout)
            known = self.folder.add(model, name, gates, self.max_rank)
        return self.names.format(name=known.name)

    def _require_effect(self, name: str, example: Encoded) -> None:
        """Refuse a server that ignores adapters: its numbers would be equal to the last bit."""
        ids = (*example.prompt, *example.target)
        both = (self._ask(self.client.score, one, ids, len(ids) - 1) for one in (self.base, name))
        if len({tuple(scores.logprobs) for scores in both}) == 1:
            raise HeadcountError(
                f"{self.client.url} gives the very same log-probabilities with the adapter {name} "
                "as without: it seems to ignore adapters (is LoRA switched on?)."
            )
        self._active = True

    def _value(self, name: str, metric: Metric, row: Encoded) -> float:
        """The value of a row: one request for each of its answers."""
        score = partial(self._ask, self.client.score, name)
        first: TokenScores = score((*row.prompt, *row.target), len(row.target))
        front = (*row.prompt, *row.target[:-1])
        others = [score((*front, *last), 1) for last in row.also]
        if metric.key == "accuracy":
            ends = [first.greedy[-1], *(other.greedy[0] for other in others)]
            return float(all(first.greedy[:-1]) and any(ends))
        last = np.array([first.logprobs[-1], *(other.logprobs[0] for other in others)])
        answers = sum(first.logprobs[:-1]) + last
        return VALUES[_stored_as(metric)](answers, first.logprobs)

    def _text(self, name: str, job: WritingJob, example: Encoded) -> tuple[str, float]:
        """The text of a cell, and whether it was finished."""
        chosen = job.decoding
        stop: Sequence[str] = tuple(chosen.stop)
        text, finished = self._ask(
            self.client.write, name, example.prompt, chosen.max_new_tokens, stop
        )
        end = ENDINGS[chosen.until].end(text) if chosen.until else None
        return (text if end is None else text[:end]).strip(), float(finished or end is not None)

    def _ask(self, request: Callable[..., Any], name: str, *how: Any) -> Any:
        try:
            return request(name, *how)
        except NotServedError as error:
            raise HeadcountError(
                f"{error}: start the server with this adapter, or let it look for adapters in "
                f"{self.folder.path} (docs/serving.md)."
            ) from error

    def _carry_out(
        self,
        requests: Iterator[tuple[Cell, Callable[[], Any]]],
        total: int,
        done: Callable[[Cell, Any], None],
    ) -> None:
        """Keep `in_flight` requests under way; after an error, take those that still answer."""
        finished = 0
        with ThreadPoolExecutor(self.in_flight) as pool:
            running: dict[Future[Any], Cell] = {}
            failed: BaseException | None = None
            while True:
                free = 0 if failed else self.in_flight - len(running)
                try:
                    running |= {pool.submit(ask): cell for cell, ask in islice(requests, free)}
                except HeadcountError as error:
                    failed = error
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    cell = running.pop(future)
                    if (wrong := future.exception()) is None:
                        done(cell, future.result())
                        finished += 1
                    failed = failed or wrong
        if isinstance(failed, HeadcountError) and finished:
            raise HeadcountError(
                f"{failed} {finished:,} of {total:,} answers came before; run the same again to go "
                "on from there."
            ) from failed
        if failed is not None:
            raise failed


def _cells(share: Any) -> list[Cell]:
    """The cells of one share of a unit."""
    cells = [(row, column) for row in share.rows for column in share.columns]
    return cells[share.part :: share.of]


def _stored_as(metric: Metric) -> str:
    return metric.measured_as or metric.key


def _check_measuring(job: MeasuringJob) -> None:
    """Refuse what cannot be told from the log-probabilities of answers under scaled heads."""
    metric = job.metric
    ours = metric.key in METRICS and METRICS[metric.key] is metric
    if not ours or (_stored_as(metric) not in VALUES and metric.key != "accuracy"):
        equal = "logprob_difference, which is equal for answers of one token"
        advice = equal if metric.key == "logit_difference" else "logprob or choice"
        raise HeadcountError(
            f"The metric {metric.key} reads logits, and a server gives the log-probabilities of "
            f"answers: choose another metric, such as {advice}."
        )
    if job.ablation != "zero":
        raise HeadcountError(
            f"The ablation {job.ablation} adds an output to the heads that are off, which no LoRA "
            'adapter holds: leave the ablation at "zero", or load the model.'
        )
    if job.positions != "all":
        raise HeadcountError(
            "An adapter acts at all positions: leave the positions out, or load the model."
        )


def _check_writing(job: WritingJob) -> None:
    if job.decoding.scope != "all" or job.decoding.temperature or job.redistribution is not None:
        raise HeadcountError(
            "A server writes greedily, with an adapter that acts on all tokens: leave scope, "
            "temperature and redistribution out, or load the model."
        )
