"""Sparse models on disk: adapters and one JSON file, or a whole model and that file.

    sparse.json                 base model, gate bias, checksums, how it was trained and on what
    adapters-1.safetensors …    NAME.down and NAME.up for every adapted layer, in bfloat16

Adapters are merged into the base model's weights on loading, so that a sparse model is an ordinary
model with another attention kernel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError, did_you_mean
from headcount.models.load import Loaded, load_folder, load_spec
from headcount.models.load_errors import plain_errors
from headcount.models.load_options import LoadOptions
from headcount.sparse.make_sparse import gate_bias, make_sparse
from headcount.sparse.tunable import merge
from headcount.system.files import digest, file_digest, replacing, write_json
from headcount.system.fingerprint import fingerprint_files

FACTS = "sparse.json"
FORMAT = 1
SHARD_BYTES = 15 << 20  # some hosts do not accept larger files
SHIPPED = Path(__file__).resolve().parent / "models"
DTYPE = torch.bfloat16  # the number format of adapters on disk


@dataclass(frozen=True)
class SparseFacts:
    """The content of sparse.json. Without a base, the folder holds the whole model."""

    base: str | None
    gate_bias: float
    scale: float = 1.0  # factor of the adapters: alpha / rank
    shards: Mapping[str, str] = field(default_factory=dict)  # file → sha256
    training: Mapping[str, Any] = field(default_factory=dict)
    text: Mapping[str, Any] = field(default_factory=dict)  # source, licence, attribution
    base_weights: str = ""  # fingerprint of the base model: adapters fit only these weights
    format: int = FORMAT


def write_facts(folder: Path, facts: SparseFacts) -> None:
    """Write sparse.json; the caller writes it last, since it marks a folder as a sparse model."""
    write_json(folder / FACTS, asdict(facts))


def read_facts(folder: Path) -> SparseFacts:
    """Read sparse.json."""
    try:
        facts = SparseFacts(**json.loads((folder / FACTS).read_text("utf-8")))
        float(facts.gate_bias), float(facts.scale), dict(facts.shards)
    except (TypeError, ValueError, RecursionError) as error:
        raise HeadcountError(
            f"{folder / FACTS} is damaged or of another version: copy it again."
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
    checksums = {}
    for number, shard in enumerate(shards, 1):
        path = folder / f"adapters-{number}.safetensors"
        with replacing(path) as temporary:
            save_file(shard, temporary)
        checksums[path.name] = file_digest(path)
    return checksums


def read_adapters(folder: Path, facts: SparseFacts) -> dict[str, Tensor]:
    """Read adapters, each file checked against its checksum."""
    from safetensors.torch import load

    tensors: dict[str, Tensor] = {}
    for name, checksum in facts.shards.items():
        if Path(name).name != name:
            raise HeadcountError(f"{folder / FACTS} names a file outside its folder ({name}).")
        try:
            data = (folder / name).read_bytes()
        except OSError as error:
            raise HeadcountError(f"{folder} lacks {name}: copy the whole folder again.") from error
        if digest(data) != checksum:
            raise HeadcountError(
                f"{folder / name} is damaged or another file (its checksum differs): copy it again."
            )
        tensors |= load(data)
    return tensors


def named_folder(name: str) -> Path:
    """The folder of a sparse model that comes with headcount."""
    folder = SHIPPED / name
    if name and (folder / FACTS).exists():
        return folder
    known = sorted(p.parent.name for p in SHIPPED.glob(f"*/{FACTS}"))
    listed = ", ".join(known) or "none"
    raise HeadcountError(
        f'No sparse model "{name}" comes with this version of headcount (known: {listed}): make '
        f"one with headcount sparsify, and give its folder.{did_you_mean(name, known)}"
    )


def load(folder: Path, options: LoadOptions, spec: str) -> Loaded:
    """Load a sparse model: its base model with the adapters merged in, or the whole model."""
    if options.attention is not None:
        raise HeadcountError(
            f"{folder} is a sparse model, which has its own attention kernel: leave the option "
            "attention out."
        )
    facts = read_facts(folder)
    if facts.base is None:
        loaded = load_folder(folder, options)
    else:
        with plain_errors(facts.base):  # errors name the base model, not the sparse one
            loaded = load_spec(facts.base, replace(options, revision=None))
        known = facts.base_weights and loaded.files is not None
        if known and fingerprint_files(loaded.files or ()) != facts.base_weights:
            raise HeadcountError(
                f"The sparse model in {folder} belongs to other weights of {facts.base}: load the "
                "version of that model which it was made from."
            )
        merge(loaded.model, read_adapters(folder, facts), facts.scale)
    make_sparse(loaded.model.eval(), facts.gate_bias)
    if loaded.files is not None:
        loaded.files += [*(folder / shard for shard in facts.shards), folder / FACTS]
    # A model that comes with headcount keeps its short name; others are named by their folder.
    loaded.name = folder.resolve().name if Path(spec).expanduser().exists() else spec
    return loaded


def export(module: nn.Module, written: nn.Module, folder: Path) -> None:
    """Make the exported copy of a sparse model, in `folder`, sparse too."""
    bias = gate_bias(module)
    if bias is not None:
        write_facts(folder, SparseFacts(base=None, gate_bias=bias))
        make_sparse(written, bias)
