"""Measure the results that are committed, one study after the other, and pack them.

    python scripts/measure_results.py quick                   # the bundled model on two cores
    python scripts/measure_results.py full --device cuda      # the same on a GPU
    python scripts/measure_results.py full --dry-run          # only says how much there is to do
    python scripts/measure_results.py full --models smollm2-135m-q4 FILE.gguf --device cuda

`--seconds` starts no study after that time: the same command goes on where it stopped, also on
another machine, if the file of `--store` is brought along.
Each result is verified after it was measured, and packed as docs/results/README.md says.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import time
from pathlib import Path

from headcount.system.files import safe_name

RESULTS = Path("docs", "results")  # from the root of the repository, as the commands are written
BUNDLED = ["smollm2-135m-q4"]
# What each size measures of the studies: a preset, and as many items as keep the table of all
# values, which is committed, within some hundred kilobytes.
SIZES: dict[str, dict[str, list[str]]] = {
    "quick": {
        study: ["--preset", "quick"]
        for study in (
            "masked-heads",
            "heads-kept",
            "head-roles",
            "token-insertion",
            "transfer",
            "silent-heads",
            "needle",
            "contrast",
            "teamwork",
            "steering",
        )
    },
    "full": {
        "token-insertion": ["--preset", "full"],
        "heads-kept": ["--preset", "full", "--n", "100"],
        "masked-heads": ["--preset", "full", "--n", "200"],
        "head-roles": ["--preset", "full", "--n", "64"],
        "contrast": ["--preset", "full"],
        "transfer": ["--preset", "full"],
        "silent-heads": ["--preset", "full", "--n", "100", "--seeds", "2"],
        "teamwork": ["--preset", "full"],
        "steering": ["--preset", "full", "--n", "200"],
        "needle": ["--preset", "full"],  # as far as each model reads
    },
}
TOGETHER = ("head-roles", "token-insertion")  # all models in one figure; the others one each
KEPT_WITH = {"smollm2-135m-q4": ["sparse:smollm2-135m-q4"]}  # the sparse form of a model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("size", choices=list(SIZES))
    parser.add_argument(
        "--models", nargs="+", default=BUNDLED, help="names, folders or .gguf files"
    )
    parser.add_argument("--studies", nargs="+", choices=list(SIZES["full"]))
    parser.add_argument("--device")
    parser.add_argument("--dtype")
    parser.add_argument("--tasks", nargs="+", help="of head-roles: those that have fitted gates")
    parser.add_argument("--store", help="a file, instead of headcount's own store")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--dry-run", action="store_true", dest="dry_run")
    options = parser.parse_args()
    started, failed = time.monotonic(), []
    for study, models, folder in jobs(options):
        if time.monotonic() - started > options.seconds:
            print(f"No time left for {folder}: the same command goes on with it.")
            continue
        if not measure(options, study, models, folder):
            failed.append(folder)
    sys.exit(f"Not measured: {', '.join(map(str, failed))}" if failed else 0)


def jobs(options: argparse.Namespace) -> list[tuple[str, list[str], Path]]:
    """Each study with the models of one result and the folder of it."""
    found = []
    suffix = "" if options.size == "full" else f"-{options.size}"
    for study in options.studies or SIZES[options.size]:
        together = [options.models] if study in TOGETHER else [[model] for model in options.models]
        for models in together:
            name = "-and-".join(safe_name(Path(model).stem) for model in models)
            found.append((study, models, options.out / study / f"{name}{suffix}"))
    return found


def measure(options: argparse.Namespace, study: str, models: list[str], folder: Path) -> bool:
    """Run one study, verify what it left, and pack it."""
    ours = [sys.executable, "-m", "headcount.cli"]
    words = [*ours, "run", study, *SIZES[options.size][study], "--out", str(folder)]
    if study == "head-roles" and options.tasks:
        words += ["--tasks", *options.tasks]
    if study == "heads-kept":
        models = [*models, *(other for model in models for other in KEPT_WITH.get(model, []))]
    for model in models:
        words += ["--model", model]
    for name in ("device", "dtype", "store"):
        if getattr(options, name):
            words += [f"--{name}", getattr(options, name)]
    if options.dry_run:
        return subprocess.run([*words, "--dry-run"], check=False).returncode == 0
    print(" ".join(words[2:]), flush=True)
    if subprocess.run(words, check=False).returncode:
        return False
    if subprocess.run([*ours, "verify", str(folder)], check=False).returncode:
        return False
    pack(folder)
    return True


def pack(folder: Path) -> None:
    """Compress the table of heads, and leave out the samples of scores and bundled gates.

    What `headcount report` makes again is ignored by git anyway.
    """
    for path in [*folder.glob("scores/*.npz"), *folder.glob("scores/gates/*/*")]:
        path.unlink()
    table = folder / "heads.csv"
    if table.exists():
        packed = gzip.compress(table.read_bytes(), 9, mtime=0)
        (folder / "heads.csv.gz").write_bytes(packed)
        table.unlink()
    for inside in sorted(folder.glob("scores/gates/**"), reverse=True):
        inside.rmdir()
    left_out = {".svg", ".pdf", ".html"}
    kept = [p for p in folder.rglob("*") if p.is_file() and p.suffix not in left_out]
    print(f"{folder}: {sum(path.stat().st_size for path in kept) / 1e3:.0f} kB to commit")


if __name__ == "__main__":
    main()
