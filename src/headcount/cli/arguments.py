"""What the command line takes: one function for each command, and what several of them share.

Nothing here loads torch: each command imports its own work when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headcount import __version__
from headcount.cli.parser import Parser, add_settings
from headcount.errors import HeadcountError
from headcount.sparse.settings import Settings
from headcount.studies import PUBLISHED, STUDIES, StudyEntry

EPILOG = """\
examples:
  headcount demo                          a head-ablation curve of a real model, in minutes
  headcount curve --model MODEL --task ioi --counts 0 1 2 4 8 16
  headcount run masked-heads              a published figure, on the bundled model

Every command has examples of its own: add --help to it.

MODEL is a Hugging Face hub id, a local folder, a .gguf file, or smollm2-135m-q4 (bundled).
A sparse model's folder is a model too.
"""
STUDY_EXAMPLES = {
    "masked-heads": (
        "--preset full --model Qwen/Qwen3-0.6B",
        "--ranking attribution probe --counts 16 32 64 128",
    ),
    "heads-kept": ("--model DENSE --model SPARSE --tasks ioi",),
    "head-roles": ("--model A --model B --refit",),
    "token-insertion": ("--sweep length",),
}


AddOptions: TypeAlias = Callable[[Parser], None]
COMMANDS: dict[str, tuple[AddOptions, str, str, tuple[str, ...]]] = {}


def command(home: str, summary: str, *examples: str) -> Callable[[AddOptions], None]:
    """Enter a command, whose work is in the FILE:FUNCTION `home`; the function adds its options."""

    def enter(add_options: AddOptions) -> None:
        COMMANDS[add_options.__name__[1:]] = add_options, home, summary, examples

    return enter


def build_parser(words: Sequence[str] = ()) -> Parser:
    """The whole command line; of the studies, only those among its `words` have their options.

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
    parser.epilog = "\n".join(["example:", *lines])
    parser.set_defaults(command=home, parser=parser)
    if name != "run":  # every command answers scripts; `run` leaves that to its studies
        parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _study(parser: Parser, entry: StudyEntry) -> None:
    """The options that all studies have, and the fields of this one's config."""
    add, presets = parser.add_argument, "quick (minutes on two cores, unless given), full or paper"
    if entry.registered:
        presets = f"{', '.join(entry.registered.presets)} (quick unless given)"
    add("--model", action="append", help="a model; several where it compares them")
    add(
        "--preset",
        default="quick",
        help=f"{presets}; it may choose other values than those in brackets below",
    )
    add_settings(parser, entry.config)
    _set(parser, "settings of the tasks, such as shots=6; or of the study, by their names")
    add("--out", help=f"folder for the results (out/{entry.key})")
    _loading(parser)
    _measuring(parser)


@command(
    "demo:demo",
    "a head-ablation curve of the bundled model, or all studies",
    "--all --out out/demo-all",
)
def _demo(parser: Parser) -> None:
    parser.add_argument("--all", action="store_true", help="all four studies in their quick form")
    parser.add_argument("--out", help="folder for the results (out/demo, or out/demo-all)")
    _keeping(parser)


@command(
    "models:doctor", "prove that a model's heads can be gated, and print its geometry", "./my-model"
)
def _doctor(parser: Parser) -> None:
    parser.add_argument("model", help="hub id, folder, .gguf file or bundled name")
    _loading(parser)


@command(
    "measure:rank",
    "score every head for a task",
    "--task ioi --ranking integrated-gradients --top 20 --out scores.json",
)
def _rank(parser: Parser) -> None:
    _model_and_task(parser)
    parser.add_argument("--ranking", default="attribution", help="ranking (%(default)s)")
    _set(parser, "settings of the ranking", "--ranking-set")
    parser.add_argument("--top", type=int, default=10, help="how many heads to print (%(default)s)")
    parser.add_argument("--out", help="write all scores to this JSON file")
    _measuring(parser)


@command(
    "measure:ablate",
    "switch given heads off (or keep only them) and measure",
    "--task ioi --heads 3.4 11.2 --metric logprob",
)
def _ablate(parser: Parser) -> None:
    _model_and_task(parser)
    _heads(parser)
    _metric(parser)
    _measuring(parser)


@command(
    "measure:curve",
    "mask (or keep) more and more heads and draw the curve",
    "--task ioi --ranking attribution --counts 0 1 2 4 8 16 --out out/ioi",
    "--task ioi --keep --ablation mean --metric logit_difference",
)
def _curve(parser: Parser) -> None:
    _model_and_task(parser)
    add = parser.add_argument
    add("--ranking", default="attribution", help="ranking or scores file (%(default)s)")
    add("--counts", nargs="+", type=int, metavar="K", help="numbers of heads (0 1 2 4 … half)")
    series = ["top", "random", "matched", "bottom"]
    add("--series", nargs="+", choices=series, default=series[:3], help="curves (all but bottom)")
    add("--seeds", type=int, default=5, help="random draws (%(default)s)")
    add("--keep", action="store_true", help="keep only these heads, mask all others")
    add("--epsilon", type=float, default=0.0, help="what masked heads are multiplied by (0)")
    add("--out", default="out/curve", help="folder for the results (%(default)s)")
    _metric(parser)
    _measuring(parser)


@command(
    "measure:compare",
    "rank in several ways and see whether they agree",
    "--task retrieval --ranking attribution ablation probe",
)
def _compare(parser: Parser) -> None:
    _model_and_task(parser)
    add, rankings = parser.add_argument, ["attribution", "integrated-gradients", "ablation"]
    add("--ranking", nargs="+", default=rankings, help="rankings or score files (%(default)s)")
    add("--counts", nargs="+", type=int, metavar="K", help="numbers of heads to compare")
    add("--seeds", type=int, help="of rankings that have seeds")
    add("--out", default="out/compare", help="folder for the results (%(default)s)")
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
    "one web page about finished results",
    "out/masked-heads out/heads-kept --out index.html",
    "out --out out/index.html",
)
def _report(parser: Parser) -> None:
    parser.add_argument("folders", nargs="+", help="of results, or with results below them")
    parser.add_argument("--out", default="index.html", help="file of the page (%(default)s)")


@command(
    "measure:tasks",
    "how well a model does the cognitive functions, with all its heads",
    "--model smollm2-135m-q4",
    "--functions retrieval --set n=50",
)
def _tasks(parser: Parser) -> None:
    _model(parser)
    parser.add_argument("--functions", nargs="+", help="some of them (all)")
    _set(parser, "settings, as n=100 shots=4")
    _loading(parser)
    _measuring(parser)


@command(
    "models:generate",
    "let a model write under a head set",
    '--prompt "The capital of France is" --heads 3.4 11.2',
)
def _generate(parser: Parser) -> None:
    _model(parser)
    add = parser.add_argument
    add("--prompt", nargs="+", required=True, help="one or more texts")
    add("--heads", nargs="*", default=[], metavar="LAYER.HEAD", help="heads off")
    _scope(parser, "what is gated: all, or decode (new tokens only)")
    add("--max-new-tokens", type=int, default=32, help="%(default)s")
    add("--temperature", type=float, default=0.0, help="0 is greedy")
    add("--seed", type=int, default=0, help="of sampling (%(default)s)")
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
    parser.add_argument("--out", required=True, help="a folder that does not exist yet")
    _loading(parser)


@command(
    "models:sparsify",
    "make a sparse-attention version of a model, by post-training",
    "--model smollm2-135m-q4 --text wikipedia.txt.xz --out sparse-smollm2",
    "--model ./my-model --text text.jsonl --out sparse --minutes 9",
)
def _sparsify(parser: Parser) -> None:
    _model(parser)
    add = parser.add_argument
    text = ".txt or .txt.xz (blank lines between articles) or .jsonl"
    add("--text", required=True, help=text)
    add("--out", required=True, help="folder for the sparse model and its work")
    add("--control", help="folder of the dense control, to share it (OUT/control)")
    add("--base", help="name of the base model in the result (that of --model)")
    add_settings(parser, Settings)
    _set(parser, "further settings, see the docs")
    add("--rows", type=int, help="blocks in one pass, if a step does not fit")
    add("--minutes", type=float, help="stop after so many, to go on later")
    compiled = "torch.compile the blocks (on a GPU, unless --no-compile)"
    add("--compile", action=argparse.BooleanOptionalAction, help=compiled)
    add("--text-source", help="where the text comes from, for the attribution")
    add("--text-licence", help="its licence")
    _loading(parser)
    _quiet(parser)


@command("listing:known_names", "what studies, tasks, rankings, metrics and models there are", "")
def _list(parser: Parser) -> None:
    pass


@command("listing:cache", "list or clear the cached models", "", "clear smollm2-135m-q4")
def _cache(parser: Parser) -> None:
    parser.add_argument("action", nargs="?", choices=["list", "clear"], default="list")
    parser.add_argument("name", nargs="?", help="clear only this model")


@command(
    "listing:store",
    "list, export or clean the stored measurements",
    "",
    "export values.parquet",
    "clean --task ioi",
)
def _store(parser: Parser) -> None:
    add = parser.add_argument
    add("action", nargs="?", choices=["list", "export", "clean"], default="list")
    add("path", nargs="?", help="export to this .csv or .parquet file")
    add("--store", help="the store's file")
    add("--model", help="clean: only this model's")
    add("--task", help="clean: only this task's")
    add("--everything", action="store_true", help="clean: the whole store")


def _loading(parser: Parser) -> None:
    add = parser.add_argument_group("how the model is loaded").add_argument
    add("--dtype", default="float32", help="float32, bfloat16, float16, auto (%(default)s)")
    add("--device", help="cpu, cuda, cuda:1, mps (a GPU where there is one)")
    add("--device-map", help="spread over several devices, such as auto")
    add("--attention", help="attention kernel: sdpa, eager, flash_attention_2, …")
    add("--revision", help="branch, tag or commit of a hub model")
    add("--trust-remote-code", action="store_true", help="run code that comes with the model")


def _model(parser: Parser) -> None:
    parser.add_argument("--model", default="smollm2-135m-q4", help="%(default)s unless given")


def _model_and_task(parser: Parser) -> None:
    _model(parser)
    parser.add_argument("--task", default="ioi", help="name, .jsonl or .json file (%(default)s)")
    _set(parser, "settings of the task, as n=100")
    _loading(parser)


def _set(parser: Parser, help: str, name: str = "--set") -> None:
    parser.add_argument(name, nargs="*", default=[], metavar="NAME=VALUE", help=help)


def _heads(parser: Parser) -> None:
    parser.add_argument("--heads", nargs="+", required=True, metavar="LAYER.HEAD")
    parser.add_argument("--keep", action="store_true", help="keep only these heads")


def _scope(parser: Parser, help: str) -> None:
    parser.add_argument("--scope", choices=("all", "decode"), default="all", help=help)


def _metric(parser: Parser) -> None:
    add, ablations = parser.add_argument, ("zero", "mean", "corrupted")
    add("--metric", default="accuracy", help="see headcount list (%(default)s)")
    add("--ablation", choices=ablations, default="zero", help="what heads say that are off (zero)")
    _scope(parser, "metrics of texts: all, or decode (new tokens only)")
    add("--explain", action="store_true", help="print how it will be measured")


def _quiet(parser: Parser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress bars")


def _keeping(parser: Parser) -> None:
    parser.add_argument("--store", help="file that keeps measurements (in the user's cache folder)")
    parser.add_argument("--no-store", action="store_true", help="keep nothing, reuse nothing")
    _quiet(parser)


def _measuring(parser: Parser) -> None:
    _keeping(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the work ahead, do nothing")
    add = parser.add_argument_group("many machines (pip install 'headcount[ray]')").add_argument
    add(
        "--ray",
        nargs="?",
        const="local",
        metavar="ADDRESS",
        help="measure on the workers of a Ray cluster: of one that is started here, or of that at "
        "HOST:PORT (auto: the one that this machine belongs to)",
    )
    add("--workers", type=int, metavar="N", help="how many (one for each GPU)")
