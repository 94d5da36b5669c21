"""Time the fit of causal gates: seconds per token, which `devices.py` puts into its table.

    python benchmarks/fit_rate.py --json benchmarks/results/fit-rate.json       # on a GPU
    python benchmarks/fit_rate.py --shapes tiny --device cpu --dtype float32    # a trial

Models have random weights in the published shapes. A few passes of the first update of ten fits on
64 prompts are timed, as headcount does it before it starts a fit.
"""

from __future__ import annotations

import argparse
import json
import sys

import torch
from machine import describe_machine, describe_versions
from shapes import SHAPES, random_model, task_of, word_tokenizer

from headcount import wrap
from headcount.rankings.causal_gates.fit import FitSettings, GateFit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["1b", "8b"])
    parser.add_argument("--tokens", type=int, default=250, help="in a prompt")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()
    rows = []
    for shape in options.shapes:
        vocabulary = SHAPES[shape][0]
        module = random_model(shape, options.device, getattr(torch, options.dtype))
        model = wrap(module, word_tokenizer(vocabulary), name=shape)
        task = task_of(vocabulary, 200, options.tokens)
        fit = GateFit(model, task, FitSettings(seeds=options.seeds))
        rate = fit.seconds(None) / fit.tokens(fit.progress(None))
        rows.append({"shape": shape, "dtype": options.dtype, "seconds_per_token": rate})
        print(rows[-1], flush=True)
        del module, model, task, fit
        if options.device == "cuda":
            torch.cuda.empty_cache()
    if options.json:
        facts = {"format": "headcount fit rate 1", "command": f"python {' '.join(sys.argv)}"}
        facts |= {"machine": describe_machine(), "versions": describe_versions([])}
        with open(options.json, "w") as file:
            json.dump({**facts, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
