"""What the weights of a model are, in words, as every page that shows it must say."""

from __future__ import annotations

import re

from headcount.models.bundled import BUNDLED, full_name
from headcount.models.model import Model


def weights_in_words(model: Model) -> str:
    """The precision of the weights, and whether they were dequantised from fewer bits."""
    dtype = str(model.dtype).removeprefix("torch.")
    spec = full_name(str((model.origin or {}).get("spec", model.name))).rpartition(":")[2]
    file = BUNDLED[spec].member if spec in BUNDLED else spec
    found = re.search(r"(I?Q(\d)\w*)\.gguf$", file, re.IGNORECASE)
    if found is None:
        return dtype
    return f"weights of a {found[2]}-bit file ({found[1].upper()}), dequantised to {dtype}"
