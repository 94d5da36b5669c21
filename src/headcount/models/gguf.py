"""Read a GGUF file as an ordinary model with dequantised weights."""

from __future__ import annotations

import copy
import functools
import math
import struct
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from headcount.errors import HeadcountError
from headcount.system.transformers_compat import quiet_transformers, replaced

# Pre-tokenizers that split off every digit; transformers uses GPT-2's instead, which does not.
SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}


def read_gguf(path: Path, **options: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return model, tokenizer and loading report of a GGUF file; `options` go to transformers.

    The weights are dequantised, which keeps their values: quantised weights would need kernels from
    the hub.
    """
    import gguf
    import transformers

    header = read_header(path).settings
    if hasattr(transformers, "GgufConfig"):  # older versions always dequantise
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    kernels = "transformers.integrations.gguf.kernels"
    # transformers reads the vocabulary three times, each time for most of a minute.
    reader = functools.cache(gguf.GGUFReader)
    with (
        quiet_transformers(),
        replaced(kernels, "kernelize_ggml_layers", lambda model: None),
        replaced("gguf", "GGUFReader", reader),
    ):
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, output_loading_info=True, **options
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(path.parent), gguf_file=path.name
        )
    model, report = loaded
    forget_quantiser(model)
    check_shapes(model, path)
    if header.get("tokenizer.ggml.pre") in SINGLE_DIGITS:
        split_digits(tokenizer)
    # Without the flag, a SentencePiece vocabulary begins with BOS, as llama.cpp has it.
    sentencepiece = True if header.get("tokenizer.ggml.model") == "llama" else None
    add_bos = header.get("tokenizer.ggml.add_bos_token", sentencepiece)
    if isinstance(add_bos, bool):
        begin_with_bos(tokenizer, add_bos)
    return model, tokenizer, report


def check_shapes(model: Any, path: Path) -> None:
    """Refuse weights of other shapes than the file's settings give; transformers takes them."""
    import torch

    with torch.device("meta"), quiet_transformers():
        meant = type(model)(copy.deepcopy(model.config)).state_dict()
    for name, weight in model.state_dict().items():
        if name in meant and weight.shape != meant[name].shape:
            shapes = [" × ".join(map(str, t.shape)) for t in (weight, meant[name])]
            raise HeadcountError(
                f"The weights of {path} do not have the shapes that its settings give ({name} is "
                f"{shapes[0]}, not {shapes[1]}): the file lacks a setting, such as the number of "
                "key/value heads (attention.head_count_kv), or has a wrong one."
            )


def forget_quantiser(model: Any) -> None:
    """Let a dequantised model be saved, trained and moved like any other.

    Some versions of transformers mark every model from a GGUF file as quantised, even a dequantised
    one.
    """
    for name in ("hf_quantizer", "quantization_method", "is_quantized"):
        if name in vars(model):
            delattr(model, name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def split_digits(tokenizer: Any) -> None:
    r"""Split off every digit before BPE, so that "\n\n1" is two tokens and not three."""
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])


def begin_with_bos(tokenizer: Any, wanted: bool) -> None:
    """Let texts begin with BOS, or not, as the file says; versions of transformers differ in it.

    A model that was trained with BOS and is asked without it answers nonsense.
    """
    from tokenizers import processors

    bos = tokenizer.bos_token_id
    bare = tokenizer.encode("a", add_special_tokens=False)
    begins = bos is not None and tokenizer.encode("a")[:1] == [bos] and bare[:1] != [bos]
    if bos is None or begins == wanted:
        return
    tokenizer.init_kwargs["add_bos_token"] = wanted
    name = tokenizer.bos_token
    single, pair = (f"{name} $A", f"{name} $A {name}:1 $B:1") if wanted else ("$A", "$A $B:1")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, bos)] if wanted else []
    )


class Header(NamedTuple):
    """The settings of a GGUF file that are texts or truth values, and how many numbers it holds.

    `stored` is the format in which it holds most of them, such as "Q4_K_M".
    """

    settings: dict[str, str | bool]
    numbers: int
    stored: str


def read_header(path: Path) -> Header:
    """The header of a GGUF file: its settings, such as its architecture, and its size.

    A file that is not GGUF, or that ends before its last tensor, is refused. The gguf package does
    not check this, and takes most of a minute to read a large vocabulary.
    """
    damaged = f"The GGUF file {path} is damaged or cut short: download it again."
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise HeadcountError(f"{path} is not a GGUF file: give one, or download it again.")
            header, end = _parse(file)
        if end > path.stat().st_size:
            raise HeadcountError(damaged)
    except OSError as error:
        raise HeadcountError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (struct.error, ValueError, LookupError, OverflowError) as error:
        raise HeadcountError(damaged) from error
    return header


# The `struct` format of each GGUF value type, by its number; type 8 is a text, type 9 a list.
FORMATS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
TEXT, LIST = 8, 9


def _parse(file: BinaryIO) -> tuple[Header, int]:
    """The header, and where in the file the last tensor ends."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType

    def number(form: str) -> Any:
        return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]

    def text() -> str:
        length = number("Q")
        data = file.read(min(length, 1 << 24))  # a damaged length must not fill the memory
        if len(data) != length:
            raise ValueError("text cut short")
        return data.decode("utf-8", errors="replace")

    def value(kind: int) -> Any:
        """Read one setting; a list is skipped."""
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
    formats: Counter[str] = Counter()
    for _ in range(tensors):
        text()
        elements = math.prod(number("Q") for _ in range(number("I")))
        kind = GGMLQuantizationType(number("I"))
        formats[kind.name] += elements
        block, size = GGML_QUANT_SIZES[kind]
        end = max(end, number("Q") + elements // block * size)
    if not end:
        raise ValueError("no tensors")
    (stored, _) = formats.most_common(1)[0]
    mixture = settings.get("general.file_type")  # a mixture of formats has a name of its own
    with suppress(ValueError):
        stored = LlamaFileType(int(mixture)).name.partition("_")[2] if mixture else stored
    alignment = int(settings.get("general.alignment", 32))
    start = -(-file.tell() // alignment) * alignment
    kept = {k: v for k, v in settings.items() if isinstance(v, str | bool)}
    return Header(kept, formats.total(), stored), start + end
