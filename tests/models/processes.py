"""What other processes do to the cache; they start fast because torch is not imported here."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from headcount.models import bundled
from headcount.system.bundled import BundledModel
from headcount.system.fingerprint import fingerprint_files


def build_in_process(model: BundledModel, start: Any, results: Any) -> None:
    """Ask for a model at the same moment as another process does; conversion takes its time."""
    conversions = 0

    def slow(gguf: Path, folder: Path) -> None:
        nonlocal conversions
        conversions += 1
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())
        time.sleep(0.5)
        (folder / "config.json").write_text("{}")

    bundled._convert = slow
    bundled.BUNDLED[model.name] = model
    start.wait()
    folder = bundled.bundled_folder(model.name)
    weights = (folder / "model.safetensors").read_bytes()
    results.put((conversions, hashlib.sha256(weights).hexdigest()))


def die_while_converting(model: BundledModel) -> None:
    """A process that is killed with the conversion half done."""

    def half_done(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        os._exit(9)

    bundled.BUNDLED[model.name] = model
    bundled._convert = half_done
    bundled.bundled_folder(model.name)


def remember_files(paths: list[str]) -> None:
    """Fingerprint files one by one, so that the memory of them is written often."""
    for path in paths:
        fingerprint_files([path])
