"""The options of the command line: one function for each command, and shared options.

Nothing here loads torch: each command imports its own work when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from headcount import __version__
from headcount.cli import options
from headcount.cli.export_options import add_export
from headcount.cli.parser import COMMANDS, Parser, add_settings, command
from headcount.cli.prune_options import add_prune_options
from headcount.cli.study_help import STUDY_EXAMPLES, STUDY_MODELS, preset_text
from headcount.errors import HeadcountError
from headcount.integrations.lm_eval.settings import BenchmarkSettings
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
    if name not in ("run", "explore"):  # the studies of `run` have this option
        parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    return parser


def _study(parser: Parser, entry: StudyEntry) -> None:
    """The options that all studies have, and the fields of this one's config."""
    name, presets = entry.key, ", ".join(entry.presets)
    models = STUDY_MODELS.get(name, "; repeat it to compare several models (smollm2-135m-q4)")
    if entry.registered:
        models = f" ({' and '.join(entry.registered.models)})"
    parser.option("--model", "MODEL", f"{options.MODEL}{models}", action="append")
    presets += "; presets may set other models and defaults than those in brackets below"
    parser.option("--preset", "PRESET", presets, "quick")
    add_settings(parser, entry.config)
    own = "settings of the study's tasks, such as shots=6, of one task, such as gsm8k:path=FILE, "
    options.set_pairs(parser, f"{own}or of the study itself")
    options.out(parser, f"out/{name}")
    options.loading(parser)
    of_model = "how one model is loaded, such as gpt2:dtype=float32"
    options.set_pairs(parser, of_model, "--model-set", pair="MODEL:NAME=VALUE")
    options.measuring(parser)
    for key, preset in entry.presets.items():
        if preset.models:
            parser.epilog = f"{preset_text(key, preset)}\n\n{parser.epilog}"


@command(
    "demo:demo",
    "draw a head-ablation curve of the bundled model, or run all four studies",
    "",
    "--all --out out/demo-all",
)
def _demo(parser: Parser) -> None:
    parser.flag("--all", "run all four studies with the preset quick")
    parser.option("--out", "FOLDER", "folder for the results (out/demo, or out/demo-all)")
    options.keeping(parser)


@command(
    "models:doctor", "prove that a model's heads can be gated, and print its geometry", "./my-model"
)
def _doctor(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", help=options.MODEL)
    options.loading(parser)


@command(
    "measure:rank",
    "score every head for a task",
    "--task ioi --ranking integrated-gradients --top 20 --out scores.json",
    "--task antonym-in-context --ranking contrast --ranking-set forget=antonym-instruction",
    "--unit kv --task needle --ranking streaming-gates --duo-attention patterns",
)
def _rank(parser: Parser) -> None:
    options.model_and_task(parser)
    options.ranking(parser, "name of a ranking, see headcount list")
    parser.option("--top", "N", "how many heads to print", 10)
    parser.option("--out", "FILE", "write the scores of all heads to this JSON file")
    parser.option("--duo-attention", "FOLDER", "for DuoAttention: write scores (with --unit kv)")
    option = "--retrieval-head"
    parser.option(option, "FILE", "also write the scores for Retrieval_Head and HeadKV")
    parser.flag("--stability", "tell how far prompts, seeds, BOS and others move the scores")
    options.measuring(parser)


@command(
    "measure:ablate",
    "measure a task with given heads switched off, or with only them",
    "--task ioi --heads 3.4 11.2 --metric logprob",
    "--task ioi --heads 3.4 --positions answer",
    "--task ioi --heads head-set.json",
)
def _ablate(parser: Parser) -> None:
    options.model_and_task(parser)
    options.heads(parser, required=True)
    options.metric(parser)
    options.measuring(parser)


@command(
    "measure:curve",
    "rank the heads, mask (or keep) more and more of them, and draw the curve",
    "--task ioi --ranking attribution --counts 0 1 2 4 8 16 --out out/ioi",
    "--task ioi --keep --ablation mean --metric logit_difference",
    "--unit kv --keep --ablation streaming --task needle --ranking streaming-gates",
    "--model gpt2 --ranking gpt2-ioi --metric logit_difference --seeds 20",
)
def _curve(parser: Parser) -> None:
    options.model_and_task(parser)
    options.ranking(parser, "name of a ranking, or scores or a list of heads (a file or a name)")
    options.other_model(parser)
    option, series = parser.option, ["top", "random", "matched", "bottom", "anywhere"]
    option("--counts", "N", "numbers of heads (0 1 2 4 … up to half of all)", nargs="+")
    which = "top, bottom, random, matched (random in the same layers) or anywhere (random of all)"
    option("--series", "SERIES", which, series[:3], nargs="+", choices=series)
    option("--seeds", "N", "random draws for each count", 5)
    parser.flag("--keep", "keep the chosen heads, and mask all others")
    judged = "judge whether the top N matter more than random heads (all that a list names)"
    option("--judge", "N", judged)
    option("--epsilon", "X", "factor by which masked heads are multiplied", 0.0)
    options.out(parser, "out/curve")
    options.metric(parser)
    options.measuring(parser)


@command(
    "lm_eval:lm_eval",
    "run standard benchmarks under the best heads of a ranking, and under random heads",
    "--tasks arc_easy --scores scores.json --counts 8 16 --seeds 3",
    "--tasks hellaswag gsm8k --limit 200 --heads 3.4 11.2",
)
def _lm_eval(parser: Parser) -> None:
    options.model(parser)
    option = parser.option
    option(
        "--tasks", "NAME", "benchmarks and groups, see lm_eval ls tasks", nargs="+", required=True
    )
    heads = "heads to switch off, with as many random ones; 3.4 is head 4 of layer 3"
    option("--heads", "LAYER.HEAD", heads, [], nargs="+")
    option("--scores", "FILE", "in place of heads: scores or a list of heads")
    options.other_model(parser)
    add_settings(parser, BenchmarkSettings)
    options.loading(parser)
    options.out(parser, "out/lm-eval")
    options.measuring(parser)


@command(
    "compare:compare",
    "let rankings compete for the heads that a task needs, and tell how far they agree",
    "--task retrieval --ranking attribution ablation probe",
    "--task ioi greater-than --ranking attribution greedy --metric auto",
    "--ranking greedy budget-gates --ranking-set budget-gates:updates=50 greedy:share=0.5",
    "scores.json head_score/llama-2-7b-80k.json",
)
def _compare(parser: Parser) -> None:
    files = "scores or lists of heads (docs/head-lists.md): only their overlap, without measuring"
    parser.add_argument("files", metavar="FILE", nargs="*", help=files)
    options.model(parser)
    tasks = "names of tasks, or .jsonl or .json files of examples"
    parser.option("--task", "TASK", tasks, ["ioi"], nargs="+")
    options.set_pairs(parser, "settings of the tasks, such as n=100")
    options.loading(parser)
    option, usual = parser.option, ["attribution", "integrated-gradients", "ablation"]
    which = "two or more names of rankings, or files of scores"
    option("--ranking", "RANKING", which, usual, nargs="+")
    options.other_model(parser)
    counts = "how many of the best heads are kept, masked and compared (from 1 to all)"
    option("--counts", "N", counts, nargs="+")
    further = "settings of single rankings, such as greedy:share=0.5"
    options.set_pairs(parser, further, "--ranking-set", pair="RANKING:NAME=VALUE")
    metric = "metric by which rankings are made and judged; auto takes mass_difference for tasks "
    metric += "with several right answers, logprob_difference for answers of several tokens, "
    metric += "logit_difference for others, and logprob without wrong answers"
    option("--metric", "METRIC", metric, "logprob")
    option("--ablation", "ABLATION", "what replaces a masked head, as in headcount curve", "zero")
    ranked = "examples of the ranking split on which heads are ranked, and means taken (all)"
    option("--ranked", "N", ranked)
    option("--orders", "N", "random orders of the heads, as a control", 5)
    option("--seeds", "N", "random starts, for rankings that have a setting of this name")
    options.out(parser, "out/compare")
    options.measuring(parser)


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
    options.folders(parser, "results")
    parser.option("--out", "FILE", "file for the page", "index.html")
    again = "first make tables, verdicts and figures again from the values of each result"
    parser.flag("--again", again)


@command(
    "listing:across",
    "draw one study's curves of several models in one figure, by share of heads",
    "out/small out/large --out out/across",
)
def _across(parser: Parser) -> None:
    options.folders(parser, "results of one study")
    options.out(parser, "out/across")


@command(
    "verify:verify",
    "recompute every interval and verdict of a result from its own values",
    "out/masked-heads",
    "docs/results",
)
def _verify(parser: Parser) -> None:
    options.folders(parser, "results")


@command(
    "measure:tasks",
    "measure how well a model does the cognitive functions, with all its heads",
    "--model smollm2-135m-q4",
    "--functions retrieval --set n=50",
)
def _tasks(parser: Parser) -> None:
    options.model(parser)
    functions = "cognitive functions, such as retrieval math (all eight)"
    parser.option("--functions", "NAME", functions, nargs="+")
    options.set_pairs(parser, "settings of the functions' tasks, such as n=100 shots=4")
    options.loading(parser)
    options.measuring(parser)


@command(
    "models:generate",
    "let a model write, with given heads switched off",
    '--prompt "The capital of France is" --heads 3.4 11.2',
)
def _generate(parser: Parser) -> None:
    options.model(parser)
    option = parser.option
    option("--prompt", "TEXT", "one text or several, each in quotes", nargs="+", required=True)
    options.heads(parser)
    options.scope(parser, "switch the heads off at all tokens, or only at new ones")
    option("--max-new-tokens", "N", "largest number of new tokens for each prompt", 32)
    option("--temperature", "X", "temperature of sampling; 0 takes the likeliest token", 0.0)
    option("--seed", "N", "seed of sampling", 0)
    options.loading(parser)
    options.quiet(parser)


@command(
    "models:export",
    "write a model without some heads as an ordinary checkpoint, or head sets as LoRA adapters",
    "--heads 3.4 11.2 --out without",
    "--as adapter --heads 3.4 11.2 --heads 5.1 --out adapters",
    "--as adapter --scores scores.json --counts 8 16 --seeds 5 --out adapters",
)
def _export(parser: Parser) -> None:
    options.model(parser)
    add_export(parser)
    options.loading(parser)


@command(
    "prune:prune",
    "write a smaller checkpoint, without some key/value groups, and measure what it costs",
    "--keep-groups 2 --out smaller",
    "--model ./my-model --cache 0.5 --heal-steps 200 --text text.txt --out smaller",
)
def _prune(parser: Parser) -> None:
    options.model(parser)
    add_prune_options(parser)
    options.set_pairs(parser, "settings of the tasks, such as shots=4")
    options.loading(parser)
    options.measuring(parser)


@command(
    "models:sparsify",
    "make a sparse-attention version of a model, by post-training",
    "--model smollm2-135m-q4 --text wikipedia.txt.xz --out sparse-smollm2",
    "--model ./my-model --text text.jsonl --out sparse --minutes 9",
)
def _sparsify(parser: Parser) -> None:
    options.model(parser)
    option = parser.option
    text = "text to train on: .txt or .txt.xz with blank lines between articles, or .jsonl"
    option("--text", "FILE", text, required=True)
    option("--out", "FOLDER", "folder for the sparse model and its training", required=True)
    option("--control", "FOLDER", "dense control that other runs share (OUT/control)")
    option("--base", "MODEL", "name of the base model in the result (that of --model)")
    add_settings(parser, Settings)
    options.set_pairs(parser, "further settings, which docs/sparse.md lists")
    option("--rows", "N", "blocks in one pass, if a step does not fit into memory")
    option("--minutes", "X", "stop after this time; the same command goes on later")
    compiled = "compile the blocks with torch.compile (only on a GPU)"
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help=compiled)
    option("--text-source", "TEXT", "where the text comes from, for the model's attribution")
    option("--text-licence", "TEXT", "licence of the text, for the model's attribution")
    options.loading(parser, unit=False)
    options.quiet(parser)


@command(
    "models:convert",
    "write a checkpoint of nanoGPT, such as the released sparse GPT-2, as a folder of safetensors",
    "final.pth --out sparse-gpt2",
)
def _convert(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .pth, .pt or .safetensors file")
    option = parser.option
    option("--out", "FOLDER", "folder to write, which must not exist yet", required=True)
    option("--gate-bias", "X", "gate bias of its sparse attention", 0.0)
    parser.flag("--dense", "write it as a dense model")
    option("--heads", "N", "heads in a layer, if the file does not say (heads of size 64)")
    tokenizer = "hub id or folder of its tokenizer"
    option("--tokenizer", "MODEL", tokenizer, "openai-community/gpt2")


@command(
    "explore:explore",
    "switch heads off on a local web page, and watch the model think",
    "",
    "--task ioi --scores scores.json --heads 20.0 23.0",
)
def _explore(parser: Parser) -> None:
    options.model_and_task(parser)
    options.heads(parser)
    option = parser.option
    files = "files of scores that rank --out wrote, or of learned gates, to colour the map by"
    option("--scores", "FILE", files, [], nargs="+")
    option("--port", "N", "port of the page; if it is taken, the next free one", 8765)
    parser.flag("--no-browser", "print the link, and open no browser")
    option("--store", "FILE", options.STORE)
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
    option("--store", "FILE", options.STORE)
    option("--model", "NAME", "clean: remove the measurements of this model")
    option("--task", "NAME", "clean: remove the measurements of this task")
    parser.flag("--everything", "clean: remove all measurements")
