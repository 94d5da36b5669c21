"""The options of `headcount lm-eval`; nothing here loads torch."""

from __future__ import annotations

from headcount.cli.arguments import _loading, _measuring, _model, _out, command
from headcount.cli.parser import Parser, add_settings
from headcount.integrations.lm_eval.settings import BenchmarkSettings


@command(
    "lm_eval:lm_eval",
    "run standard benchmarks under the best heads of a ranking, and under random heads",
    "--tasks arc_easy --scores scores.json --counts 8 16 --seeds 3",
    "--tasks hellaswag gsm8k --limit 200 --heads 3.4 11.2",
)
def _lm_eval(parser: Parser) -> None:
    _model(parser)
    option = parser.option
    option(
        "--tasks", "NAME", "benchmarks and groups, see lm_eval ls tasks", nargs="+", required=True
    )
    heads = "heads to switch off, with as many random ones; 3.4 is head 4 of layer 3"
    option("--heads", "LAYER.HEAD", heads, [], nargs="+")
    option("--scores", "FILE", "in place of heads: scores that rank --out wrote")
    add_settings(parser, BenchmarkSettings)
    _loading(parser)
    _out(parser, "out/lm-eval")
    _measuring(parser)
