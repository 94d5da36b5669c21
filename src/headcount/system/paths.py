"""Where headcount keeps what it need not compute or fetch twice."""

from __future__ import annotations

import os
from pathlib import Path

from headcount.errors import HeadcountError


def cache_dir() -> Path:
    """HEADCOUNT_CACHE, else the user's cache folder for headcount; made when first asked for."""
    folder = Path(os.environ.get("HEADCOUNT_CACHE") or _usual()).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadcountError(
            f"Cannot make the cache folder {folder} ({error.strerror}): set HEADCOUNT_CACHE to a "
            "folder that can be written."
        ) from error
    return folder


def _usual() -> str:
    # Asked for only where nobody chose: measuring itself needs torch, transformers and NumPy alone.
    try:
        import platformdirs
    except ImportError:
        return os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "headcount")
    return platformdirs.user_cache_dir("headcount", appauthor=False)
