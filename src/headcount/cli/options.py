"""Groups of options that several commands share."""

from __future__ import annotations

from headcount.cli.export_options import add_server
from headcount.cli.parser import Parser

MODEL = "a hub id, folder, .gguf file or bundled name"
STORE = "file of the stored measurements (HEADCOUNT_STORE, or store.sqlite in the cache folder)"


def folders(parser: Parser, of: str) -> None:
    """The folders that a command reads."""
    text = f"folders of {of}, or folders that contain such folders"
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help=text)


def loading(parser: Parser) -> None:
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


def heads(parser: Parser) -> None:
    """The heads to switch off, or to keep."""
    heads = "heads to switch off; 3.4 is head 4 of layer 3, both counted from 0"
    parser.option("--heads", "LAYER.HEAD", heads, nargs="+", required=True)
    parser.flag("--keep", "keep these heads, and switch all others off")


def scope(parser: Parser, text: str) -> None:
    """Which passes are gated."""
    parser.add_argument("--scope", choices=("all", "decode"), default="all", help=f"{text} (all)")


def metric(parser: Parser) -> None:
    """What is measured, and how heads are off."""
    add = parser.add_argument
    ablations = ("zero", "mean", "clean-mean", "resampled", "corrupted")
    parser.option("--metric", "METRIC", "what is measured, see headcount list", "accuracy")
    ablation = "what replaces the output of a head that is off: zero, its mean over the corrupted "
    ablation += "or the clean prompts of the ranking split, its output on another prompt, or that "
    ablation += "on the corrupted prompt (zero)"
    add("--ablation", choices=ablations, default="zero", help=ablation)
    scope(parser, "with metrics of texts: heads are off at all tokens, or only at new ones")
    where = "with metrics of logits: the positions where heads are off: all; last, the last one of "
    where += "the prompt; answer, those that predict the target; or a slice of the prompt's "
    where += "tokens, such as --positions=-8: for the last eight"
    parser.option("--positions", "WHERE", where, "all")
    parser.flag("--explain", "print how forward passes are batched")


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
    add_server(parser)
