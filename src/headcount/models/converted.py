"""GGUF files, each converted once: reading one takes a minute, safetensors take seconds."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headcount.models.gguf import read_gguf, read_header
from headcount.models.load_errors import check_report
from headcount.system.bundled import (
    CONVERSION,
    is_complete,
    is_disk_full,
    made_once,
    models_dir,
    say,
)
from headcount.system.files import canonical, digest, safe_name
from headcount.system.fingerprint import fingerprint_files
from headcount.system.paths import CacheFolderError
from headcount.system.transformers_compat import quiet_transformers

SWITCH = "HEADCOUNT_GGUF_CACHE"


def converted_folder(path: Path, dtype: str) -> Path | None:
    """The folder in the cache that holds the model of a GGUF file; None where none can be kept.

    It belongs to the content of the file, to the dtype, in which the weights were dequantised, and
    to the versions of transformers and gguf, which read the file: a model from the cache equals one
    that was read from the file.
    """
    if os.environ.get(SWITCH) == "off":
        return None
    import transformers

    header = read_header(path)
    size = header.numbers * (2 if dtype in ("float16", "bfloat16") else 4)
    name = f"{safe_name(path.stem).lstrip('.')[:45]}.gguf"
    try:
        parent = models_dir()
        file = fingerprint_files([path])
        readers = {"transformers": transformers.__version__, "gguf": version("gguf")}
        source = {"file": file, "dtype": dtype, **readers}
        folder = parent / f"{name}-{digest(canonical(source))[:12]}-{CONVERSION}"
        if not is_complete(folder):
            say(
                f"Converting {path.name} once, to {size / 1e9:.1f} GB in {parent} (headcount cache "
                f"clear {name} removes it) …"
            )
        # As much again stays free: a cache must not fill a disk.
        return made_once(folder, 2 * size, lambda _, made: convert_gguf(path, made, dtype) | source)
    except Exception as error:
        if (reason := _why_not_kept(error)) is None:
            raise
        say(f"{path.name} is converted again at every load: {reason} ({SWITCH}=off: never keep).")
        return None


def convert_gguf(path: Path, folder: Path, dtype: str) -> dict[str, Any]:
    """Save model and tokenizer of a GGUF file to a folder; return the names of unused weights."""
    import torch

    kind = "auto" if dtype == "auto" else getattr(torch, dtype)
    model, tokenizer, report = read_gguf(path, dtype=kind)
    unused = check_report(str(path), report)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return {"model": path.name, "unused": unused}


def restore_rules(tokenizer: Any, folder: Path) -> None:
    """Let a tokenizer from the cache split texts as the one that was saved did.

    Some classes replace the rules in the file by their own when they are loaded.
    """
    from tokenizers import Tokenizer

    saved = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        setattr(tokenizer.backend_tokenizer, name, getattr(saved, name))


def _why_not_kept(error: Exception) -> str | None:
    """Why the cache cannot keep a model; None if the error has another cause."""
    if isinstance(error, CacheFolderError):
        return "there is no cache folder"
    if is_disk_full(error):
        return f"there is no room for it under {models_dir()}"
    if isinstance(error, NotImplementedError):  # filelock, on some network disks
        return f"the disk of {models_dir()} does not support file locks"
    if isinstance(error, OSError) and error.errno is not None:
        return f"it cannot be kept in {models_dir()} ({error.strerror})"
    return None
