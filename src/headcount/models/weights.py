"""What the weights of a model are, in words: every page and caption says it from here.

A result records the facts of its models (`Model.facts`), so nothing is read out of their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from headcount.models.bundled import BUNDLED

BITS = re.compile(r"I?Q(\d)|(\d+)-bit", re.IGNORECASE)


def quantised_as(settings: Any) -> str:
    """The format of weights that transformers keeps quantised, by its settings: "4-bit awq"."""
    known = settings if isinstance(settings, Mapping) else settings.to_dict()
    bits = known.get("bits") or (4 * bool(known.get("load_in_4bit")))
    bits = bits or 8 * bool(known.get("load_in_8bit"))
    method = known.get("quant_method", "quantised")
    words = [f"{bits}-bit" if bits else "", str(getattr(method, "value", method))]
    return " ".join(filter(None, words))


def weights_in_words(facts: Mapping[str, Any]) -> str:
    """The precision of the weights, and whether they come from fewer bits.

    >>> weights_in_words({"stored": "Q4_K_M", "dtype": "bfloat16"})
    '4-bit weights (Q4_K_M), dequantised to bfloat16'
    >>> weights_in_words({"stored": "", "dtype": "float32"})
    'float32 weights'
    """
    stored, dtype = str(facts.get("stored") or ""), str(facts.get("dtype") or "")
    if not stored:
        return f"{dtype} weights" if dtype else "weights of unknown precision"
    if "-bit" in stored:
        return f"{stored} weights"
    found = BITS.match(stored)
    few = f"{found[1]}-bit weights ({stored})" if found else f"{stored} weights"
    return f"{few}, dequantised to {dtype}" if dtype else few


def display_names(models: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The name of each model in figures: short, with the format of its weights.

    Names that would become alike stay as they are.

    >>> models = {"Qwen2.5-Coder-1.5B-Instruct-Q4_K_M": {"stored": "Q4_K_M"}, "org/my-model": {}}
    >>> list(display_names(models).values())
    ['Qwen2.5-Coder-1.5B (Q4_K_M)', 'my-model']
    >>> display_names({"sparse:smollm2-135m-q4": {"stored": "Q4_1"}})["sparse:smollm2-135m-q4"]
    'sparse SmolLM2-135M (Q4_1)'
    """
    short = {name: _short(name, str(facts.get("stored") or "")) for name, facts in models.items()}
    twice = [label for label in short.values() if list(short.values()).count(label) > 1]
    return {name: name if label in twice else label for name, label in short.items()}


def _short(name: str, stored: str) -> str:
    kind, _, own = name.rpartition(":")
    if own in BUNDLED:
        own = BUNDLED[own].source
    named = re.fullmatch(r"[\w.:/-]+/([\w.-]+)", own)  # a hub id or address: its end
    own = named[1] if named else own
    end = re.search(r"[-_.](I?Q\d\w*)$", own, re.IGNORECASE)
    if end and stored and stored.lower().startswith(end[1].lower()):
        own = own[: end.start()]
    own = re.sub(r"[-_]instruct$", "", own, flags=re.IGNORECASE)
    return " ".join(filter(None, [kind, own, f"({stored})" if stored else ""]))


def by_size(models: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The names of models in order of size; those of unknown or equal size in the given order."""
    return sorted(models, key=lambda name: int(models[name].get("parameters") or 0))


def about_models(models: Mapping[str, Mapping[str, Any]], names: Iterable[str] = ()) -> str:
    """What every caption says of its models: name, number of heads, and weights.

    >>> facts = {"heads": [14] * 24, "stored": "Q4_K_M", "dtype": "bfloat16"}
    >>> about_models({"Qwen2.5-Coder-0.5B-Instruct-Q4_K_M": facts})
    'Qwen2.5-Coder-0.5B-Instruct-Q4_K_M, 336 heads, 4-bit weights (Q4_K_M), dequantised to bfloat16'
    """
    chosen = {name: models[name] for name in names or models}
    return "; ".join(
        f"{name}, {sum(facts.get('heads', []))} heads, {weights_in_words(facts)}"
        for name, facts in chosen.items()
    )
