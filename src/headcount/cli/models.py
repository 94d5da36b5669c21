"""Commands about one model: `headcount doctor`, `generate` and `export`."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from itertools import groupby

from headcount.cli.common import Answer, gates_from, model_from
from headcount.engine.write.decode import generate as decode
from headcount.models.export import export as export_model
from headcount.models.model import Model
from headcount.models.sites import plain


def doctor(arguments: Namespace) -> Answer:
    """Load the model, which proves its heads or refuses, and tell what was shown."""
    model = model_from(arguments)
    layout, kind = model.layout, type(plain(model.module)).__name__
    document = {
        "model": model.name,
        "class": kind,
        "heads": layout.total,
        "heads_per_layer": list(layout.counts),
        "sites": [asdict(site) for site in model.sites],
        "checks": [{**asdict(check), "holds": check.holds} for check in model.proof.checks],
        "mixers": list(model.proof.mixers),
    }
    lines = [
        f"{model.name}: {kind}",
        f"{layout.total} heads in {len(layout.counts)} attention layers",
        "",
        *(f"  {line}" for line in geometry(model)),
        "",
        "proven on a made-up prompt:",
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
    return Answer(document, "\n".join(lines))


def geometry(model: Model) -> list[str]:
    """Runs of layers with the same geometry, one line each."""
    lines = []
    for (heads, size), run in groupby(model.sites, key=lambda site: (site.heads, site.size)):
        sites = list(run)
        first, last = sites[0], sites[-1]
        span = f"layer {first.index}" if first is last else f"layers {first.index}–{last.index}"
        lines.append(f"{span}: {heads} heads of size {size}, into {first.module}")
    return lines


def generate(arguments: Namespace) -> Answer:
    """Continue each prompt."""
    model = model_from(arguments)
    texts = decode(
        model,
        arguments.prompt,
        gates_from(arguments, model),
        max_new_tokens=arguments.max_new_tokens,
        scope=arguments.scope,
        temperature=arguments.temperature,
        seed=arguments.seed,
        progress=not arguments.quiet,
    )
    whole = [prompt + text.text for prompt, text in zip(arguments.prompt, texts, strict=True)]
    return Answer([asdict(text) for text in texts], "\n".join(whole))


def export(arguments: Namespace) -> Answer:
    """Fold the head set into the weights, write them, and prove what was written."""
    model = model_from(arguments)
    gates = gates_from(arguments, model)
    folder = export_model(model, gates, arguments.out)
    off = int((gates == 0).sum())
    return Answer(
        {"folder": folder, "heads_off": off},
        f"{model.name} without {off} heads, proven equal: {folder}",
    )
