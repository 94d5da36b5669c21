"""What can go wrong when a model is loaded, each as one sentence that says what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from headcount.errors import HeadcountError
from headcount.models.bundled import BUNDLED, is_disk_full


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
    """Say what `error` means for someone who asked for the model `spec`.

    The libraries wrap each other's errors and tell them apart by their words, so the whole chain of
    causes is looked at.
    """
    chain = list(_chain(error))
    names = {kind.__name__ for link in chain for kind in type(link).__mro__}
    text = " ".join(str(link) for link in chain)
    first = _first_line(str(error)) or type(error).__name__
    again = "clear it from the cache (headcount cache)" if spec in BUNDLED else "download it again"

    if any(map(is_disk_full, chain)):
        return (
            f"The disk is full: make room for {spec}, or set HF_HOME to a folder on another disk."
        )
    if "GatedRepoError" in names:
        return (
            f"The hub gives {spec} only to those who asked: ask for access on its page, then sign "
            "in with hf auth login."
        )
    if "RevisionNotFoundError" in names:
        return f"{spec} has no such revision on the hub: check the branch, tag or commit."
    if names & {"RepositoryNotFoundError", "HFValidationError"}:
        return (
            f'There is no model "{spec}": it is no bundled name ({", ".join(BUNDLED)}), no file or '
            "folder here, and not on the hub, where a private model needs hf auth login."
        )
    if "cannot be loaded with `safetensors`" in text or "adapter_model.safetensors" in text:
        return (
            f"{spec} offers no safetensors, and pickles can run code when they are opened: convert "
            "it first (save_pretrained does), and give that folder."
        )
    if names & OFFLINE or "couldn't connect to" in text:
        return (
            f"Cannot reach the hub, and {spec} is not in its local cache: connect to the network, "
            f"or give a folder, a .gguf file or a bundled name ({', '.join(BUNDLED)})."
        )
    if "trust_remote_code" in text:
        return (
            f"{spec} brings its own code, which is not run unless you allow it: read that code, "
            "then load the model with trust_remote_code."
        )
    if "Unrecognized configuration class" in text:
        return f"{spec} is not a causal language model, and headcount measures only those."
    if "does not recognize this architecture" in text or "Unrecognized model in" in text:
        return (
            f"This version of transformers does not know the architecture of {spec}: update it "
            "with pip install -U transformers."
        )
    if "GGUF model with architecture" in text:
        return (
            f"transformers cannot read GGUF files of the architecture of {spec}: give the model as "
            "a folder or a hub id instead."
        )
    if attention is not None and ("attn" in text.lower() or "attention" in text.lower()):
        return f"{spec} does not work with the attention kernel {attention}: choose sdpa or eager."
    if "ignore_mismatched_sizes" in text:
        return (
            f"The weights of {spec} do not have the shapes that its config.json gives: one of the "
            "two belongs to another model."
        )
    if names & {"SafetensorError", "JSONDecodeError", "UnicodeDecodeError"}:
        return f"A file of {spec} is damaged or cut short: {again}."
    if names & {"OutOfMemoryError", "MemoryError"}:
        return (
            f"{spec} does not fit into memory: choose dtype bfloat16, a device map, or a smaller "
            "model."
        )
    return f"Cannot load {spec}: {first}."


OFFLINE = {
    "LocalEntryNotFoundError",
    "OfflineModeIsEnabled",
    "TransportError",
    "ConnectionError",
}


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _first_line(text: str) -> str:
    """The first line of a long complaint, without its full stop."""
    lines = text.strip().splitlines()
    return lines[0].strip().rstrip(".:") if lines else ""
