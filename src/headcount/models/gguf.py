"""Read a GGUF file as an ordinary model: every weight unpacked, nothing left quantised."""

from __future__ import annotations

import struct
from dataclasses import dataclass
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

    header = read_header(path)
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
    if header.splitting in SINGLE_DIGITS:
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


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of itself: its architecture and its rule for splitting text."""

    architecture: str | None
    splitting: str | None


def read_header(path: Path) -> GgufHeader:
    """Read the header, and refuse a file that is no GGUF or that ends before its last tensor.

    The gguf package reads whatever is there, and takes seconds for a large vocabulary.
    """
    damaged = f"The GGUF file {path} is damaged or cut short: download it again."
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise HeadcountError(f"{path} is not a GGUF file: give one, or download it again.")
            values, end = _Reader(file).header()
        if end > path.stat().st_size:
            raise HeadcountError(damaged)
    except OSError as error:
        raise HeadcountError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (struct.error, ValueError, LookupError, OverflowError) as error:
        raise HeadcountError(damaged) from error
    return GgufHeader(values.get("general.architecture"), values.get("tokenizer.ggml.pre"))


class _Reader:
    """Walks over a GGUF header: numbers of fixed size, texts and lists with their length first."""

    # uint8, int8, uint16, int16, uint32, int32, float32, bool, text, list, uint64, int64, float64
    FORMATS = ("B", "b", "H", "h", "I", "i", "f", "?", None, None, "Q", "q", "d")
    TEXT, LIST = 8, 9

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def header(self) -> tuple[dict[str, Any], int]:
        """All settings that are texts, and where in the file the last tensor ends."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        if self.number("I") not in (2, 3):
            raise ValueError("unknown GGUF version")
        tensors, settings = self.number("Q"), self.number("Q")
        values = {}
        alignment = 32
        for _ in range(settings):
            key = self.text()
            value = self.value(self.number("I"))
            if key == "general.alignment":
                alignment = int(value)
            if isinstance(value, str):
                values[key] = value
        end = 0
        for _ in range(tensors):
            self.text()
            elements = 1
            for _ in range(self.number("I")):
                elements *= self.number("Q")
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(self.number("I"))]
            end = max(end, self.number("Q") + elements // block * size)
        if not end:
            raise ValueError("no tensors")
        return values, -(-self.file.tell() // alignment) * alignment + end

    def value(self, kind: int) -> Any:
        """One setting; of a list only that it is there."""
        if kind == self.TEXT:
            return self.text()
        if kind != self.LIST:
            return self.number(self.FORMATS[kind] or "")
        inner, count = self.number("I"), self.number("Q")
        if inner in (self.TEXT, self.LIST):
            for _ in range(count):
                self.value(inner)
        else:
            self.file.seek(count * struct.calcsize(self.FORMATS[inner] or ""), 1)
        return None

    def text(self) -> str:
        """A text: its length in bytes, then those bytes."""
        length = self.number("Q")
        data = self.file.read(min(length, 1 << 24))  # a damaged length must not fill the memory
        if len(data) != length:
            raise ValueError("text cut short")
        return data.decode("utf-8", errors="replace")

    def number(self, form: str) -> Any:
        """A number in this format of `struct`."""
        size = struct.calcsize(f"<{form}")
        return struct.unpack(f"<{form}", self.file.read(size))[0]
