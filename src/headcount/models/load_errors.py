"""Errors of loading a model, each turned into one sentence that says what to do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headcount.errors import HeadcountError
from headcount.models.bundled import BUNDLED
from headcount.system.bundled import is_disk_full

# From a regular expression, which is searched in an error's class names and text, to the sentence
# for the user; the first match counts.
CASES = {
    "GatedRepoError": "{spec} is a gated model: request access on its page, then sign in with "
    "hf auth login.",
    "RevisionNotFoundError": "{spec} has no such revision on the hub: check the branch, tag or "
    "commit.",
    "RepositoryNotFoundError|HFValidationError": 'There is no model "{spec}": it is neither a '
    "bundled name ({bundled}) nor a file or folder nor a model on the hub (for a private model, "
    "sign in with hf auth login).",
    r"cannot be loaded with `safetensors`|adapter_model\.safetensors": "{spec} has no "
    "safetensors, and pickles can run code when they are opened: convert it with save_pretrained, "
    "and give that folder.",
    "LocalEntryNotFoundError|OfflineModeIsEnabled|TransportError|ConnectionError|"
    "couldn't connect to": "Cannot reach the hub, and {spec} is not in its local cache: connect to "
    "the network, or give a folder, a .gguf file or a bundled name ({bundled}).",
    "trust_remote_code": "{spec} brings its own code, which is not run unless you allow it: read "
    "that code, then load the model with trust_remote_code.",
    r"Unrecognized configuration class|'\w+Config' object has no attribute": "{spec} is not a "
    "causal language model, and headcount measures only those.",
    "does not recognize this architecture|Unrecognized model in": "This version of transformers "
    "does not know the architecture of {spec}: update it with pip install -U transformers.",
    "GGUF model with architecture": "transformers cannot read GGUF files of the architecture of "
    "{spec}: give the model as a folder or a hub id instead.",
    "attn|attention": "{spec} does not work with the attention kernel {attention}: choose sdpa or "
    "eager.",
    "ignore_mismatched_sizes": "The weights of {spec} do not have the shapes that its config.json "
    "gives: one of the two belongs to another model.",
    "SafetensorError|JSONDecodeError|UnicodeDecodeError|RecursionError|set_int_max_str_digits": "A "
    "file of {spec} is damaged or cut short: {again}.",
    "OutOfMemoryError|MemoryError": "{spec} does not fit into memory: choose dtype bfloat16, a "
    "device map, or a smaller model.",
}


@contextlib.contextmanager
def plain_errors(spec: str, *, attention: str | None = None) -> Iterator[None]:
    """Turn whatever transformers, the hub or safetensors raise into one sentence."""
    try:
        yield
    except HeadcountError:
        raise
    except Exception as error:
        raise HeadcountError(explain(error, spec, attention)) from error


def explain(error: BaseException, spec: str, attention: str | None = None) -> str:
    """The sentence for a user whose model `spec` could not be loaded because of `error`.

    Libraries wrap each other's errors, so the whole chain of causes is searched.
    """
    chain = list(_chain(error))
    if any(map(is_disk_full, chain)):
        return (
            f"The disk is full: make room for {spec}, or set HF_HOME to a folder on another disk."
        )
    classes = {kind.__name__ for link in chain for kind in type(link).__mro__}
    text = "\n".join([*classes, *map(str, chain)])
    remedy = "clear it from the cache (headcount cache)" if spec in BUNDLED else "download it again"
    names = {"spec": spec, "attention": attention, "again": remedy, "bundled": ", ".join(BUNDLED)}
    for pattern, sentence in CASES.items():
        applies = attention is not None or "{attention}" not in sentence
        if applies and re.search(pattern, text, re.IGNORECASE):
            return sentence.format(**names)
    first_line = (str(error).strip().splitlines() or [""])[0].strip().rstrip(".:")
    return f"Cannot load {spec}: {first_line or type(error).__name__}."


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def check_report(where: str, report: Mapping[str, Any]) -> list[str]:
    """Refuse a checkpoint that lacks weights of the model; return the weights it has in excess.

    transformers would fill missing weights with random numbers, which measurements must not use.
    """
    mismatched = {key[0] for key in report["mismatched_keys"]}
    missing = sorted({*map(str, report["missing_keys"]), *mismatched})
    if missing:
        raise HeadcountError(
            f"{where} lacks weights of its model (missing, or of another shape: "
            f"{shorten(missing)}): download it again, or check that config.json belongs to it."
        )
    return sorted(map(str, report["unexpected_keys"]))


def shorten(names: Iterable[str]) -> str:
    """The first three names, and how many more there are.

    >>> shorten(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    names = list(names)
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
