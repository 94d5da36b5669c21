"""Groups of options that several commands share."""

from __future__ import annotations

from headcount.cli.parser import Parser

MODEL = "a hub id, folder, .gguf file or bundled name"
STORE = "file of the stored measurements (HEADCOUNT_STORE, or store.sqlite in the cache folder)"

HEADS = (
    "heads to switch off; 3.4 is head 4 of layer 3, both counted from 0; or the .json file of a "
)
HEADS += "head set, as the explorer and HeadSet.save write it"


def folders(parser: Parser, of: str) -> None:
    """The folders that a command reads."""
    text = f"folders of {of}, or folders that contain such folders"
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help=text)


def loading(parser: Parser, *, unit: bool = True) -> None:
    """How a model is loaded."""
    add = parser.add_argument_group("how the model is loaded").add_argument
    dtype = "float32, bfloat16, float16, or auto for that of the checkpoint (float32)"
    add("--dtype", help=dtype)
    add("--device", help="cpu, cuda, cuda:1 or mps (a GPU where there is one)")
    add("--device-map", metavar="MAP", help="auto spreads the model over several devices")
    kernels = "attention kernel: sdpa, eager, flash_attention_2, …"
    add("--attention", metavar="KERNEL", help=kernels)
    add("--revision", metavar="NAME", help="branch, tag or commit of a hub model")
    add("--trust-remote-code", action="store_true", help="run code that comes with the model")
    if unit:
        units = "what is gated, and called 3.1: query heads, or key/value heads (head)"
        add("--unit", choices=("head", "kv"), help=units)


def model(parser: Parser) -> None:
    """The model."""
    parser.option("--model", "MODEL", MODEL, "smollm2-135m-q4")


def model_and_task(parser: Parser) -> None:
    """The model and the task."""
    model(parser)
    parser.option("--task", "TASK", "name of a task, or a .jsonl or .json file of examples", "ioi")
    set_pairs(parser, "settings of the task, such as n=100")
    loading(parser)


def ranking(parser: Parser, text: str) -> None:
    """The ranking and its settings."""
    parser.option("--ranking", "RANKING", text, "attribution")
    settings = "settings of the ranking, such as metric=logit_difference; rankings use the metric "
    settings += "logprob unless told otherwise, because accuracy has no derivative"
    set_pairs(parser, settings, "--ranking-set")


def set_pairs(parser: Parser, text: str, name: str = "--set", *, pair: str = "NAME=VALUE") -> None:
    """NAME=VALUE pairs."""
    parser.option(name, pair, text, [], nargs="*")


def out(parser: Parser, folder: str) -> None:
    """The folder for the results."""
    parser.option("--out", "FOLDER", "folder for the results", folder)


def heads(parser: Parser, *, required: bool = False) -> None:
    """The heads to switch off, or to keep."""
    parser.option("--heads", "LAYER.HEAD", HEADS, [], nargs="*", required=required)
    others(parser)


def others(parser: Parser) -> None:
    """What is done with the heads."""
    parser.flag("--keep", "keep these heads, and switch all others off")
    parser.option("--gate", "X", "number by which heads that are off are multiplied", 0.0)


def scope(parser: Parser, text: str) -> None:
    """Which passes are gated."""
    parser.add_argument("--scope", choices=("all", "decode"), default="all", help=f"{text} (all)")


def metric(parser: Parser) -> None:
    """What is measured, and how heads are off."""
    parser.option("--metric", "METRIC", "what is measured, see headcount list", "accuracy")
    ablation = "what replaces a head that is off: zero; mean or clean-mean, over the corrupted or "
    ablation += "clean prompts of the ranking split; resampled, its output on another prompt; "
    ablation += "corrupted, that on the corrupted prompt; or streaming:SINK:WINDOW, what it says "
    ablation += "when it sees only so many first and recent tokens (streaming: 16 and 64)"
    parser.option("--ablation", "ABLATION", ablation, "zero")
    scope(parser, "with metrics of texts: heads are off at all tokens, or only at new ones")
    where = "with metrics of logits: the positions where heads are off: all; last, the last one of "
    where += "the prompt; answer, those that predict the target; or a slice of the prompt's "
    where += "tokens, such as --positions=-8: for the last eight"
    parser.option("--positions", "WHERE", where, "all")
    parser.flag("--explain", "print how forward passes are batched")


def other_model(parser: Parser) -> None:
    """Whether a list may be of another model."""
    parser.flag("--other-model", "take a list of another model with the same layers and heads")


def quiet(parser: Parser) -> None:
    """Whether progress is shown."""
    parser.flag("--quiet", "print neither progress nor forecasts")


def keeping(parser: Parser) -> None:
    """Where measurements are kept."""
    parser.option("--store", "FILE", STORE)
    parser.flag("--no-store", "keep no measurements, and reuse none")
    quiet(parser)


def measuring(parser: Parser) -> None:
    """How measurements are made."""
    keeping(parser)
    parser.flag("--dry-run", "print what would be measured, and about how long it takes")
    add = parser.add_argument_group("many machines (pip install 'headcount[ray]')").add_argument
    ray = "measure on a Ray cluster: one that is started here, the one at ADDRESS (HOST:PORT), or "
    ray += "with auto the one to which this machine belongs"
    add("--ray", nargs="?", const="local", metavar="ADDRESS", help=ray)
    add("--workers", type=int, metavar="N", help="how many workers (one for each GPU)")
    server(parser)


def server(parser: Parser) -> None:
    """A server that measures in place of this process."""
    title = "a server of adapters, such as vLLM (docs/serving.md)"
    add = parser.add_argument_group(title).add_argument
    url = "measure there; the model is not loaded here (a key: HEADCOUNT_SERVER_KEY)"
    add("--server", metavar="URL", help=url)
    folder = "the folder of adapters that export --as adapter wrote (adapters)"
    add("--adapters", metavar="FOLDER", default="adapters", help=folder)
    write = "write adapters that the folder lacks, where the server looks for them"
    add("--write-adapters", action="store_true", help=write)
    precision = "how the server computes, such as bfloat16: part of the store's keys (auto)"
    add("--precision", metavar="NAME", default="auto", help=precision)
