"""What a worker must be and hold before it is given work: the same versions, the same model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.engine.measure.plan import MEASUREMENT
from headcount.errors import HeadcountError
from headcount.models.bundled import BUNDLED
from headcount.models.fast_paths import ShortCuts
from headcount.models.model import Model
from headcount.system.files import canonical, digest

WORDS = {
    "headcount": "headcount",
    "measurement": "measurement version",
    "torch": "torch",
    "transformers": "transformers",
}
PARTS = {
    "weights": "another model file",
    "tokenizer": "another tokenizer",
    "dtype": "another dtype",
    "device": "another kind of device",
    "kernel": "another attention kernel",
}


@dataclass(frozen=True)
class Order:
    """How to load a model, and by what to know that it is the right one.

    Its short cuts are proven once, here: for the same weights and versions they hold there too.
    """

    name: str
    options: Mapping[str, Any]
    identity: Mapping[str, str]
    short_cuts: ShortCuts

    @property
    def key(self) -> str:
        """What workers remember it by."""
        return digest(canonical({"options": repr(sorted(self.options.items())), **self.identity}))


def order_for(model: Model) -> Order:
    """The order that makes a worker hold this model."""
    if model.origin is None:
        raise HeadcountError(
            f"{model.name} was wrapped in memory, and workers can only load a model by themselves: "
            "save it and use load_model, or measure without a cluster."
        )
    options = dict(model.origin)
    path = Path(options["spec"]).expanduser()
    if options["spec"] not in BUNDLED and path.exists():
        options["spec"] = str(path.resolve())  # a worker may stand in another folder
    if options["device_map"] is None:
        options["device"] = model.device.type  # a worker sees its own GPU as the first
    return Order(model.name, options, dict(model.identity), model.short_cuts)


def facts() -> dict[str, str]:
    """The versions that determine a value."""
    import torch
    import transformers

    import headcount

    return {
        "headcount": headcount.__version__,
        "measurement": str(MEASUREMENT),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def version_refusal(where: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """What is wrong with a worker's versions, in one sentence; None where nothing is.

    >>> version_refusal("node7", {"torch": "2.11.0"}, {"torch": "2.13.0"})
    'The worker on node7 has torch 2.11.0 (here 2.13.0): install the same versions there.'
    """
    wrong = [
        f"{WORDS.get(name, name)} {theirs.get(name, 'none')} (here {version})"
        for name, version in ours.items()
        if theirs.get(name) != version
    ]
    if not wrong:
        return None
    return f"The worker on {where} has {' and '.join(wrong)}: install the same versions there."


def model_refusal(where: str, order: Order, identity: Mapping[str, str]) -> str | None:
    """What is wrong with the model that a worker has loaded, in one sentence."""
    wrong = [
        f"{PARTS[name]} ({identity.get(name, 'none')[:12]}, here {value[:12]})"
        for name, value in order.identity.items()
        if identity.get(name) != value
    ]
    if not wrong:
        return None
    return (
        f"The worker on {where} has {' and '.join(wrong)} for {order.name}: give every machine the "
        "same model."
    )
