"""COMET, by its own program in its own environment.

COMET needs other versions of transformers and NumPy than headcount does, and a model of 2.3 GB. So
it is never imported: texts go to `comet-score` in files, and scores come back in one.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.errors import HeadcountError
from headcount.metrics.text import TextMetric, Written
from headcount.system.fingerprint import fingerprint_files

PROGRAM = "comet-score"
MODEL = "Unbabel/wmt22-comet-da"
# COMET's own dependencies still import pkg_resources, which newer setuptools no longer have.
INSTALL = (
    "python3 -m venv comet && comet/bin/pip install unbabel-comet 'setuptools<81', then let "
    "HEADCOUNT_COMET name comet/bin/comet-score"
)
EMPTY = "N/A"

Triple = tuple[str, str, str]  # source, translation, reference, as COMET calls them


def comet_metric(model: str | None = None) -> TextMetric:
    """The COMET metric, with mt = the text, ref = the unmasked answer and src = the right answer.

    `model` is a name on the hub or a local checkpoint; HEADCOUNT_COMET_MODEL where it is not given,
    and wmt22-comet-da where that is not set. The program is the one that HEADCOUNT_COMET names, or
    `comet-score` on the PATH; it is looked for when texts are scored.

    >>> comet_metric("Unbabel/wmt22-comet-da").name
    'COMET (wmt22-comet-da)'
    """
    model = model or os.environ.get("HEADCOUNT_COMET_MODEL") or MODEL
    return TextMetric(
        "comet",
        f"COMET ({model_name(model)})",
        partial(_comet, model=model),
        identity=partial(comet_identity, model=model),
    )


def _comet(written: Written, model: str) -> Float[np.ndarray, "texts"]:
    rows = zip(written.golds, written.texts, written.whole, strict=True)
    triples: list[Triple] = [(_line(gold), _line(text), _line(whole)) for gold, text, whole in rows]
    distinct = list(dict.fromkeys(triples))
    if not distinct:
        return np.zeros(0)
    scores = dict(zip(distinct, _run(distinct, model), strict=True))
    return np.array([scores[triple] for triple in triples])


def _line(text: str) -> str:
    """`text` on one line, because a line is what COMET scores; an empty one as "N/A"."""
    return " ".join(text.split()) or EMPTY


def _run(triples: Sequence[Triple], model: str) -> list[float]:
    """The scores of all triples by one run of the program: it takes long to load its model."""
    # A name on the hub is told as it is, a checkpoint by its full path.
    command = [*find_program(), "--model", str(_checkpoint(model) or model)]
    command += ["--quiet", "--only_system"]
    form: dict[str, Any] = {"encoding": "utf-8", "errors": "replace"}
    with tempfile.TemporaryDirectory(prefix="headcount-comet-") as folder:
        for option, column in zip("str", zip(*triples, strict=True), strict=True):
            file = Path(folder) / option
            lines = "".join(f"{line}\n" for line in column)
            file.write_text(lines, newline="\n", **form)
            command += [f"-{option}", str(file)]
        scores = Path(folder) / "scores.json"
        command += ["--to_json", str(scores)]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, **form)
        except OSError as error:
            raise HeadcountError(
                f"Cannot start {command[0]} ({error.strerror or error}): let HEADCOUNT_COMET name "
                "COMET's program, comet-score."
            ) from error
        if done.returncode:
            raise HeadcountError(f"COMET failed and scored nothing ({_complaint(done)}).")
        return _read_scores(scores, len(triples), command[0])


def _read_scores(path: Path, count: int, program: str) -> list[float]:
    """All scores in the program's file; one that is missing or no number spoils the rest."""
    try:
        (rows,) = json.loads(path.read_text(encoding="utf-8")).values()  # one list for each -t
        scores = [row["COMET"] for row in rows]
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise HeadcountError(
            f"{program} ended well but wrote no scores that headcount can read: let "
            "HEADCOUNT_COMET name the comet-score of unbabel-comet 2."
        ) from error
    if len(scores) != count:
        raise HeadcountError(
            f"{program} gave {len(scores)} scores for {count} texts, so none of them is used."
        )
    # The bound is one that NaN and infinity fail; scores lie around 0 to 1.
    if not all(type(score) in (int, float) and abs(score) < 1e6 for score in scores):
        raise HeadcountError(
            f"{program} gave scores that are no finite numbers, so none of them is used: its model "
            "may be damaged, or not made for half precision."
        )
    return [float(score) for score in scores]


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that the program wrote: Python puts the reason there."""
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}, often for lack of memory"
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    silent = f"exit code {done.returncode}, without a word"
    return lines[-1].strip().rstrip(".") if lines else silent


def find_program() -> list[str]:
    """The command that HEADCOUNT_COMET names, or `comet-score` on the PATH; words, never a shell.

    A command may carry options of its own, such as "comet-score --gpus 0".
    """
    chosen = os.environ.get("HEADCOUNT_COMET", "").strip()
    if not chosen:
        path = shutil.which(PROGRAM)
        if path is None:
            raise HeadcountError(f"COMET is not installed here: {INSTALL}.")
        return [path]
    try:
        # A path may hold spaces, so the whole is tried before its words.
        words = [chosen] if os.path.exists(os.path.expanduser(chosen)) else shlex.split(chosen)
    except ValueError as error:
        raise HeadcountError(f"HEADCOUNT_COMET is no command ({error}): {chosen}") from error
    program = os.path.expanduser(words[0])
    path = shutil.which(program)
    if path is not None:
        return [os.path.abspath(path), *words[1:]]
    if os.path.exists(program):
        raise HeadcountError(
            f"HEADCOUNT_COMET names {program}, which is not a program that may be run: let it name "
            "comet-score itself (chmod +x makes a script one)."
        )
    raise HeadcountError(
        f"HEADCOUNT_COMET names {program}, but there is no such program: {INSTALL}."
    )


def _checkpoint(model: str) -> Path | None:
    """The local file that `model` names, if it names one, as a file or as the folder above it."""
    path = Path(os.path.abspath(os.path.expanduser(model)))
    if path.is_dir() and (path / "checkpoints" / "model.ckpt").is_file():
        return path / "checkpoints" / "model.ckpt"
    if path.is_file():
        return path
    if path.is_dir() or model.endswith(".ckpt") or model.startswith((".", "/", "~")):
        raise HeadcountError(
            f"There is no COMET checkpoint {model}: let HEADCOUNT_COMET_MODEL name a .ckpt file, "
            f"or a model on the hub such as {MODEL}."
        )
    return None


def model_name(model: str) -> str:
    """What figures call the model: its name on the hub, or the folder that it lies in.

    >>> model_name("Unbabel/wmt22-comet-da"), model_name("mine/checkpoints/model.ckpt")
    ('wmt22-comet-da', 'local checkpoint mine')
    """
    path = Path(os.path.abspath(os.path.expanduser(model)))
    if not (path.suffix == ".ckpt" or path.exists()):
        return model.rsplit("/", 1)[-1]
    # …/models--OWNER--NAME/snapshots/REVISION/checkpoints/model.ckpt is how the hub keeps one.
    for part in path.parts:
        if part.startswith("models--"):
            return f"{part.rsplit('--', 1)[-1]}, local copy"
    inner = [part for part in path.parts if part not in ("checkpoints", "model.ckpt")]
    return f"local checkpoint {inner[-1]}"


def comet_identity(model: str) -> str:
    """Which program and which model gave a score: part of the store's key."""
    program, *options = find_program()
    checkpoint = _checkpoint(model)
    weights = model if checkpoint is None else fingerprint_files([checkpoint])
    return " ".join([_version(Path(program)), *options, weights])


def _version(program: Path) -> str:
    """The version of COMET that a program belongs to; of another program, a checksum."""
    home = program.resolve().parent.parent
    for folder in ("lib/python*/site-packages", "Lib/site-packages"):
        for info in sorted(home.glob(f"{folder}/unbabel_comet-*.dist-info")):
            return info.name.removesuffix(".dist-info")
    return fingerprint_files([program])


COMET = comet_metric()
