"""Read a GGUF file as an ordinary model: every weight unpacked, nothing left quantised."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, BinaryIO

from headcount.errors import HeadcountError
from headcount.system.transformers_compat import quiet_transformers, replaced

# Text splitting rules by which every digit stands alone; transformers reads GPT-2's in their place.
SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}


def read_gguf(path: Path, **options: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return model, tokenizer and loading report of a GGUF file; `options` go to transformers.

    The weights are dequantised: packed ones would need kernels that are fetched from the hub, and
    the values are the same.
    """
    import transformers

    splitting = read_header(path).get("tokenizer.ggml.pre")
    if hasattr(transformers, "GgufConfig"):  # older versions always dequantise
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    kernels = "transformers.integrations.gguf.kernels"
    with quiet_transformers(), replaced(kernels, "kernelize_ggml_layers", lambda model: None):
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, output_loading_info=True, **options
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(path.parent), gguf_file=path.name
        )
    model, report = loaded
    forget_quantiser(model)
    if splitting in SINGLE_DIGITS:
        split_digits(tokenizer)
    return model, tokenizer, report


def forget_quantiser(model: Any) -> None:
    """Make a dequantised model an ordinary one: one that can be saved, trained and moved.

    Some versions of transformers mark every model out of a GGUF file as quantised, also when no
    weight is.
    """
    for name in ("hf_quantizer", "quantization_method", "is_quantized"):
        if name in vars(model):
            delattr(model, name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def split_digits(tokenizer: Any) -> None:
    r"""Let every digit stand alone before BPE, so that "\n\n1" is two tokens and not three."""
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])


def read_header(path: Path) -> dict[str, str]:
    """What a GGUF file says of itself in words, such as its architecture.

    A file that is no GGUF, or that ends before its last tensor, is refused.

    The gguf package reads whatever is there, and takes most of a minute for a large vocabulary.
    """
    damaged = f"The GGUF file {path} is damaged or cut short: download it again."
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise HeadcountError(f"{path} is not a GGUF file: give one, or download it again.")
            texts, end = _walk(file)
        if end > path.stat().st_size:
            raise HeadcountError(damaged)
    except OSError as error:
        raise HeadcountError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (struct.error, ValueError, LookupError, OverflowError) as error:
        raise HeadcountError(damaged) from error
    return texts


# The formats of `struct` by GGUF's numbers for them; behind 8 and 9 are texts and lists.
FORMATS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
TEXT, LIST = 8, 9


def _walk(file: BinaryIO) -> tuple[dict[str, str], int]:
    """All settings that are texts, and where in the file the last tensor ends."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    def number(form: str) -> Any:
        return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]

    def text() -> str:
        length = number("Q")
        data = file.read(min(length, 1 << 24))  # a damaged length must not fill the memory
        if len(data) != length:
            raise ValueError("text cut short")
        return data.decode("utf-8", errors="replace")

    def value(kind: int) -> Any:
        """One setting; of a list only that it is there."""
        if kind == TEXT:
            return text()
        if kind != LIST:
            return number(FORMATS[kind])
        inner, count = number("I"), number("Q")
        if inner not in (TEXT, LIST):
            return file.seek(count * struct.calcsize(FORMATS[inner]), 1)
        for _ in range(count):
            value(inner)
        return None

    if number("I") not in (2, 3):
        raise ValueError("unknown GGUF version")
    tensors, count = number("Q"), number("Q")
    settings = {text(): value(number("I")) for _ in range(count)}
    end = 0
    for _ in range(tensors):
        text()
        elements = math.prod(number("Q") for _ in range(number("I")))
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(number("I"))]
        end = max(end, number("Q") + elements // block * size)
    if not end:
        raise ValueError("no tensors")
    alignment = int(settings.get("general.alignment", 32))
    start = -(-file.tell() // alignment) * alignment
    return {k: v for k, v in settings.items() if isinstance(v, str)}, start + end
