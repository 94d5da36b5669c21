"""All that headcount replaces or reads of transformers under names that are not public.

Each piece is put back when its context ends, and does nothing in versions that lack the name.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

CONVERSION = "DISABLE_SAFETENSORS_CONVERSION"
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
        if (before := os.environ.get(CONVERSION)) is None:
            stack.callback(os.environ.pop, CONVERSION, None)
        else:
            stack.callback(os.environ.__setitem__, CONVERSION, before)
        os.environ[CONVERSION] = "1"
        yield


@contextlib.contextmanager
def replaced(module: str, name: str, value: Any) -> Iterator[None]:
    """Put `value` in place of a module's attribute; nothing happens where there is none."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, AttributeError):
            owner = importlib.import_module(module)
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def attention_configs(module: Any) -> list[Any]:
    """The configs of a model and its parts that choose an attention kernel."""
    configs = {id(c): c for part in module.modules() if (c := getattr(part, "config", None))}
    return [c for c in configs.values() if kernel_of(c) is not None]


def kernel_of(config: Any) -> str | None:
    """The attention kernel that a config chooses, as transformers names it."""
    return getattr(config, "_attn_implementation_internal", None)


def set_kernel(config: Any, kernel: str) -> None:
    """Let a config choose this kernel.

    Not by `set_attn_implementation`, which would give all of a model's parts the same one, and
    could not tell afterwards what each of them had.
    """
    config._attn_implementation_internal = kernel


@contextlib.contextmanager
def other_attention(module: Any, choose: Callable[[Any, str], str]) -> Iterator[None]:
    """Run each part with the kernel `choose(config, its own)`; afterwards with its own again."""
    with contextlib.ExitStack() as stack:
        for config in attention_configs(module):
            kernel = str(kernel_of(config))
            stack.callback(set_kernel, config, kernel)
            set_kernel(config, choose(config, kernel))
        yield
