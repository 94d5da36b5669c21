"""COMET, by its own program in its own environment.

COMET needs other versions of transformers and NumPy than headcount does, and a model of 2.3 GB. So
it is never imported: texts go to `comet-score` in files, and scores come back in one.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.errors import HeadcountError
from headcount.metrics.comet_program import (
    MODEL,
    comet_identity,
    find_program,
    model_argument,
    model_name,
)
from headcount.metrics.text import TextMetric, Written

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
    command = [*find_program(), "--model", model_argument(model), "--quiet", "--only_system"]
    with tempfile.TemporaryDirectory(prefix="headcount-comet-") as folder:
        for option, column in zip("str", zip(*triples, strict=True), strict=True):
            file = Path(folder) / option
            lines = "".join(f"{line}\n" for line in column)
            file.write_text(lines, encoding="utf-8", errors="replace", newline="\n")
            command += [f"-{option}", str(file)]
        scores = Path(folder) / "scores.json"
        command += ["--to_json", str(scores)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
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
    if not all(_is_score(score) for score in scores):
        raise HeadcountError(
            f"{program} gave scores that are no finite numbers, so none of them is used: its model "
            "may be damaged, or not made for half precision."
        )
    return [float(score) for score in scores]


def _is_score(score: Any) -> bool:
    # The bound is one that NaN and infinity fail; scores lie around 0 to 1.
    return isinstance(score, int | float) and not isinstance(score, bool) and abs(score) < 1e6


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that the program wrote: Python puts the reason there."""
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}, often for lack of memory"
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return (
        lines[-1].strip().rstrip(".") if lines else f"exit code {done.returncode}, without a word"
    )


COMET = comet_metric()
