"""`headcount doctor`: the proof that a model's heads can be gated."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from itertools import groupby

from headcount.cli.common import model_from, print_json
from headcount.models.model import Model
from headcount.models.sites import plain


def doctor(arguments: Namespace) -> int:
    """Load the model, which proves its heads or refuses, and print what was shown."""
    model = model_from(arguments)
    if arguments.json:
        print_json(report(model))
        return 0
    layout = model.layout
    print(f"{model.name}: {type(plain(model.module)).__name__}")
    print(f"{layout.total} heads in {len(layout.counts)} attention layers\n")
    for line in geometry(model):
        print(f"  {line}")
    print("\nproven on a made-up prompt:")
    for check in model.proof.checks:
        print(f"  ✓ {check.statement} (error {check.error:.1e}, limit {check.limit:.0e})")
    if any(site.coupled for site in model.sites):
        print("  ! a norm over all heads comes before the projection; gates act after it")
    if any(site.queries > 1 for site in model.sites):
        print("  ! several query heads share one slice, which is gated as one head")
    if model.proof.mixers:
        print("\ntokens also mix outside these heads, in:")
        for name in model.proof.mixers:
            print(f"  {name}")
    return 0


def geometry(model: Model) -> list[str]:
    """Runs of layers with the same geometry, one line each."""
    lines = []
    for (heads, size), run in groupby(model.sites, key=lambda site: (site.heads, site.size)):
        sites = list(run)
        first, last = sites[0], sites[-1]
        span = f"layer {first.index}" if first is last else f"layers {first.index}–{last.index}"
        lines.append(f"{span}: {heads} heads of size {size}, into {first.module}")
    return lines


def report(model: Model) -> dict[str, object]:
    """The same as JSON."""
    return {
        "model": model.name,
        "class": type(plain(model.module)).__name__,
        "heads": model.layout.total,
        "heads_per_layer": list(model.layout.counts),
        "sites": [asdict(site) for site in model.sites],
        "checks": [{**asdict(check), "holds": check.holds} for check in model.proof.checks],
        "mixers": list(model.proof.mixers),
    }
