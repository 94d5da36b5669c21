"""Commands about one model: `headcount doctor`, `generate`, `export`, `sparsify`."""

from __future__ import annotations

import re
from argparse import Namespace
from dataclasses import asdict, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from headcount.cli.adapters import one_head_set, write_adapters
from headcount.cli.common import Answer, heads_from, model_from
from headcount.cli.parser import chosen_settings, parse_settings
from headcount.engine.write.decode import generate as decode
from headcount.engine.write.settings import Decoding
from headcount.errors import counted
from headcount.figures.edges import plot_edges
from headcount.figures.style import save_figure
from headcount.models.export import check_new
from headcount.models.export import export as export_model
from headcount.models.model import Model, load_model
from headcount.models.sites import HeadSite, plain
from headcount.models.token_checks import check_bos, token_warnings
from headcount.models.weights import display_names
from headcount.registry import check_setting, make_settings
from headcount.sparse.nanogpt import convert as convert_checkpoint
from headcount.sparse.settings import Settings
from headcount.sparse.sparsify import Sparsified, working_in
from headcount.sparse.sparsify import sparsify as make_sparse_model
from headcount.sparse.text import text_file
from headcount.sparse.train import Running
from headcount.system.files import checked_path, write_csv
from headcount.system.folders import check_place


def doctor(arguments: Namespace) -> Answer:
    """Load the model, which checks that its heads can be gated, and print these checks."""
    model = model_from(arguments)
    layout, kind = model.layout, type(plain(model.module)).__name__
    bos, warnings = check_bos(model), token_warnings(model)
    warnings += [bos.warning] if bos and bos.warning else []
    document = {
        "model": model.name,
        "class": kind,
        "heads": layout.total,
        "heads_per_layer": list(layout.counts),
        "sites": [asdict(site) for site in model.sites],
        "checks": [{**asdict(check), "holds": check.holds} for check in model.proof.checks],
        "mixers": list(model.proof.mixers),
        "bos": bos and asdict(bos),
        "warnings": warnings,
    }
    lines = [
        f"{model.name}: {kind}",
        f"{layout.total} {layout.word}s in {len(layout.counts)} attention layers",
        "",
        *(f"  {line}" for line in geometry(model)),
        "",
        "checked on a made-up prompt:",
    ]
    for check in model.proof.checks:
        lines.append(f"  ✓ {check.statement} (error {check.error:.1e}, limit {check.limit:.0e})")
    if any(site.coupled for site in model.sites):
        lines.append("  ! a norm over all heads comes before the projection; gates act after it")
    if any(site.queries > 1 for site in model.sites):
        lines.append("  ! several query heads share one slice, which is gated as one head")
    if model.proof.mixers:
        lines += ["", "tokens also mix outside these heads, in:"]
        lines += [f"  {name}" for name in model.proof.mixers]
    if bos:
        lines += [
            "",
            f"texts begin with {bos.prefix or 'no added token'}; a short text has a loss of",
        ]
        lines += [f"  {bos.with_bos:.2f} for each token after {bos.bos}, {bos.without:.2f} without"]
    lines += ["", *(f"! {warning}" for warning in warnings)] if warnings else []
    return Answer(document, "\n".join(lines))


def geometry(model: Model) -> list[str]:
    """Runs of layers with the same geometry, one line each; * stands for a layer's number."""

    def form(site: HeadSite) -> tuple[int, int, str]:
        return site.heads, site.size, re.sub(r"\b\d+\b", "*", site.module)

    lines = []
    for (heads, size, module), run in groupby(model.sites, key=form):
        first, *others = list(run)
        span, into = f"layer {first.index}", first.module
        if others:
            span, into = f"layers {first.index}–{others[-1].index}", module
        lines.append(f"{span}: {counted(heads, 'head')} of size {size}, into {into}")
    return lines


def generate(arguments: Namespace) -> Answer:
    """Continue each prompt."""
    names = ("max_new_tokens", "scope", "temperature", "seed")
    chosen: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    make_settings("generate", Decoding, chosen)  # refuses before a model is loaded
    heads = heads_from(arguments)
    model = model_from(arguments)
    texts = decode(model, arguments.prompt, heads, progress=not arguments.quiet, **chosen)
    whole = [prompt + text.text for prompt, text in zip(arguments.prompt, texts, strict=True)]
    return Answer([asdict(text) for text in texts], "\n".join(whole))


def export(arguments: Namespace) -> Answer:
    """Fold the head set into the weights, write them, load them again, and compare logits."""
    if arguments.form == "adapter":
        return write_adapters(arguments)
    (arguments.heads,) = one_head_set(arguments)
    check_place(check_new(arguments.out))  # refuses before a model is loaded
    heads = heads_from(arguments, needed=True)
    model = model_from(arguments)
    folder = export_model(model, heads, arguments.out)
    gated = counted(int((heads.gates(model.layout) != 1).sum()), "head")
    how = f"with {gated} times {heads.gate:g}" if heads.gate else f"without {gated}"
    return Answer(
        {"folder": folder, "heads_off": int((heads.gates(model.layout) == 0).sum())},
        f"{model.name} {how}: {folder}\n"
        "It was loaded again, and computes the same logits as the gated model.",
    )


def convert(arguments: Namespace) -> Answer:
    """Write a nanoGPT checkpoint as a folder, and load the model from there."""
    place = check_place(check_new(arguments.out))
    bias = None if arguments.dense else arguments.gate_bias
    how: dict[str, Any] = {"heads": arguments.heads, "tokenizer": arguments.tokenizer}
    folder = convert_checkpoint(arguments.file, place, gate_bias=bias, **how)
    model = load_model(folder)
    kind = "a dense model" if bias is None else f"a sparse model, gate bias {bias:g}"
    return Answer(
        {"folder": folder, "heads": model.layout.total, "gate_bias": bias},
        f"{folder}: {kind} with {counted(model.layout.total, 'head')}; headcount loads it.",
    )


def sparsify(arguments: Namespace) -> Answer:
    """Tune the dense control, then the sparse model; write it, its log and its figure."""
    chosen = chosen_settings(arguments, Settings) | parse_settings(arguments.set)
    known = {item.name: item.default for item in fields(Settings)}
    for name, value in chosen.items():
        chosen[name] = check_setting("sparsify", name, value, known)
    settings, out = Settings(**chosen), checked_path(arguments.out)
    how: dict[str, Any] = {
        "minutes": arguments.minutes,
        "rows": arguments.rows,
        "compile": arguments.compile,
        "progress": not (arguments.quiet or arguments.json),
        "say": (lambda text: None) if arguments.json else (lambda text: print(text, flush=True)),
    }
    Running(**how)  # bad values, a missing text, and a folder in use are refused before loading
    text_file(arguments.text)
    with working_in(out):
        model = model_from(arguments)
    told = {"source": arguments.text_source, "licence": arguments.text_licence}
    here = Path(arguments.model).expanduser()
    outcome = make_sparse_model(
        model,
        arguments.text,
        out,
        settings,
        # An absolute path, so that the base model is found from any folder.
        base=arguments.base or str(here.resolve() if here.exists() else arguments.model),
        attribution={"name": Path(arguments.text).name} | {k: v for k, v in told.items() if v},
        control=arguments.control,
        **how,
    )
    if outcome is None:
        return Answer({"finished": False}, "")
    write_csv(out / "log.csv", outcome.log)
    write_csv(out / "control-log.csv", outcome.control_log)
    named = display_names({model.name: model.facts})[model.name]
    title = f"{named}: {outcome.sparse.edges:.2%} of the edges stay open"
    save_figure(plot_edges(outcome.log, control=outcome.control_log, title=title), out)
    return Answer(
        {"finished": True, "out": str(out), **outcome.facts()},
        f"{_summary(outcome)}\nThe sparse model: {out} (headcount doctor {out})",
    )


def _summary(outcome: Sparsified) -> str:
    """The losses, on text that was used neither to train nor to choose the weights."""
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
