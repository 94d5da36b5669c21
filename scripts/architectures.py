"""Prove the heads of every causal LM that transformers knows, and write down what came of it.

    make architectures        writes docs/architectures.md

The models are the tiny random ones that the tests use.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import transformers
from tiny import (
    CANNOT_BUILD,
    NO_SOFTMAX_ATTENTION,
    NOT_DECODER_ONLY_TEXT,
    model_types,
    tiny_model,
)
from torch import nn

from headcount.errors import HeadcountError
from headcount.models.key_value import prove_streaming, read_key_values
from headcount.models.proof import Proof, prove
from headcount.models.sites import HeadSite

TABLE = Path(__file__).resolve().parents[1] / "docs" / "architectures.md"
LEFT_OUT = NOT_DECODER_ONLY_TEXT | CANNOT_BUILD
Check = Callable[[nn.Module, tuple[HeadSite, ...]], object]

PAGE = """\
# Architectures

Which attention heads of which language models can headcount gate? Every entry of transformers'
causal-LM mapping is built as a tiny model with random weights, and `headcount doctor`'s proof is
run on it, without any code for single architectures.

- **proven**: on a made-up prompt, (1) gates of 1 change no logit, (2) what the heads write through
  the output projection sums to the block's output, (3) a gate of 0 equals zeroed columns of the
  projection, and (4) disturbing a query head inside the attention changes the slice of that head
  and no other. Independently of this, the tests silence heads inside the attention itself and get
  the same logits as with gates, in all of these but bitnet, where a norm comes in between.
- **groups**: heads can also be gated by [key/value heads](cache-budget.md#the-unit), which
  are read off transformers' attention functions and proven.
- **stream**: an ablated head may see only the first and the recent tokens
  ([streaming](cache-budget.md)); with windows that hide nothing, the logits are the model's own.
- **refused**: the heads could not be proven, and headcount says so instead of guessing.
- **no heads**: nothing in the model is softmax attention.
- **left out**: not a decoder of text that runs by itself.

{totals}

Made with transformers {version} by `make architectures`. The sizes are those of the tiny models;
those of real ones are read off their own tensors when they are loaded.

| architecture | verdict | heads × size | groups | stream | notes |
| --- | --- | --- | --- | --- | --- |
{rows}
"""


@dataclass(frozen=True)
class Row:
    """One architecture and what came of it."""

    name: str
    verdict: str
    heads: str = ""
    groups: str = ""
    streams: str = ""
    notes: str = ""


def row(name: str, outcome: Proof | HeadcountError | None, module: nn.Module | None = None) -> Row:
    """The line of an architecture; its outcome is a proof or a refusal, or nothing if left out."""
    if name in LEFT_OUT:
        return Row(name, "left out", notes=LEFT_OUT[name])
    if isinstance(outcome, Proof) and module is not None:
        sites = outcome.sites
        can = [
            "yes" if holds(check, module, sites) else ""
            for check in (read_key_values, prove_streaming)
        ]
        return Row(name, "proven", geometry(sites), *can, "; ".join(notes(outcome)))
    if name in NO_SOFTMAX_ATTENTION:
        return Row(name, "no heads", notes=NO_SOFTMAX_ATTENTION[name])
    return Row(name, "refused", notes=str(outcome))


def holds(check: Check, module: nn.Module, sites: tuple[HeadSite, ...]) -> bool:
    """Whether a model is not refused."""
    try:
        check(module, sites)
    except HeadcountError:
        return False
    return True


def geometry(sites: tuple[HeadSite, ...]) -> str:
    """Heads and sizes of all sites, equal neighbours together."""
    runs = [(key, len(list(run))) for key, run in groupby((s.heads, s.size) for s in sites)]
    return ", ".join(f"{h} × {size}" + (f" ({n} sites)" if n > 1 else "") for (h, size), n in runs)


def notes(proof: Proof) -> list[str]:
    """What one should know before gating such a model."""
    sites, found = proof.sites, []
    if any(site.queries > 1 for site in sites):
        found.append(f"{sites[0].queries} query heads share a slice, gated as one")
    if any(site.coupled for site in sites):
        found.append("a norm over all heads comes before the projection; gates act after it")
    if any(site.runs > 1 for site in sites):
        modules = len({site.module for site in sites})
        found.append(f"{modules} blocks run several times in a pass; each run has its own gates")
    if any(site.width > site.heads * site.size for site in sites):
        found.append("the projection takes other columns beside the heads")
    if proof.mixers:
        # Layers of one kind differ in their numbers only.
        kinds = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", mixer) for mixer in proof.mixers)
        found.append("tokens also mix in " + ", ".join(f"`{kind}`" for kind in kinds))
    return found


def page(rows: list[Row]) -> str:
    """The whole document."""
    count = Counter(row.verdict for row in rows)
    softmax = count["proven"] + count["refused"]
    totals = (
        f"**{count['proven']} of {softmax} architectures with softmax attention are proven "
        f"({count['proven'] / softmax:.0%})**,\n{count['refused']} are refused; "
        f"{count['no heads']} have no heads; {count['left out']} are left out. Of the proven ones "
        f"{sum(bool(r.groups) for r in rows)} have\nkey/value heads that can be gated, and heads "
        f"of {sum(bool(r.streams) for r in rows)} can stream."
    )
    lines = "\n".join(
        f"| {r.name} | {r.verdict} | {r.heads} | {r.groups} | {r.streams} | {r.notes} |"
        for r in rows
    )
    return PAGE.format(totals=totals, version=transformers.__version__, rows=lines)


def look(name: str) -> Row:
    """Build an architecture, prove it and describe what came of it."""
    if name in LEFT_OUT:
        return row(name, None)
    try:
        module = tiny_model(name)
        return row(name, prove(module), module)
    except HeadcountError as refusal:
        return row(name, refusal)


def main() -> None:
    warnings.simplefilter("ignore")  # transformers about kernels that are not installed
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(page([look(name) for name in sorted(model_types())]), encoding="utf-8")
    print(TABLE)


if __name__ == "__main__":
    main()
