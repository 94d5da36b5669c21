"""The options of the command line: one function for each command, and shared options.

Nothing here loads torch: each command imports its own work when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headcount import __version__
from headcount.cli.parser import Parser, add_settings
from headcount.cli.study_help import STUDY_EXAMPLES, STUDY_MODELS
from headcount.errors import HeadcountError
from headcount.sparse.settings import Settings
from headcount.studies import PUBLISHED, STUDIES, StudyEntry

EPILOG = """\
examples:
  headcount demo                          draw a head-ablation curve, in minutes
  headcount curve --model MODEL --task ioi --counts 0 1 2 4 8 16
  headcount run masked-heads              make a published figure with the bundled model

Add --help to a command for its options and examples.

MODEL is a Hugging Face hub id, a local folder (also of a sparse model), a .gguf file, or the
bundled model smollm2-135m-q4, which every command uses unless --model names another one.
"""
MODEL = "a hub id, folder, .gguf file or bundled name"
STORE = "file of the stored measurements (HEADCOUNT_STORE, or store.sqlite in the cache folder)"

AddOptions: TypeAlias = Callable[[Parser], None]
COMMANDS: dict[str, tuple[AddOptions, str, str, tuple[str, ...]]] = {}


def command(home: str, summary: str, *examples: str) -> Callable[[AddOptions], None]:
    """Register a command: the decorated function adds its options, FILE:FUNCTION `home` runs it."""

    def enter(add_options: AddOptions) -> None:
        COMMANDS[add_options.__name__[1:]] = add_options, home, summary, examples

    return enter


def build_parser(words: Sequence[str] = ()) -> Parser:
    """The parser of all commands; only the studies that `words` name get their options.

    Plug-ins are imported only for `run` without the name of a published study.
    """
    parser = Parser(
        prog="headcount",
        description="Tells which attention heads a language model needs.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"headcount {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (add_options, home, summary, examples) in COMMANDS.items():
        add_options(_enter(commands, name, home, summary, examples))
    run = commands.choices["run"]
    studies = run.add_subparsers(title="studies", metavar="STUDY", dest="study", required=True)
    first, second = [*words, "", ""][:2]
    for name in STUDIES if first == "run" and second not in ("", *PUBLISHED) else PUBLISHED:
        entry = STUDIES[name]
        of_study = _enter(studies, name, "run:run", entry.name, STUDY_EXAMPLES.get(name, ("",)))
        if name in words:  # no other study's options are needed, nor its imports
            try:
                _study(of_study, entry)
            except argparse.ArgumentError as error:  # "conflicting option string: --model"
                raise HeadcountError(
                    f'The study "{name}" cannot have the setting {error.message.split()[-1]}, a '
                    "name that the command line uses itself: rename that field of its config."
                ) from None
    return parser


def _enter(commands: Any, name: str, home: str, summary: str, examples: tuple[str, ...]) -> Parser:
    description = f"{summary[0].upper()}{summary[1:]}."
    parser: Parser = commands.add_parser(
        name, help=summary.replace("%", "%%"), description=description
    )
    lines = [f"  {parser.prog} {words}".rstrip() for words in examples]
    parser.epilog = "\n".join([f"example{'s' * (len(lines) > 1)}:", *lines])
    parser.set_defaults(command=home, parser=parser)
    if name != "run":  # the studies of `run` have this option
        parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    return parser


def _study(parser: Parser, entry: StudyEntry) -> None:
    """The options that all studies have, and the fields of this one's config."""
    name, presets = entry.key, "quick (minutes on two cores), full or, in most studies, paper"
    models = STUDY_MODELS.get(name, "; repeat it to compare several models (smollm2-135m-q4)")
    if entry.registered:
        presets = ", ".join(entry.registered.presets)
        models = f" ({' and '.join(entry.registered.models)})"
    parser.option("--model", "MODEL", f"{MODEL}{models}", action="append")
    presets += "; presets may set other defaults than those in brackets below"
    parser.option("--preset", "PRESET", presets, "quick")
    add_settings(parser, entry.config)
    _set(parser, "settings of the study's tasks, such as shots=6, or of the study itself")
    _out(parser, f"out/{name}")
    _loading(parser)
    _measuring(parser)


@command(
    "demo:demo",
    "draw a head-ablation curve of the bundled model, or run all four studies",
    "",
    "--all --out out/demo-all",
)
def _demo(parser: Parser) -> None:
    parser.flag("--all", "run all four studies with the preset quick")
    parser.option("--out", "FOLDER", "folder for the results (out/demo, or out/demo-all)")
    _keeping(parser)


@command(
    "models:doctor", "prove that a model's heads can be gated, and print its geometry", "./my-model"
)
def _doctor(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    _loading(parser)


@command(
    "measure:rank",
    "score every head for a task",
    "--task ioi --ranking integrated-gradients --top 20 --out scores.json",
    "--task antonym-in-context --ranking contrast --ranking-set forget=antonym-instruction",
)
def _rank(parser: Parser) -> None:
    _model_and_task(parser)
    _ranking(parser, "name of a ranking, see headcount list")
    parser.option("--top", "N", "how many heads to print", 10)
    parser.option("--out", "FILE", "write the scores of all heads to this JSON file")
    parser.flag("--stability", "tell how far prompts, seeds, BOS and others move the scores")
    _measuring(parser)


@command(
    "measure:ablate",
    "measure a task with given heads switched off, or with only them",
    "--task ioi --heads 3.4 11.2 --metric logprob",
    "--task ioi --heads 3.4 --positions answer",
)
def _ablate(parser: Parser) -> None:
    _model_and_task(parser)
    _heads(parser)
    _metric(parser)
    _measuring(parser)


@command(
    "measure:curve",
    "rank the heads, mask (or keep) more and more of them, and draw the curve",
    "--task ioi --ranking attribution --counts 0 1 2 4 8 16 --out out/ioi",
    "--task ioi --keep --ablation mean --metric logit_difference",
)
def _curve(parser: Parser) -> None:
    _model_and_task(parser)
    _ranking(parser, "name of a ranking, or a file of scores that rank --out wrote")
    option, series = parser.option, ["top", "random", "matched", "bottom"]
    option("--counts", "N", "numbers of heads (0 1 2 4 … up to half of all)", nargs="+")
    which = "curves: top, random, matched (random heads of the same layers) or bottom heads"
    option("--series", "SERIES", which, series[:3], nargs="+", choices=series)
    option("--seeds", "N", "random draws for each count", 5)
    parser.flag("--keep", "keep the chosen heads, and mask all others")
    option("--epsilon", "X", "factor by which masked heads are multiplied", 0.0)
    _out(parser, "out/curve")
    _metric(parser)
    _measuring(parser)


@command(
    "compare:compare",
    "let rankings compete for the heads that a task needs, and tell how far they agree",
    "--task retrieval --ranking attribution ablation probe",
    "--task ioi greater-than --ranking attribution greedy --metric logit_difference",
)
def _compare(parser: Parser) -> None:
    _model(parser)
    tasks = "names of tasks, or .jsonl or .json files of examples"
    parser.option("--task", "TASK", tasks, ["ioi"], nargs="+")
    _set(parser, "settings of the tasks, such as n=100")
    _loading(parser)
    option, usual = parser.option, ["attribution", "integrated-gradients", "ablation"]
    which = "two or more names of rankings, or files of scores that rank --out wrote"
    option("--ranking", "RANKING", which, usual, nargs="+")
    counts = "how many of the best heads are kept, masked and compared (from 1 to all)"
    option("--counts", "N", counts, nargs="+")
    option("--metric", "METRIC", "metric by which rankings are made and judged", "logprob")
    ablation = "what replaces the output of a masked head: zero, mean, clean-mean, resampled "
    option("--ablation", "ABLATION", f"{ablation}or corrupted", "zero")
    option("--seeds", "N", "random starts, for rankings that have a setting of this name")
    _out(parser, "out/compare")
    _measuring(parser)


@command(
    "run:run",
    "run a published study, from the model to the figure",
    "masked-heads",
    "masked-heads --help",
)
def _run(parser: Parser) -> None:
    pass  # its options are those of its studies


@command(
    "listing:report",
    "make one web page about finished results",
    "out/masked-heads out/heads-kept --out index.html",
    "out --out out/index.html",
    "out/masked-heads --again",
)
def _report(parser: Parser) -> None:
    _folders(parser, "results")
    parser.option("--out", "FILE", "file for the page", "index.html")
    again = "first make tables, verdicts and figures again from the values of each result"
    parser.flag("--again", again)


@command(
    "listing:across",
    "draw one study's curves of several models in one figure, by share of heads",
    "out/small out/large --out out/across",
)
def _across(parser: Parser) -> None:
    _folders(parser, "results of one study")
    _out(parser, "out/across")


@command(
    "verify:verify",
    "recompute every interval and verdict of a result from its own values",
    "out/masked-heads",
    "docs/results",
)
def _verify(parser: Parser) -> None:
    _folders(parser, "results")


@command(
    "measure:tasks",
    "measure how well a model does the cognitive functions, with all its heads",
    "--model smollm2-135m-q4",
    "--functions retrieval --set n=50",
)
def _tasks(parser: Parser) -> None:
    _model(parser)
    functions = "cognitive functions, such as retrieval math (all eight)"
    parser.option("--functions", "NAME", functions, nargs="+")
    _set(parser, "settings of the functions' tasks, such as n=100 shots=4")
    _loading(parser)
    _measuring(parser)


@command(
    "models:generate",
    "let a model write, with given heads switched off",
    '--prompt "The capital of France is" --heads 3.4 11.2',
)
def _generate(parser: Parser) -> None:
    _model(parser)
    option = parser.option
    option("--prompt", "TEXT", "one text or several, each in quotes", nargs="+", required=True)
    option("--heads", "LAYER.HEAD", "heads to switch off, such as 3.4 11.2", [], nargs="*")
    _scope(parser, "switch the heads off at all tokens, or only at new ones")
    option("--max-new-tokens", "N", "largest number of new tokens for each prompt", 32)
    option("--temperature", "X", "temperature of sampling; 0 takes the likeliest token", 0.0)
    option("--seed", "N", "seed of sampling", 0)
    _loading(parser)
    _quiet(parser)


@command(
    "models:export",
    "write a model without some heads as an ordinary checkpoint",
    "--heads 3.4 11.2 --out without",
)
def _export(parser: Parser) -> None:
    _model(parser)
    _heads(parser)
    parser.option("--out", "FOLDER", "folder to write, which must not exist yet", required=True)
    _loading(parser)


@command(
    "models:sparsify",
    "make a sparse-attention version of a model, by post-training",
    "--model smollm2-135m-q4 --text wikipedia.txt.xz --out sparse-smollm2",
    "--model ./my-model --text text.jsonl --out sparse --minutes 9",
)
def _sparsify(parser: Parser) -> None:
    _model(parser)
    option = parser.option
    text = "text to train on: .txt or .txt.xz with blank lines between articles, or .jsonl"
    option("--text", "FILE", text, required=True)
    option("--out", "FOLDER", "folder for the sparse model and its training", required=True)
    option("--control", "FOLDER", "dense control that other runs share (OUT/control)")
    option("--base", "MODEL", "name of the base model in the result (that of --model)")
    add_settings(parser, Settings)
    _set(parser, "further settings, which docs/sparse.md lists")
    option("--rows", "N", "blocks in one pass, if a step does not fit into memory")
    option("--minutes", "X", "stop after this time; the same command goes on later")
    compiled = "compile the blocks with torch.compile (only on a GPU)"
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help=compiled)
    option("--text-source", "TEXT", "where the text comes from, for the model's attribution")
    option("--text-licence", "TEXT", "licence of the text, for the model's attribution")
    _loading(parser)
    _quiet(parser)


@command(
    "explore:explore",
    "switch heads off on a local web page, and watch the model think",
    "",
    "--task ioi --scores scores.json",
)
def _explore(parser: Parser) -> None:
    _model_and_task(parser)
    option = parser.option
    files = "files of scores that rank --out wrote, or of learned gates, to colour the map by"
    option("--scores", "FILE", files, [], nargs="+")
    option("--port", "N", "port of the page; if it is taken, the next free one", 8765)
    parser.flag("--no-browser", "print the link, and open no browser")
    option("--store", "FILE", STORE)
    parser.flag("--no-store", "keep no measurements, and reuse none")


@command("listing:known_names", "list the studies, models, tasks, rankings and metrics", "")
def _list(parser: Parser) -> None:
    pass


@command("listing:cache", "list or clear the cached models", "", "clear smollm2-135m-q4")
def _cache(parser: Parser) -> None:
    add, what = parser.add_argument, "list the cached models, or clear the cache (list)"
    add("action", nargs="?", choices=["list", "clear"], default="list", help=what)
    add("name", nargs="?", metavar="NAME", help="clear: remove only this model")


@command(
    "listing:store",
    "list, export or clean the stored measurements",
    "",
    "export values.parquet",
    "clean --task ioi",
)
def _store(parser: Parser) -> None:
    add, option = parser.add_argument, parser.option
    what = "list what is stored, export the measurements, or clean some of them (list)"
    add("action", nargs="?", choices=["list", "export", "clean"], default="list", help=what)
    add("path", nargs="?", metavar="FILE", help="export: the .csv or .parquet file to write")
    option("--store", "FILE", STORE)
    option("--model", "NAME", "clean: remove the measurements of this model")
    option("--task", "NAME", "clean: remove the measurements of this task")
    parser.flag("--everything", "clean: remove all measurements")


def _folders(parser: Parser, of: str) -> None:
    text = f"folders of {of}, or folders that contain such folders"
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help=text)


def _loading(parser: Parser) -> None:
    add = parser.add_argument_group("how the model is loaded").add_argument
    dtype = "float32, bfloat16, float16, or auto for that of the checkpoint (float32)"
    add("--dtype", default="float32", help=dtype)
    add("--device", help="cpu, cuda, cuda:1 or mps (a GPU where there is one)")
    add("--device-map", metavar="MAP", help="auto spreads the model over several devices")
    kernels = "attention kernel: sdpa, eager, flash_attention_2, …"
    add("--attention", metavar="KERNEL", help=kernels)
    add("--revision", metavar="NAME", help="branch, tag or commit of a hub model")
    add("--trust-remote-code", action="store_true", help="run code that comes with the model")


def _model(parser: Parser) -> None:
    parser.option("--model", "MODEL", MODEL, "smollm2-135m-q4")


def _model_and_task(parser: Parser) -> None:
    _model(parser)
    parser.option("--task", "TASK", "name of a task, or a .jsonl or .json file of examples", "ioi")
    _set(parser, "settings of the task, such as n=100")
    _loading(parser)


def _ranking(parser: Parser, text: str) -> None:
    parser.option("--ranking", "RANKING", text, "attribution")
    settings = "settings of the ranking, such as metric=logit_difference; rankings use the metric "
    settings += "logprob unless told otherwise, because accuracy has no derivative"
    _set(parser, settings, "--ranking-set")


def _set(parser: Parser, text: str, name: str = "--set") -> None:
    parser.option(name, "NAME=VALUE", text, [], nargs="*")


def _out(parser: Parser, folder: str) -> None:
    parser.option("--out", "FOLDER", "folder for the results", folder)


def _heads(parser: Parser) -> None:
    heads = "heads to switch off; 3.4 is head 4 of layer 3, both counted from 0"
    parser.option("--heads", "LAYER.HEAD", heads, nargs="+", required=True)
    parser.flag("--keep", "keep these heads, and switch all others off")


def _scope(parser: Parser, text: str) -> None:
    parser.add_argument("--scope", choices=("all", "decode"), default="all", help=f"{text} (all)")


def _metric(parser: Parser) -> None:
    add = parser.add_argument
    ablations = ("zero", "mean", "clean-mean", "resampled", "corrupted")
    parser.option("--metric", "METRIC", "what is measured, see headcount list", "accuracy")
    ablation = "what replaces the output of a head that is off: zero, its mean over the corrupted "
    ablation += "or the clean prompts of the ranking split, its output on another prompt, or that "
    ablation += "on the corrupted prompt (zero)"
    add("--ablation", choices=ablations, default="zero", help=ablation)
    _scope(parser, "with metrics of texts: heads are off at all tokens, or only at new ones")
    where = "with metrics of logits: the positions where heads are off: all; last, the last one of "
    where += "the prompt; answer, those that predict the target; or a slice of the prompt's "
    where += "tokens, such as --positions=-8: for the last eight"
    parser.option("--positions", "WHERE", where, "all")
    parser.flag("--explain", "print how forward passes are batched")


def _quiet(parser: Parser) -> None:
    parser.flag("--quiet", "print neither progress nor forecasts")


def _keeping(parser: Parser) -> None:
    parser.option("--store", "FILE", STORE)
    parser.flag("--no-store", "keep no measurements, and reuse none")
    _quiet(parser)


def _measuring(parser: Parser) -> None:
    _keeping(parser)
    parser.flag("--dry-run", "print what would be measured, and about how long it takes")
    add = parser.add_argument_group("many machines (pip install 'headcount[ray]')").add_argument
    ray = "measure on a Ray cluster: one that is started here, the one at ADDRESS (HOST:PORT), or "
    ray += "with auto the one to which this machine belongs"
    add("--ray", nargs="?", const="local", metavar="ADDRESS", help=ray)
    add("--workers", type=int, metavar="N", help="how many workers (one for each GPU)")
