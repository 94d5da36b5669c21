"""The COMET metric, computed by COMET's own program in its own environment.

COMET needs other versions of transformers and NumPy than headcount, and a model of 2.3 GB. So it is
never imported: headcount writes texts to files, runs `comet-score` and reads the scores' file.
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
# COMET's dependencies import pkg_resources, which newer versions of setuptools lack.
INSTALL = (
    "python3 -m venv comet && comet/bin/pip install unbabel-comet 'setuptools<81', then set "
    "HEADCOUNT_COMET to comet/bin/comet-score"
)
EMPTY = "N/A"

Triple = tuple[str, str, str]  # source, translation, reference, as COMET calls them


def comet_metric(model: str | None = None) -> TextMetric:
    """The COMET metric, with mt = the text, ref = the unmasked answer and src = the right answer.

    `model` is a name on the hub or a local checkpoint, by default HEADCOUNT_COMET_MODEL or, if that
    is not set, wmt22-comet-da. The program is HEADCOUNT_COMET, or `comet-score` on the PATH; it is
    searched for when texts are scored.

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
    """`text` on one line, because COMET scores lines; an empty text becomes "N/A"."""
    return " ".join(text.split()) or EMPTY


def _run(triples: Sequence[Triple], model: str) -> list[float]:
    """The scores of all triples from one run of the program, which takes long to load its model."""
    # A name on the hub is passed on as it is, a local checkpoint as its full path.
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
            finished = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, **form
            )
        except OSError as error:
            raise HeadcountError(
                f"Cannot start {command[0]} ({error.strerror or error}): set HEADCOUNT_COMET to "
                "COMET's program, comet-score."
            ) from error
        if finished.returncode:
            raise HeadcountError(f"COMET failed and scored nothing ({_reason(finished)}).")
        return _read_scores(scores, len(triples), command[0])


def _read_scores(path: Path, count: int, program: str) -> list[float]:
    """All scores in the program's file; if one is missing or not finite, all are refused."""
    try:
        (rows,) = json.loads(path.read_text(encoding="utf-8")).values()  # one list for each -t
        scores = [row["COMET"] for row in rows]
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise HeadcountError(
            f"{program} finished but wrote no scores that headcount can read: set "
            "HEADCOUNT_COMET to the comet-score of unbabel-comet 2."
        ) from error
    if len(scores) != count:
        raise HeadcountError(
            f"{program} gave {len(scores)} scores for {count} texts, so none of them is used."
        )
    # Scores lie around 0 to 1; NaN and infinity fail this comparison.
    if not all(type(score) in (int, float) and abs(score) < 1e6 for score in scores):
        raise HeadcountError(
            f"{program} gave scores that are not finite, so none of them is used: its model may "
            "be damaged, or not work in half precision."
        )
    return [float(score) for score in scores]


def _reason(finished: subprocess.CompletedProcess[str]) -> str:
    """The last line that the program wrote, which in Python is the error message."""
    if finished.returncode < 0:
        return f"killed by signal {-finished.returncode}, often for lack of memory"
    lines = (finished.stderr.strip() or finished.stdout.strip()).splitlines()
    silent = f"exit code {finished.returncode}, without a message"
    return lines[-1].strip().rstrip(".") if lines else silent


def find_program() -> list[str]:
    """The command in HEADCOUNT_COMET, or `comet-score` on the PATH, as a list (no shell is used).

    The command may have options, such as "comet-score --gpus 0".
    """
    chosen = os.environ.get("HEADCOUNT_COMET", "").strip()
    if not chosen:
        path = shutil.which(PROGRAM)
        if path is None:
            raise HeadcountError(f"COMET is not installed here: {INSTALL}.")
        return [path]
    try:
        # A path may contain spaces, so try it as one path before splitting it.
        words = [chosen] if os.path.exists(os.path.expanduser(chosen)) else shlex.split(chosen)
    except ValueError as error:
        raise HeadcountError(f"HEADCOUNT_COMET is not a command ({error}): {chosen}") from error
    program = os.path.expanduser(words[0])
    path = shutil.which(program)
    if path is not None:
        return [os.path.abspath(path), *words[1:]]
    if os.path.exists(program):
        raise HeadcountError(
            f"HEADCOUNT_COMET names {program}, which is not executable: set it to comet-score "
            "itself, or make the file executable with chmod +x."
        )
    raise HeadcountError(
        f"HEADCOUNT_COMET names {program}, but there is no such program: {INSTALL}."
    )


def _checkpoint(model: str) -> Path | None:
    """The local checkpoint that `model` names, by file or by folder; None for a name on the hub."""
    path = Path(os.path.abspath(os.path.expanduser(model)))
    if path.is_dir() and (path / "checkpoints" / "model.ckpt").is_file():
        return path / "checkpoints" / "model.ckpt"
    if path.is_file():
        return path
    if path.is_dir() or model.endswith(".ckpt") or model.startswith((".", "/", "~")):
        raise HeadcountError(
            f"There is no COMET checkpoint {model}: set HEADCOUNT_COMET_MODEL to a .ckpt file, "
            f"or to a model on the hub such as {MODEL}."
        )
    return None


def model_name(model: str) -> str:
    """The model's name in figures: its name on the hub, or the folder of its checkpoint.

    >>> model_name("Unbabel/wmt22-comet-da"), model_name("mine/checkpoints/model.ckpt")
    ('wmt22-comet-da', 'local checkpoint mine')
    """
    path = Path(os.path.abspath(os.path.expanduser(model)))
    if not (path.suffix == ".ckpt" or path.exists()):
        return model.rsplit("/", 1)[-1]
    # In the hub's cache: …/models--OWNER--NAME/snapshots/REVISION/checkpoints/model.ckpt
    for part in path.parts:
        if part.startswith("models--"):
            return f"{part.rsplit('--', 1)[-1]}, local copy"
    inner = [part for part in path.parts if part not in ("checkpoints", "model.ckpt")]
    return f"local checkpoint {inner[-1]}"


def comet_identity(model: str) -> str:
    """The program and the model that determine a score: part of the store's key."""
    program, *options = find_program()
    checkpoint = _checkpoint(model)
    weights = model if checkpoint is None else fingerprint_files([checkpoint])
    return " ".join([_version(Path(program)), *options, weights])


def _version(program: Path) -> str:
    """The version of COMET that the program belongs to, or else the program's checksum."""
    home = program.resolve().parent.parent
    for folder in ("lib/python*/site-packages", "Lib/site-packages"):
        for info in sorted(home.glob(f"{folder}/unbabel_comet-*.dist-info")):
            return info.name.removesuffix(".dist-info")
    return fingerprint_files([program])


COMET = comet_metric()
