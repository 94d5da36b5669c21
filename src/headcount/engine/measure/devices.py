"""How long work takes on machines that are not at hand, by rates that were measured there.

`devices.json` is made of committed results by `benchmarks/devices.py`: seconds per token in
bfloat16, for random weights in published shapes. Between two sizes of a model a rate is
interpolated. What was not measured on a machine, or only for much smaller or larger models or
another number format, is called not measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import torch

from headcount.engine.measure.rates import Kind
from headcount.models.model import Model
from headcount.system.progress import duration

MEMORY = {"NVIDIA H100": 80, "NVIDIA H200": 141}  # GB, by their data sheets
HALF = (torch.bfloat16, torch.float16)  # both run at the rate of bfloat16, the one measured
BEYOND = 1.25  # how far a model's size may lie outside the measured sizes


@cache
def measured() -> tuple[dict[str, Any], ...]:
    """The table of rates."""
    text = (files("headcount.engine.measure") / "devices.json").read_text("utf-8")
    return tuple(json.loads(text))


def rate(device: str, kind: Kind, parameters: int) -> float:
    """Seconds per token on a device; NaN if that was not measured.

    >>> rate("NVIDIA H200", "passes", 8_030_000_000) < 1e-4, rate("NVIDIA H100", "passes", 10**9)
    (True, nan)
    """
    known = {
        row["parameters"]: row["seconds_per_token"]
        for row in measured()
        if (row["device"], row["kind"]) == (device, kind)
    }
    sizes = sorted(known)
    if not sizes or not sizes[0] / BEYOND <= parameters <= sizes[-1] * BEYOND:
        return math.nan
    below = max([size for size in sizes if size <= parameters], default=sizes[0])
    above = min([size for size in sizes if size >= parameters], default=sizes[-1])
    share = 0.0 if above == below else math.log(parameters / below) / math.log(above / below)
    return float(known[below] ** (1 - share) * known[above] ** share)


@dataclass(frozen=True)
class Elsewhere:
    """The work on one machine: what was measured of it, what was not, and the weights in GB."""

    device: str
    seconds: float
    unknown: tuple[str, ...]
    gigabytes: float

    def to_json(self) -> dict[str, Any]:
        """The numbers as a JSON object."""
        return {
            "seconds": self.seconds,
            "not measured": list(self.unknown),
            "weights_gb": self.gigabytes,
            "memory_gb": MEMORY[self.device],
        }

    def __str__(self) -> str:
        known = f"about {duration(self.seconds)}" if self.seconds else ""
        missing = f"{' and '.join(self.unknown)} not measured there" if self.unknown else ""
        time = f"{known} ({missing})" if known and missing else known or missing
        return (
            f"On one {self.device}: {time}; weights {self.gigabytes:.3g} GB of "
            f"{MEMORY[self.device]} GB."
        )


def elsewhere(work: Sequence[tuple[Model, Kind, int]]) -> list[Elsewhere]:
    """What this work, as models, kinds and tokens, takes on each known machine."""
    models = {id(model): model for model, _, _ in work}
    weights = sum(
        p.numel() * p.element_size() for m in models.values() for p in m.module.parameters()
    )
    found = []
    for device in MEMORY:
        seconds, unknown = 0.0, dict[str, None]()
        for model, kind, tokens in work:
            size = sum(p.numel() for p in model.module.parameters())
            each = rate(device, kind, size) if model.dtype in HALF else math.nan
            if math.isnan(each):
                unknown[kind if model.dtype in HALF else f"{kind} in {_name(model)}"] = None
            else:
                seconds += each * tokens
        found.append(Elsewhere(device, seconds, tuple(unknown), weights / 1e9))
    return found


def _name(model: Model) -> str:
    return str(model.dtype).removeprefix("torch.")
