"""The options of `headcount export`, and of the commands that measure on a server of adapters."""

from __future__ import annotations

from headcount.cli.parser import Parser


def add_export(parser: Parser) -> None:
    """What is written, and where."""
    add, option = parser.add_argument, parser.option
    form = "checkpoint: the whole model; adapter: a LoRA adapter for each head set (checkpoint)"
    add("--as", dest="form", choices=("checkpoint", "adapter"), default="checkpoint", help=form)
    heads = "heads to switch off; 3.4 is head 4 of layer 3, both counted from 0; adapters: repeat "
    heads += "it for several head sets"
    option("--heads", "LAYER.HEAD", heads, [], nargs="+", action="append")
    parser.flag("--keep", "keep these heads, and switch all others off")
    option("--out", "FOLDER", "folder to write; one with adapters may exist already", required=True)
    adapters = parser.add_argument_group("adapters").add_argument
    scores = "file of scores that rank --out wrote: the best heads, and random ones as controls"
    adapters("--scores", metavar="FILE", help=scores)
    adapters("--counts", metavar="N", type=int, nargs="+", help="how many heads (8 16 32)")
    series = "top, bottom, random, matched or anywhere, as in headcount curve (top random matched)"
    adapters("--series", metavar="SERIES", nargs="+", help=series)
    adapters("--seeds", metavar="N", type=int, default=5, help="random draws for each count (5)")
    factor = "factor by which the heads are multiplied, instead of being switched off (0)"
    adapters("--epsilon", metavar="X", type=float, default=0.0, help=factor)
    rank = "refuse adapters of a larger rank: head size times heads that change in a layer (512, "
    rank += "the most that vLLM takes)"
    adapters("--max-rank", metavar="N", type=int, default=512, help=rank)
    base = "the model's name for engines (its hub id, or the path of its folder)"
    adapters("--base", metavar="NAME", default="", help=base)
    unloaded = "do not load the model: read only the output projections from its safetensors"
    adapters("--unloaded", action="store_true", help=unloaded)


def add_server(parser: Parser) -> None:
    """A server that measures in place of this process."""
    title = "a server of adapters, such as vLLM (docs/serving.md)"
    add = parser.add_argument_group(title).add_argument
    server = "measure there; the model is not loaded here (a key: HEADCOUNT_SERVER_KEY)"
    add("--server", metavar="URL", help=server)
    folder = "the folder of adapters that export --as adapter wrote (adapters)"
    add("--adapters", metavar="FOLDER", default="adapters", help=folder)
    write = "write adapters that the folder lacks, where the server looks for them"
    add("--write-adapters", action="store_true", help=write)
    precision = "how the server computes, such as bfloat16: part of the store's keys (auto)"
    add("--precision", metavar="NAME", default="auto", help=precision)
