"""`headcount sparsify`: a sparse version of a dense model."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from headcount.cli.common import model_from, print_json
from headcount.cli.options import parse_settings
from headcount.errors import unknown
from headcount.figures.edges import plot_edges
from headcount.figures.style import save_figure
from headcount.sparse.settings import Settings
from headcount.sparse.sparsify import Sparsified
from headcount.sparse.sparsify import sparsify as make_sparse_model
from headcount.system.files import write_csv

# Options of the command line that are settings; --set reaches the others.
OPTIONS = (
    *("steps", "block", "batch", "rank", "lr", "constraint", "tolerance", "distil", "seed"),
    *("own", "held_out", "constraint_articles"),
)


def sparsify(arguments: Namespace) -> int:
    """Tune the dense control, then the sparse model; write it, its log and its figure."""
    chosen = {name: getattr(arguments, name) for name in OPTIONS}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    run = settings_from(chosen | parse_settings(arguments.set))
    model = model_from(arguments)
    out = Path(arguments.out)
    say = (lambda text: None) if arguments.json else (lambda text: print(text, flush=True))
    outcome = make_sparse_model(
        model,
        arguments.text,
        out,
        run,
        base=arguments.base or base_name(arguments.model),
        attribution=attribution(arguments),
        control=arguments.control,
        minutes=arguments.minutes,
        rows=arguments.rows,
        compile=arguments.compile,
        progress=not (arguments.quiet or arguments.json),
        say=say,
    )
    if outcome is None:
        if arguments.json:
            print_json({"finished": False})
        return 0
    write_csv(out / "log.csv", outcome.log)
    write_csv(out / "control-log.csv", outcome.control_log)
    title = f"{model.name}: {outcome.sparse.edges:.2%} of the edges stay open"
    save_figure(plot_edges(outcome.log, control=outcome.control_log, title=title), out)
    if arguments.json:
        print_json({"finished": True, "out": str(out), **outcome.facts()})
        return 0
    for line in report(outcome):
        print(line)
    print(f"The sparse model: {out} (headcount doctor {out})")
    return 0


def settings_from(chosen: Mapping[str, Any]) -> Settings:
    """Settings by name, each checked."""
    known = [field.name for field in fields(Settings)]
    for name in chosen:
        if name not in known:
            raise unknown("setting", name, known)
    return Settings(**chosen)


def base_name(model: str) -> str:
    """How the base model is found again, from whatever folder."""
    path = Path(model).expanduser()
    return str(path.resolve()) if path.exists() else model


def attribution(arguments: Namespace) -> dict[str, str]:
    """Where the text comes from, as far as it was told."""
    told = {"source": arguments.text_source, "licence": arguments.text_licence}
    return {"name": Path(arguments.text).name, **{k: v for k, v in told.items() if v}}


def report(outcome: Sparsified) -> list[str]:
    """What came of it, on text that was neither trained on nor chosen by."""
    gap = outcome.sparse.loss - outcome.control.loss
    lines = [
        f"original model   loss {outcome.original.loss:.3f}",
        f"dense control    loss {outcome.control.loss:.3f}",
        f"sparse model     loss {outcome.sparse.loss:.3f} ({gap:+.3f} against the control), "
        f"{outcome.sparse.edges:.2%} of the edges open",
    ]
    if outcome.met:
        lines.append(f"The constraint is met: the loss is at most {outcome.limit:.3f}.")
    else:
        over = outcome.sparse.loss - outcome.limit
        lines.append(
            f"The constraint is NOT met: the loss is {over:.3f} above {outcome.limit:.3f}. The "
            f"best weights, of step {outcome.best.step}, were kept: allow more (--tolerance), or "
            "train for longer (--steps)."
        )
    return lines
