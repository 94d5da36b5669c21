"""The cache folder, for everything that headcount should not compute or download twice."""

from __future__ import annotations

import os
from pathlib import Path

from headcount.errors import HeadcountError


class CacheFolderError(HeadcountError):
    """The cache folder cannot be created."""


def cache_dir() -> Path:
    """HEADCOUNT_CACHE, or else headcount's folder in the user's cache; created on first use."""
    folder = Path(os.environ.get("HEADCOUNT_CACHE") or _default()).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheFolderError(
            f"Cannot create the cache folder {folder} ({error.strerror}): set HEADCOUNT_CACHE to a "
            "folder that you may write to."
        ) from error
    return folder


def _default() -> str:
    # platformdirs is optional: measuring needs only torch, transformers and NumPy.
    try:
        import platformdirs
    except ImportError:
        return os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "headcount")
    return platformdirs.user_cache_dir("headcount", appauthor=False)
