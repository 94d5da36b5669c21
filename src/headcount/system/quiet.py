"""Keep transformers quiet while a model is loaded."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Iterator
from typing import Any

LOGGERS = ("transformers", "huggingface_hub", "accelerate", "peft")


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' load reports and progress bars, and put everything back after.

    What those reports warn of (weights that are missing or do not fit) our callers check
    themselves, and refuse. The bars of hub downloads stay: gigabytes deserve one.
    """
    from transformers.utils import logging as transformers_logging

    empty: Any = transformers_logging.EmptyTqdm
    with contextlib.ExitStack() as stack:
        for name in LOGGERS:
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        previous = transformers_logging.set_tqdm_hook(
            lambda factory, args, kwargs: empty(*args, **kwargs)
        )
        stack.callback(transformers_logging.set_tqdm_hook, previous)
        # The older GGUF reader takes its bar from tqdm directly, past the hook.
        stack.enter_context(
            replaced("transformers.modeling_gguf_pytorch_utils", "tqdm", lambda items, **_: items)
        )
        # A hub repository of pickles must be refused, not sent to a service that converts it.
        stack.enter_context(_environment("DISABLE_SAFETENSORS_CONVERSION", "1"))
        yield


@contextlib.contextmanager
def replaced(module: str, name: str, value: Any) -> Iterator[None]:
    """Put `value` in place of a module's attribute; nothing happens where there is none."""
    try:
        place = importlib.import_module(module)
        before = getattr(place, name)
    except (ImportError, AttributeError):
        yield
        return
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
