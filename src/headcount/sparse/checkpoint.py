"""Sparse models on disk: adapters and one JSON file, or a whole model and that file.

    sparse.json                 base model, gate bias, checksums, how it was trained and on what
    adapters-1.safetensors …    NAME.down and NAME.up for every adapted layer, in bfloat16

Adapters are merged into the base model's weights when it is loaded, so that a sparse model is an
ordinary one with another attention kernel.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.errors import HeadcountError, did_you_mean
from headcount.models.load import SPARSE_FACTS as FACTS
from headcount.system.files import to_json

FORMAT = 1
SHARD_BYTES = 15 << 20  # some places take no larger files
SHIPPED = Path(__file__).resolve().parents[1] / "sparse" / "models"
DTYPE = torch.bfloat16  # of adapters on disk


@dataclass(frozen=True)
class SparseFacts:
    """What sparse.json says. Without a base, the whole model lies beside it."""

    base: str | None
    gate_bias: float
    scale: float = 1.0  # of the adapters
    shards: Mapping[str, str] = field(default_factory=dict)  # file → sha256
    training: Mapping[str, Any] = field(default_factory=dict)
    text: Mapping[str, Any] = field(default_factory=dict)  # source, licence, attribution
    base_weights: str = ""  # the base's fingerprint: adapters fit no other weights
    format: int = FORMAT


def write_facts(folder: Path, facts: SparseFacts) -> None:
    """Write sparse.json, last of all: without it a folder is no sparse model."""
    (folder / FACTS).write_text(to_json(asdict(facts)) + "\n", encoding="utf-8")


def read_facts(folder: Path) -> SparseFacts:
    """Read sparse.json."""
    try:
        facts = SparseFacts(**json.loads((folder / FACTS).read_text("utf-8")))
        float(facts.gate_bias), float(facts.scale), dict(facts.shards)
    except (TypeError, ValueError) as error:
        raise HeadcountError(
            f"{folder / FACTS} is damaged, or of another version of headcount ({error})."
        ) from error
    if facts.format != FORMAT:
        raise HeadcountError(f"{folder} was made by a newer headcount: update yours.")
    return facts


def write_adapters(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Write adapters as files of at most SHARD_BYTES; returns their checksums by name."""
    from safetensors.torch import save_file

    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu", DTYPE).contiguous()
        if size + tensor.nbytes > SHARD_BYTES and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    made = {}
    for number, shard in enumerate(shards, 1):
        path = folder / f"adapters-{number}.safetensors"
        save_file(shard, path)
        path.chmod(0o644)  # safetensors writes for its owner alone
        made[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return made


def read_adapters(folder: Path, facts: SparseFacts) -> dict[str, Tensor]:
    """Read adapters, each file checked against its checksum."""
    from safetensors.torch import load

    tensors: dict[str, Tensor] = {}
    for name, digest in facts.shards.items():
        if Path(name).name != name:
            raise HeadcountError(f"{folder / FACTS} names a file outside its folder ({name}).")
        try:
            data = (folder / name).read_bytes()
        except OSError as error:
            raise HeadcountError(f"{folder} lacks {name}: copy it again, whole.") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise HeadcountError(
                f"{folder / name} is damaged, or not the file it should be (its checksum differs): "
                "copy it again."
            )
        tensors |= load(data)
    return tensors


def shipped_folder(name: str) -> Path:
    """The folder of a sparse model that comes with headcount."""
    folder = SHIPPED / name
    if name and (folder / FACTS).exists():
        return folder
    known = sorted(p.parent.name for p in SHIPPED.glob(f"*/{FACTS}"))
    here = f"those that do: {', '.join(known)}" if known else "none does so far"
    raise HeadcountError(
        f'No sparse model "{name}" comes with this version of headcount ({here}): make one with '
        f"headcount sparsify, and give its folder.{did_you_mean(name, known)}"
    )
