"""The choices that a user has when a model is loaded, checked before anything is read."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from headcount.errors import HeadcountError, unknown

DTYPES = ("float32", "bfloat16", "float16", "auto")
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
FLASH_PACKAGES = {
    "flash_attention_2": "flash_attn",
    "flash_attention_3": "flash_attn_interface",
    "flash_attention_4": "flash_attn",
}
# Settings by which a config.json chooses the kernel of its model.
KERNEL_KEYS = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")


@dataclass
class LoadOptions:
    """How a user wants a model to be loaded; what is not available is refused at once.

    `device` defaults to the accelerator of this machine where there is one; `device_map` spreads a
    large model over several devices instead, as accelerate does. `attention` names the kernel
    (sdpa, eager, flash_attention_2, ...). Code that comes with a model is run only with
    `trust_remote_code`.
    """

    dtype: str = "float32"
    device: str | None = None
    device_map: str | Mapping[str, Any] | None = None
    attention: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    for_transformers: dict[str, Any] = field(init=False, repr=False)  # for `from_pretrained`

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise unknown("dtype", str(self.dtype), DTYPES)
        self.for_transformers = {
            "dtype": "auto" if self.dtype == "auto" else getattr(torch, self.dtype),
            **check_placement(self.device, self.device_map),
            **check_attention(self.attention, self.trust_remote_code),
        }


def check_placement(
    device: str | None, device_map: str | Mapping[str, Any] | None
) -> dict[str, Any]:
    """The device map for transformers, which loads weights directly onto their device.

    This needs accelerate; without it, weights are loaded into main memory and moved afterwards.
    """
    if device_map is None:
        target = check_device(device)
        direct = target.type != "cpu" and has_accelerate()
        return {"device_map": {"": target}} if direct else {}
    if device is not None:
        raise HeadcountError("Give either a device or a device map, not both.")
    if isinstance(device_map, Mapping):
        return {"device_map": dict(device_map)}
    if device_map not in DEVICE_MAPS:
        dictionary = "a dictionary from module names to devices"
        raise unknown("device map", device_map, (*DEVICE_MAPS, dictionary))
    return {"device_map": device_map}


def has_accelerate() -> bool:
    """Whether accelerate is installed."""
    return importlib.util.find_spec("accelerate") is not None


def check_device(device: str | None) -> Any:
    """The torch device of this name, if this machine has it; by default its accelerator."""
    available = torch.accelerator.is_available()
    accelerator = torch.accelerator.current_accelerator() if available else None
    if device is None:
        return accelerator or torch.device("cpu")
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise HeadcountError(
            f'"{device}" is not a device: give cpu, cuda, cuda:1 or similar.'
        ) from error
    count = 0 if accelerator is None else torch.accelerator.device_count()
    present = ["cpu", *(f"{accelerator.type}:{i}" for i in range(count) if accelerator)]
    if target.type != "cpu" and f"{target.type}:{target.index or 0}" not in present:
        raise HeadcountError(
            f'This machine has no device "{device}" (it has: {", ".join(present)}).'
        )
    return target


def check_attention(
    attention: str | None, trust_remote_code: bool, where: str = ""
) -> dict[str, Any]:
    """The kernel option for transformers; a kernel from the hub is code that must be trusted.

    `where` names the model whose config.json asks for this kernel, if the user did not.
    """
    if attention is None:
        return {}
    asked = f", which the config of {where} asks for," if where else ""
    instead = "remove it from the config" if where else "choose sdpa or eager"
    if "/" in attention:
        if not trust_remote_code:
            raise HeadcountError(
                f'The attention kernel "{attention}"{asked} is code from the hub: allow it with '
                f"trust_remote_code, or {instead}."
            )
        return {"attn_implementation": attention}
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    known = ["eager", *(name for name in ALL_ATTENTION_FUNCTIONS.valid_keys() if "|" not in name)]
    if attention not in known:
        raise unknown("attention kernel", attention, known)
    package = FLASH_PACKAGES.get(attention)
    # Without the package, transformers would download a kernel, which is code, from the hub.
    if package and importlib.util.find_spec(package) is None and not trust_remote_code:
        raise HeadcountError(
            f"The attention kernel {attention}{asked} needs the package {package}: install it, or "
            f"{instead}."
        )
    return {"attn_implementation": attention}


def kernels_in(config: Any) -> Iterator[str]:
    """The attention kernels that a config, or a part of it, asks for.

    >>> list(kernels_in({"text_config": {"attn_implementation": {"": "a/b"}}, "bos_token": "c/d"}))
    ['a/b']
    """
    for name, value in config.items() if isinstance(config, Mapping) else ():
        if name in KERNEL_KEYS:
            values = value.values() if isinstance(value, Mapping) else [value]
            yield from (kernel for kernel in values if isinstance(kernel, str))
        else:
            yield from kernels_in(value)
