"""Which COMET there is: its program, its model, and how to recognise both again."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.system.fingerprint import fingerprint_files

PROGRAM = "comet-score"
MODEL = "Unbabel/wmt22-comet-da"
# COMET's own dependencies still import pkg_resources, which newer setuptools no longer have.
INSTALL = (
    "python3 -m venv comet && comet/bin/pip install unbabel-comet 'setuptools<81', then let "
    "HEADCOUNT_COMET name comet/bin/comet-score"
)


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


def model_argument(model: str) -> str:
    """What the program is told: a name on the hub as it is, a checkpoint by its full path.

    >>> model_argument("Unbabel/wmt22-comet-da")
    'Unbabel/wmt22-comet-da'
    """
    checkpoint = _checkpoint(model)
    return model if checkpoint is None else str(checkpoint)


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
