"""The options of `headcount export`."""

from __future__ import annotations

from headcount.cli.options import HEADS, others
from headcount.cli.parser import Parser


def add_export(parser: Parser) -> None:
    """What is written, and where."""
    add, option = parser.add_argument, parser.option
    form = "checkpoint: the whole model; adapter: a LoRA adapter for each head set (checkpoint)"
    add("--as", dest="form", choices=("checkpoint", "adapter"), default="checkpoint", help=form)
    heads = f"{HEADS}; adapters: repeat it for several head sets"
    option("--heads", "LAYER.HEAD", heads, [], nargs="*", action="append")
    others(parser)
    option("--out", "FOLDER", "folder to write; one with adapters may exist already", required=True)
    adapters = parser.add_argument_group("adapters").add_argument
    scores = "scores or a list of heads: the best heads, and random ones as controls"
    adapters("--scores", metavar="FILE", help=scores)
    other = "take a list of another model with the same layers and heads"
    adapters("--other-model", action="store_true", help=other)
    adapters("--counts", metavar="N", type=int, nargs="+", help="how many heads (8 16 32)")
    series = "top, bottom, random, matched or anywhere, as in headcount curve (top random matched)"
    adapters("--series", metavar="SERIES", nargs="+", help=series)
    adapters("--seeds", metavar="N", type=int, default=5, help="random draws for each count (5)")
    rank = "refuse adapters of a larger rank: head size times heads that change in a layer (512, "
    rank += "the most that vLLM takes)"
    adapters("--max-rank", metavar="N", type=int, default=512, help=rank)
    base = "the model's name for engines (its hub id, or the path of its folder)"
    adapters("--base", metavar="NAME", default="", help=base)
    unloaded = "do not load the model: read only the output projections from its safetensors"
    adapters("--unloaded", action="store_true", help=unloaded)
