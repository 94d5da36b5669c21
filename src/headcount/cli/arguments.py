"""What the command line takes: one function for each command, and what several of them share.

Nothing here loads torch: each command imports its own work when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from headcount import __version__
from headcount.cli.options import add_settings
from headcount.cli.parser import Parser
from headcount.sparse.settings import Settings
from headcount.studies import STUDIES, study_config

Commands: TypeAlias = Any  # argparse does not name what its subparsers are

EPILOG = """\
examples:
  headcount demo                          a head-ablation curve of a real model, in minutes
  headcount curve --model MODEL --task ioi --counts 0 1 2 4 8 16
  headcount run masked-heads              a published figure, on the bundled model

Every command has examples of its own: add --help to it.

MODEL is a Hugging Face hub id, a local folder, a .gguf file, or smollm2-135m (bundled).
A sparse model's folder is a model too.
"""


def build_parser(words: Sequence[str] = ()) -> Parser:
    """The whole command line; of the studies, only those among its `words` have their options."""
    parser = Parser(
        prog="headcount",
        description="Tells which attention heads a language model needs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headcount {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for add in (
        _demo,
        _doctor,
        _rank,
        _ablate,
        _curve,
        _compare,
        partial(_run, words=words),
        _report,
        _tasks,
        _generate,
        _export,
        _sparsify,
        _list,
        _cache,
        _store,
    ):
        add(commands)
    return parser


def _demo(commands: Commands) -> None:
    parser = _command(
        commands,
        "demo",
        "a head-ablation curve of the bundled model, or all studies",
        "headcount demo\n  headcount demo --all --out out/demo-all",
    )
    parser.add_argument("--all", action="store_true", help="all four studies in their quick form")
    parser.add_argument("--out", help="folder for the results (out/demo, or out/demo-all)")
    _measuring(parser)


def _doctor(commands: Commands) -> None:
    parser = _command(
        commands,
        "doctor",
        "prove that a model's heads can be gated, and print its geometry",
        "headcount doctor smollm2-135m\n  headcount doctor ./my-model --json",
    )
    parser.add_argument("model", help="hub id, folder, .gguf file or bundled name")
    _loading(parser)
    _json(parser)


def _rank(commands: Commands) -> None:
    parser = _command(
        commands,
        "rank",
        "score every head for a task",
        "headcount rank --task ioi --method integrated-gradients --top 20 --out scores.json",
    )
    _model_and_task(parser)
    parser.add_argument("--method", default="attribution", help="ranking (%(default)s)")
    parser.add_argument(
        "--method-set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the ranking"
    )
    parser.add_argument("--top", type=int, default=10, help="how many heads to print (%(default)s)")
    parser.add_argument("--out", help="write all scores to this JSON file")
    _measuring(parser)
    _dry_run(parser)
    _spreading(parser)


def _ablate(commands: Commands) -> None:
    parser = _command(
        commands,
        "ablate",
        "switch given heads off (or keep only them) and measure",
        "headcount ablate --task ioi --heads 3.4 11.2 --metric logprob",
    )
    _model_and_task(parser)
    parser.add_argument("--heads", nargs="+", required=True, metavar="LAYER.HEAD")
    parser.add_argument("--keep", action="store_true", help="keep only these heads")
    _metric(parser)
    _measuring(parser)
    _spreading(parser)


def _curve(commands: Commands) -> None:
    parser = _command(
        commands,
        "curve",
        "mask (or keep) more and more heads and draw the curve",
        "headcount curve --task ioi --ranking attribution --counts 0 1 2 4 8 16 --out out/ioi\n"
        "  headcount curve --task ioi --keep --stand-in mean --metric logit_difference",
    )
    _model_and_task(parser)
    parser.add_argument(
        "--ranking", default="attribution", help="method or scores file (%(default)s)"
    )
    parser.add_argument("--counts", nargs="+", type=int, help="numbers of heads (0 1 2 4 … half)")
    parser.add_argument(
        "--series",
        nargs="+",
        default=["top", "random", "matched"],
        help="top, bottom, random, matched (%(default)s)",
    )
    parser.add_argument("--seeds", type=int, default=5, help="random draws (%(default)s)")
    parser.add_argument(
        "--keep", action="store_true", help="keep only these heads, mask all others"
    )
    parser.add_argument(
        "--epsilon", type=float, default=0.0, help="what masked heads are multiplied by (0)"
    )
    parser.add_argument("--out", default="out/curve", help="folder for the results (%(default)s)")
    _metric(parser)
    _measuring(parser)
    _dry_run(parser)
    _spreading(parser)


def _compare(commands: Commands) -> None:
    parser = _command(
        commands,
        "compare",
        "rank by several methods and see whether they agree",
        "headcount compare --task retrieval --methods attribution ablation probe",
    )
    _model_and_task(parser)
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["attribution", "integrated-gradients", "ablation"],
        help="rankings or score files (%(default)s)",
    )
    parser.add_argument("--counts", nargs="+", type=int, help="numbers of heads to compare")
    parser.add_argument("--seeds", type=int, help="of methods that have seeds")
    parser.add_argument("--out", default="out/compare", help="folder for the results")
    _measuring(parser)
    _spreading(parser)


def _run(commands: Commands, words: Sequence[str]) -> None:
    parser = _command(
        commands,
        "run",
        "run a published study, from the model to the figure",
        "headcount run masked-heads\n  headcount run masked-heads --help       its own options",
    )
    parser.set_defaults(study=None)
    studies = parser.add_subparsers(title="studies", metavar="STUDY", parser_class=Parser)
    for name, summary in STUDIES.items():
        _study(studies, name, summary, asked=name in words)


EXAMPLES = {
    "masked-heads": "headcount run masked-heads --preset full --model Qwen/Qwen3-0.6B\n"
    "  headcount run masked-heads --ranking attribution probe --counts 16 32 64 128",
    "heads-kept": "headcount run heads-kept --model DENSE --model SPARSE --tasks ioi greater-than",
    "head-roles": "headcount run head-roles --model A --model B --refit",
    "token-insertion": "headcount run token-insertion --sweep length",
}


def _study(studies: Commands, name: str, summary: str, *, asked: bool) -> None:
    """The options of one study: those that all have, and the fields of its config."""
    parser = _command(studies, name, summary, EXAMPLES.get(name, f"headcount run {name}"))
    parser.set_defaults(command="headcount.cli.run:run", study=name)
    if not asked:  # no other study's options are needed, nor its imports
        return
    parser.add_argument("--model", action="append", help="a model; several where it compares them")
    parser.add_argument(
        "--preset", default="quick", help="quick (minutes on two cores), full or paper"
    )
    add_settings(parser, study_config(name))
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="settings of the tasks, such as shots=6; or of the study, by their names",
    )
    parser.add_argument("--out", help=f"folder for the results (out/{name})")
    _loading(parser)
    _measuring(parser)
    _dry_run(parser)
    _spreading(parser)


def _report(commands: Commands) -> None:
    parser = _command(
        commands,
        "report",
        "one web page about finished results",
        "headcount report out/masked-heads out/heads-kept --out index.html\n"
        "  headcount report out --out out/index.html",
    )
    parser.add_argument("folders", nargs="+", help="of results, or with results below them")
    parser.add_argument("--out", default="index.html", help="file of the page (%(default)s)")
    _json(parser)


def _tasks(commands: Commands) -> None:
    parser = _command(
        commands,
        "tasks",
        "how well a model does the cognitive functions, with all its heads",
        "headcount tasks --model smollm2-135m\n  headcount tasks --functions retrieval --set n=50",
    )
    _model(parser)
    parser.add_argument("--functions", nargs="+", help="some of them (all)")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings, as n=100 shots=4"
    )
    _loading(parser)
    _measuring(parser)
    _spreading(parser)


def _generate(commands: Commands) -> None:
    parser = _command(
        commands,
        "generate",
        "let a model write under a head set",
        'headcount generate --prompt "The capital of France is" --heads 3.4 11.2',
    )
    _model(parser)
    parser.add_argument("--prompt", nargs="+", required=True, help="one or more texts")
    parser.add_argument("--heads", nargs="*", default=[], metavar="LAYER.HEAD", help="heads off")
    parser.add_argument("--scope", default="all", help="all, or decode: new tokens only")
    parser.add_argument("--max-new-tokens", type=int, default=32, help="%(default)s")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    parser.add_argument("--seed", type=int, default=0, help="of sampling (%(default)s)")
    _loading(parser)
    _quiet_or_json(parser)


def _export(commands: Commands) -> None:
    parser = _command(
        commands,
        "export",
        "write a model without some heads as an ordinary checkpoint",
        "headcount export --model smollm2-135m --heads 3.4 11.2 --out without",
    )
    _model(parser)
    parser.add_argument("--heads", nargs="+", required=True, metavar="LAYER.HEAD")
    parser.add_argument("--keep", action="store_true", help="keep only these heads")
    parser.add_argument("--out", required=True, help="a folder that does not exist yet")
    _loading(parser)
    _json(parser)


def _sparsify(commands: Commands) -> None:
    parser = _command(
        commands,
        "sparsify",
        "make a sparse-attention version of a model, by post-training",
        "headcount sparsify --model smollm2-135m --text wikipedia.txt.xz --out sparse-smollm2\n"
        "  headcount sparsify --model ./my-model --text text.jsonl --out sparse --minutes 9",
    )
    _model(parser)
    parser.add_argument(
        "--text", required=True, help=".txt or .txt.xz (blank lines between articles) or .jsonl"
    )
    parser.add_argument("--out", required=True, help="folder for the sparse model and its work")
    parser.add_argument("--control", help="folder of the dense control, to share it (OUT/control)")
    parser.add_argument("--base", help="name of the base model in the result (that of --model)")
    parser.add_argument("--steps", type=int, help=f"training steps ({Settings.steps})")
    parser.add_argument("--block", type=int, help=f"tokens in a block ({Settings.block})")
    parser.add_argument("--batch", type=int, help=f"blocks in a step ({Settings.batch})")
    parser.add_argument(
        "--own",
        type=float,
        help=f"share of them that the model writes itself, to keep its skills ({Settings.own:.2g})",
    )
    parser.add_argument("--rows", type=int, help="blocks in one pass, if a step does not fit")
    parser.add_argument(
        "--rank", type=int, help=f"of the adapters; 0 tunes all weights ({Settings.rank})"
    )
    parser.add_argument("--lr", type=float, help="learning rate (1e-3 for adapters, else 1e-4)")
    parser.add_argument(
        "--constraint", choices=["control", "original"], help="whose loss is the limit (control)"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        help=f"nats that the loss may be above it ({Settings.tolerance})",
    )
    parser.add_argument(
        "--distil",
        type=float,
        help=f"share of the loss that is divergence from that model ({Settings.distil})",
    )
    parser.add_argument(
        "--held-out", type=int, help=f"articles for the evaluation ({Settings.held_out})"
    )
    parser.add_argument(
        "--constraint-articles",
        type=int,
        help=f"… for the constraint ({Settings.constraint_articles})",
    )
    parser.add_argument("--seed", type=int, help="of batches, adapters and gates (0)")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="further settings, see the docs"
    )
    parser.add_argument("--minutes", type=float, help="stop after so many, to go on later")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="torch.compile the blocks (on a GPU, unless --no-compile)",
    )
    parser.add_argument("--text-source", help="where the text comes from, for the attribution")
    parser.add_argument("--text-licence", help="its licence")
    _loading(parser)
    _quiet_or_json(parser)


def _list(commands: Commands) -> None:
    parser = _command(
        commands,
        "list",
        "what studies, tasks, rankings, metrics and models there are",
        "headcount list",
    )
    _json(parser)


def _cache(commands: Commands) -> None:
    parser = _command(
        commands,
        "cache",
        "list or clear the cached models",
        "headcount cache\n  headcount cache clear smollm2-135m",
    )
    parser.add_argument("action", nargs="?", choices=["list", "clear"], default="list")
    parser.add_argument("name", nargs="?", help="clear only this model")
    _json(parser)


def _store(commands: Commands) -> None:
    parser = _command(
        commands,
        "store",
        "list, export or clean the stored measurements",
        "headcount store\n  headcount store export values.parquet\n"
        "  headcount store clean --task ioi",
    )
    parser.add_argument("action", nargs="?", choices=["list", "export", "clean"], default="list")
    parser.add_argument("path", nargs="?", help="export to this .csv or .parquet file")
    parser.add_argument("--store", help="the store's file")
    parser.add_argument("--model", help="clean: only this model's")
    parser.add_argument("--task", help="clean: only this task's")
    parser.add_argument("--everything", action="store_true", help="clean: the whole store")
    _json(parser)


def _command(commands: Commands, name: str, summary: str, example: str) -> Parser:
    parser: Parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=f"headcount.cli.{name}:{name}".replace(":list", ":show"))
    return parser


def _loading(parser: Parser) -> None:
    group = parser.add_argument_group("how the model is loaded")
    group.add_argument("--dtype", default="float32", help="float32, bfloat16, float16, auto")
    group.add_argument("--device", help="cpu, cuda, cuda:1, mps (a GPU where there is one)")
    group.add_argument("--device-map", help="spread over several devices, such as auto")
    group.add_argument("--attention", help="attention kernel: sdpa, eager, flash_attention_2, …")
    group.add_argument("--revision", help="branch, tag or commit of a hub model")
    group.add_argument(
        "--trust-remote-code", action="store_true", help="run code that comes with the model"
    )


def _model(parser: Parser) -> None:
    parser.add_argument("--model", default="smollm2-135m", help="%(default)s unless given")


def _json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _quiet_or_json(parser: Parser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    _json(parser)


def _model_and_task(parser: Parser) -> None:
    _model(parser)
    parser.add_argument("--task", default="ioi", help="name or .jsonl file (%(default)s)")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the task, as n=100"
    )
    _loading(parser)


def _metric(parser: Parser) -> None:
    parser.add_argument("--metric", default="accuracy", help="see headcount list (%(default)s)")
    parser.add_argument("--stand-in", default="zero", help="zero, mean, corrupted (%(default)s)")
    parser.add_argument(
        "--scope", default="all", help="metrics of texts: all, or decode (new tokens only)"
    )
    parser.add_argument("--explain", action="store_true", help="print how it will be measured")


def _measuring(parser: Parser) -> None:
    parser.add_argument("--store", help="file that keeps measurements (in the user's cache folder)")
    parser.add_argument("--no-store", action="store_true", help="keep nothing, reuse nothing")
    _quiet_or_json(parser)


def _dry_run(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print the work ahead, do nothing")


def _spreading(parser: Parser) -> None:
    group = parser.add_argument_group("many machines (pip install 'headcount[ray]')")
    group.add_argument(
        "--ray",
        nargs="?",
        const="local",
        metavar="ADDRESS",
        help="measure on the workers of a Ray cluster: of one that is started here, or of that at "
        "HOST:PORT (auto: the one that this machine belongs to)",
    )
    group.add_argument("--workers", type=int, metavar="N", help="how many (one for each GPU)")
