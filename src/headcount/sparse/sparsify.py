"""From a dense model and a text to a sparse model: the control, the sparse run, the evaluation."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headcount.errors import HeadcountError
from headcount.models.model import Model
from headcount.models.sites import plain
from headcount.sparse.attention_layer import drawing, make_dense, make_sparse
from headcount.sparse.checkpoint import (
    DTYPE,
    SparseFacts,
    write_adapters,
    write_facts,
)
from headcount.sparse.loss import Loss
from headcount.sparse.own_text import fingerprint, write_own_text
from headcount.sparse.settings import Settings
from headcount.sparse.text import Blocks, Text, load_text
from headcount.sparse.train import Best, Run
from headcount.sparse.tunable import Tunable, Values


@dataclass(frozen=True)
class Outcome:
    """Held-out losses of the three models, on text that nothing was chosen by, and the log."""

    original: Loss
    control: Loss
    sparse: Loss
    limit: float  # on this text: the constraint's model plus the tolerance
    best: Best
    log: list[dict[str, float]] = field(repr=False)
    control_log: list[dict[str, float]] = field(repr=False)

    @property
    def met(self) -> bool:
        """Whether the sparse model keeps the constraint on text it was not chosen by."""
        return self.sparse.loss <= self.limit

    def facts(self) -> dict[str, Any]:
        """As sparse.json has them."""
        return {
            "original_loss": self.original.loss,
            "control_loss": self.control.loss,
            "sparse_loss": self.sparse.loss,
            "limit": self.limit,
            "constraint_met": self.met,
            "open_edges": self.sparse.edges,
            "open_edges_by_head": [[round(x, 6) for x in row] for row in self.sparse.heads],
            "best": vars(self.best),
        }


def sparsify(
    model: Model,
    text: str | Path,
    out: str | Path,
    settings: Settings | None = None,
    *,
    base: str | None = None,
    attribution: Mapping[str, str] | None = None,
    control: str | Path | None = None,
    minutes: float | None = None,
    rows: int | None = None,
    compile: bool | None = None,
    save_seconds: float = 60.0,
    progress: bool = True,
    say: Callable[[str], None] = print,
) -> Outcome | None:
    """Make a sparse version of `model` in the folder `out`; None if the time ran out before.

    The same call goes on where the last one stopped. `base` is the name by which the base model is
    loaded with the sparse one (else the model's own); `control` a folder that keeps the dense
    control, which runs of different constraints may share; `rows` the blocks in one pass.
    """
    settings = settings or Settings()
    out = Path(out)
    dense_folder = Path(control or out / "control")  # with the tokens, which are shared too
    deadline = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    module = plain(model.module)
    module.eval()  # no dropout: what is trained is what is measured
    with _sparse(model):
        pass  # a model that cannot be is refused before it writes and reads
    data = load_text(
        text,
        model.tokenizer,
        settings.block,
        held_out=settings.held_out,
        constraint=settings.constraint_articles,
        keep=dense_folder,
        progress=progress,
    )
    _tell(data, settings, say)
    identity = {"weights": model.identity["weights"], "text": data.source}
    if settings.own_rows:
        data = replace(data, own=_own_text(model, settings, dense_folder, deadline, progress))
        if data.own is None:
            say(
                f"Time is up while the model writes its own text, which is kept in {dense_folder}: "
                "the same command goes on from there."
            )
            return None
        identity["own_text"] = fingerprint(data.own)
    with (
        _sparse(model) as attentions,
        Tunable(module, settings) as tunable,
        drawing(attentions, pressure=settings.pressure) as draws,
    ):
        shared: dict[str, Any] = {
            "tunable": tunable,
            "text": data,
            "settings": settings,
            "attentions": attentions,
            "rows": rows,
            "compile": tunable.device.type != "cpu" if compile is None else compile,
            "deadline": deadline,
            "save_seconds": save_seconds,
            "progress": progress,
            "say": say,
        }
        dense = Run(
            folder=dense_folder,
            identity=identity | settings.of_control(),
            **shared,
        )
        if not dense.finish():
            _tell_stop(dense, say)
            return None
        controlled = dense.average if settings.average else tunable.copy()
        strict = settings.constraint == "control"
        reference = dense.measure(controlled if strict else None, dense.checked, None)
        run = Run(
            folder=out / "work" / "sparse",
            identity=identity | settings.facts(),
            draws=draws,
            limit=reference.loss + settings.tolerance,
            teacher=controlled if strict else None,
            reference=[(int(row["step"]), row["constraint_loss"]) for row in dense.log]
            if strict
            else (),
            **shared,
        )
        tunable.put(tunable.fresh)
        if not run.finish():
            _tell_stop(run, say)
            return None
        outcome, values = _evaluate(run, dense, controlled, settings)
        _write(out, model, tunable, values, settings, base, outcome, data, attribution or {})
    return outcome


def _own_text(
    model: Model, settings: Settings, folder: Path, deadline: float, progress: bool
) -> Blocks | None:
    """What the model writes before it is tuned; None if the time ran out before its end."""
    return write_own_text(
        model,
        settings.own_blocks,
        settings.block,
        seed=settings.seed,
        keep=folder,
        deadline=deadline,
        progress=progress,
    )


@contextmanager
def _sparse(model: Model) -> Iterator[list[nn.Module]]:
    """Sparse attention for a while; every head must run in it."""
    module = plain(model.module)
    attentions = make_sparse(module)
    try:
        names = {id(child): name for name, child in module.named_modules()}
        entered = {names[id(attention)] for attention in attentions}
        for site in model.sites:
            if site.attention not in entered:
                raise HeadcountError(
                    f"{model.name} cannot be made sparse: {site.attention} does not use "
                    "transformers' attention interface, through which sparse attention enters."
                )
        yield attentions
    finally:
        make_dense(module)


def _tell(data: Text, settings: Settings, say: Callable[[str], None]) -> None:
    rounds = settings.steps * (settings.batch - settings.own_rows) / len(data.train)
    own = f" and {settings.own_blocks:,} blocks that the model writes" if settings.own_rows else ""
    say(
        f"{data.tokens / 1e6:.3g} M tokens to train on{own}, {settings.steps} steps of "
        f"{settings.batch} × {settings.block}: {rounds:.2g} rounds of the text"
    )
    if settings.own and not settings.own_rows:
        say(f"A step of {settings.batch} blocks has no room for own text: none is written.")


def _tell_stop(run: Run, say: Callable[[str], None]) -> None:
    say(
        f"Time is up at step {run.step} of {run.settings.steps} of the {run.label} run, which is "
        f"kept in {run.folder}: the same command goes on from there."
    )


def _evaluate(
    run: Run, dense: Run, controlled: Values, settings: Settings
) -> tuple[Outcome, Values]:
    """Measure what will be written, rounded as it will be, on text that nothing was chosen by."""
    assert run.best is not None
    values = run.best_values
    if settings.rank:
        values = {name: value.to(DTYPE).to(value.dtype) for name, value in values.items()}
    blocks = run.text.final[: settings.final_blocks]
    original = run.measure(None, blocks, None)
    control = run.measure(controlled, blocks, None)
    reference = control if settings.constraint == "control" else original
    sparse = run.measure(values, blocks, 0.0)
    limit = reference.loss + settings.tolerance
    return Outcome(original, control, sparse, limit, run.best, run.log, dense.log), values


@torch.no_grad()
def _write(
    out: Path,
    model: Model,
    tunable: Tunable,
    values: Values,
    settings: Settings,
    base: str | None,
    outcome: Outcome,
    data: Text,
    attribution: Mapping[str, str],
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    training = {"settings": settings.facts(), **outcome.facts()}
    text = {"articles_sha256": data.source, "tokens": data.tokens, **attribution}
    if data.own is not None:
        text |= {"own_blocks": len(data.own), "own_sha256": fingerprint(data.own)}
    if settings.rank:
        shards = write_adapters(out, values)
        name, scale = base or model.name, settings.alpha / settings.rank
        # Weights in memory are recognised by their tensors, which files are not.
        weights = model.identity["weights"] if model.weight_files is not None else ""
        facts = SparseFacts(name, 0.0, scale, shards, training, text, weights)
    else:
        module: Any = tunable.module
        with tunable.using(values), _dense_config(module):
            module.save_pretrained(out)
        model.tokenizer.save_pretrained(out)
        facts = SparseFacts(None, 0.0, training=training, text=text)
    write_facts(out, facts)


@contextmanager
def _dense_config(module: Any) -> Iterator[None]:
    """Write an ordinary config: that the model is sparse, sparse.json says."""
    config = module.config
    module.config = copy.deepcopy(config)
    for name in ("gate_bias", "dense_kernel"):
        module.config.__dict__.pop(name, None)
    try:
        yield
    finally:
        module.config = config
