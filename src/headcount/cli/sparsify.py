"""`headcount sparsify`: a sparse version of a dense model."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from headcount.cli.common import Answer, model_from
from headcount.cli.parser import chosen_settings, parse_settings
from headcount.figures.edges import plot_edges
from headcount.figures.style import save_figure
from headcount.registry import Entry
from headcount.sparse.settings import Settings
from headcount.sparse.sparsify import Sparsified
from headcount.sparse.sparsify import sparsify as make_sparse_model
from headcount.system.files import write_csv


def sparsify(arguments: Namespace) -> Answer:
    """Tune the dense control, then the sparse model; write it, its log and its figure."""
    chosen = chosen_settings(arguments, Settings) | parse_settings(arguments.set)
    settings = Settings(**Entry("sparsify", "", make_sparse_model, Settings).bind(**chosen))
    model, out = model_from(arguments), Path(arguments.out)
    told = {"source": arguments.text_source, "licence": arguments.text_licence}
    here = Path(arguments.model).expanduser()
    outcome = make_sparse_model(
        model,
        arguments.text,
        out,
        settings,
        # The base model must be found again, from whatever folder.
        base=arguments.base or str(here.resolve() if here.exists() else arguments.model),
        attribution={"name": Path(arguments.text).name} | {k: v for k, v in told.items() if v},
        control=arguments.control,
        minutes=arguments.minutes,
        rows=arguments.rows,
        compile=arguments.compile,
        progress=not (arguments.quiet or arguments.json),
        say=(lambda text: None) if arguments.json else (lambda text: print(text, flush=True)),
    )
    if outcome is None:
        return Answer({"finished": False}, "")
    write_csv(out / "log.csv", outcome.log)
    write_csv(out / "control-log.csv", outcome.control_log)
    title = f"{model.name}: {outcome.sparse.edges:.2%} of the edges stay open"
    save_figure(plot_edges(outcome.log, control=outcome.control_log, title=title), out)
    return Answer(
        {"finished": True, "out": str(out), **outcome.facts()},
        f"{summary(outcome)}\nThe sparse model: {out} (headcount doctor {out})",
    )


def summary(outcome: Sparsified) -> str:
    """What came of it, on text that was neither trained on nor chosen by."""
    gap = outcome.sparse.loss - outcome.control.loss
    text = (
        f"original model   loss {outcome.original.loss:.3f}\n"
        f"dense control    loss {outcome.control.loss:.3f}\n"
        f"sparse model     loss {outcome.sparse.loss:.3f} ({gap:+.3f} against the control), "
        f"{outcome.sparse.edges:.2%} of the edges open\n"
    )
    if outcome.met:
        return f"{text}The constraint is met: the loss is at most {outcome.limit:.3f}."
    over = outcome.sparse.loss - outcome.limit
    return text + (
        f"The constraint is NOT met: the loss is {over:.3f} above {outcome.limit:.3f}. The "
        f"best weights, of step {outcome.best.step}, were kept: allow more (--tolerance), or "
        "train for longer (--steps)."
    )
