"""Scores of key/value heads as the two files that DuoAttention reads.

    full_attention_heads.tsv   a row for each layer, and in it, between tabs, a number from 0 to 1
                               for each key/value head: how much of its full attention it keeps
    config.json                sink_size and recent_size, the first and the recent tokens that all
                               other heads see

DuoAttention keeps the heads above a threshold, or the share of heads with the highest numbers.
Gates are written as they are. Scores of other rankings have no such scale, so the place in their
order is written, from 0 for the last head to 1 for the first: choose a share of heads for these.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.models.streaming import Streaming
from headcount.system.files import replacing, write_json

HEADS, CONFIG = "full_attention_heads.tsv", "config.json"
GATES = ("streaming-gates", "facilitation")  # rankings whose scores are open gates


def check_for_duo_attention(model: Model) -> None:
    """Refuse a model whose scores would be no table of layers and key/value heads."""
    if model.unit != "kv":
        raise HeadcountError(
            f"DuoAttention reads scores of key/value heads, and {model.name} is ranked by query "
            'heads: rank key/value heads (--unit kv, or load_model(..., unit="kv")).'
        )
    if len(set(model.layout.counts)) > 1:
        raise HeadcountError(
            "DuoAttention reads as many key/value heads in every layer, and the layers of "
            f"{model.name} have {', '.join(map(str, sorted(set(model.layout.counts))))}: write "
            "the scores as JSON."
        )


def write_duo_attention(model: Model, scores: HeadScores, folder: str | Path) -> list[Path]:
    """Write the scores into a folder that DuoAttention reads; return the paths of its two files.

    The numbers of first and recent tokens are those of the ranking's ablation, or the usual ones.

    >>> from headcount import load_model, make_task, rank
    >>> model = load_model("smollm2-135m-q4").by_key_value_heads()
    >>> scores = rank(model, make_task("ioi", model, n=8), "random")
    >>> files = write_duo_attention(model, scores, getfixture("tmp_path") / "patterns")
    >>> [path.name for path in files], np.loadtxt(files[0]).shape
    (['full_attention_heads.tsv', 'config.json'], (30, 3))
    """
    check_for_duo_attention(model)
    folder, layers = Path(folder), len(model.layout.counts)
    values = np.asarray(scores.values)
    if scores.ranking not in GATES:
        values = 1 - np.argsort(scores.order()) / max(len(values) - 1, 1)
    streaming = Streaming.read(str(scores.parameters.get("ablation"))) or Streaming()
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / HEADS) as new, new.open("wb") as file:
        np.savetxt(file, values.reshape(layers, -1), delimiter="\t")
    facts = {
        "model_name": model.name,
        "sink_size": streaming.sink,
        "recent_size": streaming.window,
        "ranking": scores.ranking,
        "numbers": "gates" if scores.ranking in GATES else "places in the order",
        "task": scores.parameters.get("task"),
    }
    return [folder / HEADS, write_json(folder / CONFIG, facts)]
