"""Make a sparse model from a dense one and a text: dense control, sparse run, evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headcount.errors import HeadcountError
from headcount.models.export import config_kept
from headcount.models.gate import require_one_process
from headcount.models.model import Model
from headcount.models.sites import plain
from headcount.sparse.checkpoint import DTYPE, SparseFacts, write_adapters, write_facts
from headcount.sparse.make_sparse import drawing, make_dense, make_sparse
from headcount.sparse.objective import Loss
from headcount.sparse.settings import Settings
from headcount.sparse.text import Text, load_text, write_own_text
from headcount.sparse.train import Best, Run, Running
from headcount.sparse.tunable import Tunable, Values, layer_width
from headcount.system.bundled import is_disk_full
from headcount.system.files import checked_path
from headcount.system.folders import locked_folder


@dataclass(frozen=True)
class Sparsified:
    """Losses of the three models on text that no choice was based on, and the training logs."""

    original: Loss
    control: Loss
    sparse: Loss
    limit: float  # on this text: the loss of the constraint's model plus the tolerance
    best: Best
    log: list[dict[str, float]] = field(repr=False)
    control_log: list[dict[str, float]] = field(repr=False)

    @property
    def met(self) -> bool:
        """Whether the sparse model meets the constraint on this text."""
        return self.sparse.loss <= self.limit

    def facts(self) -> dict[str, Any]:
        """The losses and edges as sparse.json holds them."""
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
    **running: Any,
) -> Sparsified | None:
    """Make a sparse version of `model` in the folder `out`; None if the time ran out.

    The same call continues where the last one stopped. `base` is the name by which the sparse model
    loads its base model (by default the model's own name). `control` is a folder for the dense
    control, which runs with different constraints may share. `running` are fields of `Running`:
    minutes, rows, compile, save_seconds, progress, say.
    """
    settings, how = settings or Settings(), Running(**running)
    out = checked_path(out)
    shared = checked_path(control or out / "control")  # holds the tokens too
    _check_fit(model, settings)
    with working_in(out), ExitStack() as making_control:
        if shared.resolve() != out.resolve():
            making_control.enter_context(working_in(shared))
        data = _read_text(model, text, settings, shared, how)
        if data is None:
            return None
        identity = {"weights": model.identity["weights"], "text": data.source}  # of the dense model
        if data.own is not None:
            identity["own_text"] = data.own_digest
        with (
            _sparse(model) as attentions,
            Tunable(plain(model.module), settings) as tunable,
            drawing(attentions, pressure=settings.pressure) as draws,
        ):
            of_control = identity | settings.of_control()
            dense = Run(tunable, data, settings, shared, of_control, how, attentions)
            if not dense.finish():
                return None
            making_control.close()  # from here on, other runs may use the control too
            controlled = dense.average if settings.average else tunable.copy()
            run = _sparse_run(dense, controlled, out / "work" / "sparse", identity)
            run.draws = draws
            tunable.put(tunable.fresh)
            if not run.finish():
                return None
            outcome, values = _evaluate(run, dense, controlled)
            facts = _write(out, model, tunable, values)
        training = {"settings": asdict(settings), **outcome.facts()}
        name = facts.base and (base or facts.base)
        about_text = _about_text(data, attribution or {})
        write_facts(out, replace(facts, base=name, training=training, text=about_text))
    return outcome


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder, which is made if need be; a full disk is told plainly."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked_folder(folder, wait=False))
        except BlockingIOError as error:
            raise HeadcountError(
                f"Another run of headcount is at work in {folder}: wait until it ends, or "
                "choose another folder."
            ) from error
        try:
            yield
        except Exception as error:
            if not is_disk_full(error):
                raise
            raise HeadcountError(
                f"The disk of {folder} is full: free some space and run the same command again, "
                "which continues from the last checkpoint."
            ) from error


def _check_fit(model: Model, settings: Settings) -> None:
    """Refuse what this model cannot do before the slow work starts."""
    require_one_process(model.sites, "Post-training")
    limit, module = model.context_limit, plain(model.module)
    if limit is not None and settings.block > limit:
        raise HeadcountError(
            f"Blocks of {settings.block} tokens are longer than the {limit} that {model.name} can "
            "read: choose a smaller --block."
        )
    module.eval()  # no dropout: what is trained is what is measured
    with _sparse(model):
        pass  # refuses a model that cannot be sparse
    if settings.rank and settings.rank > (width := layer_width(module)):
        raise HeadcountError(
            f"A rank of {settings.rank} is above the width of the layers of {model.name}: choose "
            f"a --rank of at most {width}, or 0 to train all weights."
        )


def _about_text(data: Text, attribution: Mapping[str, str]) -> dict[str, Any]:
    """The text as sparse.json describes it."""
    about = {"articles_sha256": data.source, "tokens": data.train.size, **attribution}
    if data.own is not None:
        about |= {"own_blocks": len(data.own), "own_sha256": data.own_digest}
    return about


def _read_text(
    model: Model, path: str | Path, settings: Settings, folder: Path, how: Running
) -> Text | None:
    """The training text, with the text that the model writes itself; None if the time ran out."""
    kept: dict[str, Any] = {"keep": folder, "progress": how.progress}
    parts = (settings.held_out, settings.constraint_articles)
    data = load_text(path, model.tokenizer, settings.block, *parts, **kept)
    _tell_size(data, settings, how.say)
    if not settings.own_rows:
        return data
    kept |= {"seed": settings.seed, "deadline": how.deadline}
    own = write_own_text(model, settings.own_blocks, settings.block, **kept)
    if own is None:
        how.say(
            f"Time is up while the model writes its own text, which is kept in {folder}: run the "
            "same command again to continue."
        )
        return None
    return replace(data, own=own)


def _tell_size(data: Text, settings: Settings, say: Callable[[str], None]) -> None:
    epochs = settings.steps * (settings.batch - settings.own_rows) / len(data.train)
    own = f" and {settings.own_blocks:,} blocks that the model writes" if settings.own_rows else ""
    say(
        f"{data.train.size / 1e6:.3g} M tokens to train on{own}, {settings.steps} steps of "
        f"{settings.batch} × {settings.block}: {epochs:.2g} epochs"
    )
    if settings.own and not settings.own_rows:
        say(f"{settings.batch} blocks per step are too few to include text of the model itself.")


@contextmanager
def _sparse(model: Model) -> Iterator[list[nn.Module]]:
    """Give the model sparse attention inside this context; every head must use it."""
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


def _sparse_run(dense: Run, controlled: Values, folder: Path, identity: Mapping[str, Any]) -> Run:
    """The sparse model's run; its limit comes from the dense control or the original model."""
    settings = dense.settings
    strict = settings.constraint == "control"
    reference = dense.measure(controlled if strict else None, dense.checked, None)
    steps = [(int(row["step"]), row["constraint_loss"]) for row in dense.log]
    return Run(
        dense.tunable,
        dense.text,
        settings,
        folder,
        {**identity, **asdict(settings)},
        dense.how,
        dense.attentions,
        limit=reference.loss + settings.tolerance,
        teacher=controlled if strict else None,
        reference=steps if strict else (),
    )


def _evaluate(run: Run, dense: Run, controlled: Values) -> tuple[Sparsified, Values]:
    """Measure the final weights, rounded as in the file, on text that no choice was based on."""
    assert run.best is not None
    settings, values = run.settings, run.best_values
    if settings.rank:
        values = {name: value.to(DTYPE).to(value.dtype) for name, value in values.items()}
    blocks = run.text.final[: settings.final_blocks]
    original = run.measure(None, blocks, None)
    control = run.measure(controlled, blocks, None)
    reference = control if settings.constraint == "control" else original
    sparse = run.measure(values, blocks, 0.0)
    limit = reference.loss + settings.tolerance
    return Sparsified(original, control, sparse, limit, run.best, run.log, dense.log), values


@torch.no_grad()
def _write(out: Path, model: Model, tunable: Tunable, values: Values) -> SparseFacts:
    """Write the tuned weights: adapters, or the whole model with an ordinary config."""
    out.mkdir(parents=True, exist_ok=True)
    settings = tunable.settings
    if settings.rank:
        # A model that was not loaded from files has no file checksum to compare with later.
        weights = model.identity["weights"] if model.weight_files is not None else ""
        shards, scale = write_adapters(out, values), settings.alpha / settings.rank
        return SparseFacts(model.name, 0.0, scale, shards, base_weights=weights)
    module: Any = tunable.module
    with tunable.using(values), config_kept(module, "gate_bias", "dense_kernel"):
        module.save_pretrained(out)
    model.tokenizer.save_pretrained(out)
    return SparseFacts(None, 0.0)
