"""Everything that headcount reads or replaces in transformers under private names.

Each replacement is undone when its context ends, and does nothing in versions that lack the name.
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
# Arguments with which models change attention scores, which none of our kernels computes.
CHANGED_SCORES = ("softcap", "s_aux", "position_bias")


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' load reports and progress bars inside this context.

    The reports warn of missing or mismatched weights, which headcount checks itself. The bars of
    hub downloads stay, because these may take minutes.
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
        # The older GGUF reader uses tqdm directly, which the hook does not reach.
        stack.enter_context(
            replaced("transformers.modeling_gguf_pytorch_utils", "tqdm", lambda items, **_: items)
        )
        # transformers must not ask the hub's service to convert pickles: headcount refuses them.
        if (before := os.environ.get(CONVERSION)) is None:
            stack.callback(os.environ.pop, CONVERSION, None)
        else:
            stack.callback(os.environ.__setitem__, CONVERSION, before)
        os.environ[CONVERSION] = "1"
        yield


@contextlib.contextmanager
def replaced(module: str, name: str, value: Any) -> Iterator[None]:
    """Replace a module's attribute by `value` in this context, if the attribute exists."""
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
    """The name of the attention kernel that a config chooses."""
    return getattr(config, "_attn_implementation_internal", None)


def attention_function(kernel: str) -> Any:
    """The function that is registered for an attention kernel; None for those inside models."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return dict(ALL_ATTENTION_FUNCTIONS).get(kernel)


def set_kernel(config: Any, kernel: str) -> None:
    """Let a config choose this kernel.

    `set_attn_implementation` would change all parts of a model at once, and their former kernels
    would be lost.
    """
    config._attn_implementation_internal = kernel


@contextlib.contextmanager
def other_attention(module: Any, choose: Callable[[Any, str], str]) -> Iterator[None]:
    """Run each part of a model with the kernel `choose(config, kernel)` inside this context."""
    with contextlib.ExitStack() as stack:
        for config in attention_configs(module):
            kernel = str(kernel_of(config))
            stack.callback(set_kernel, config, kernel)
            set_kernel(config, choose(config, kernel))
        yield
