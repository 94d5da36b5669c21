"""`headcount export`: an ordinary checkpoint without some heads."""

from __future__ import annotations

from argparse import Namespace

from headcount.cli.common import model_from, print_json
from headcount.models.export import export as export_model


def export(arguments: Namespace) -> int:
    """Fold the head set into the weights, write them, and prove what was written."""
    model = model_from(arguments)
    heads = [model.layout.parse(text) for text in arguments.heads]
    gates = model.layout.gates(**{"keep" if arguments.keep else "off": heads})
    folder = export_model(model, gates, arguments.out)
    if arguments.json:
        print_json({"folder": folder, "heads_off": int((gates == 0).sum())})
    else:
        print(f"{model.name} without {int((gates == 0).sum())} heads, proven equal: {folder}")
    return 0
