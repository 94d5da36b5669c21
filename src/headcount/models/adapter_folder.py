"""A folder of adapters, one for each head set, and the index that says which is which."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, gates_by_label
from headcount.models.adapter import (
    MAX_RANK,
    check_adapter,
    check_rank,
    low_rank_parts,
    write_adapter,
)
from headcount.models.bundled import BUNDLED, bundled_folder
from headcount.models.export import new_folder
from headcount.models.load import ADAPTER
from headcount.models.model import Model, check_model
from headcount.models.sites import is_unloaded, plain
from headcount.system.files import checked_path, digest, safe_name
from headcount.system.progress import progress as progress_bar

INDEX = "head-sets.jsonl"
FORMAT = "headcount adapters 1"
SERVED_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM takes as --max-lora-rank


@dataclass(frozen=True, eq=False)
class Adapter:
    """One adapter of a folder: its name, which is also that of its folder, and its head set.

    `error` is its relative difference from the gates, as it was measured when it was written: of
    the logits or, if the model was not loaded, of the weights (`compared`).
    """

    name: str
    gates: Float[np.ndarray, "heads"] = field(repr=False)
    rank: int
    error: float
    compared: str


@dataclass(frozen=True, eq=False)
class AdapterFolder:
    """The adapters of one model in a folder.

    `base` is the name of the model as engines know it. The index has one line for each adapter,
    with all gates that are not 1; a line counts if its folder is there.
    """

    path: Path
    base: str
    layout: HeadLayout
    adapters: dict[str, Adapter] = field(default_factory=dict)
    _by_gates: dict[bytes, Adapter] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: str | Path) -> AdapterFolder:
        """Read the index of a folder."""
        path = checked_path(path)
        try:
            lines = (path / INDEX).read_text("utf-8").splitlines()
            head, *rows = [json.loads(line) for line in lines if line.strip()]
            if head["format"] != FORMAT:
                raise ValueError(head["format"])
            folder = cls(path, str(head["base"]), HeadLayout(tuple(head["heads_per_layer"])))
            for row in rows:
                folder._enter(row)
        except OSError as error:
            raise HeadcountError(
                f"{path} holds no {INDEX}: give a folder that headcount export --as adapter wrote."
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HeadcountError(
                f"{path / INDEX} is not an index of adapters that this version reads: export them "
                "again."
            ) from error
        return folder

    @classmethod
    def of(cls, path: str | Path, model: Model, base: str = "") -> AdapterFolder:
        """The folder for a model's adapters: a new one, or one with adapters of the same model."""
        path, base = checked_path(path), base or base_name(model)
        if not (path / INDEX).exists():
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise HeadcountError(
                    f"{path} exists, and is neither empty nor a folder of adapters: choose "
                    "another name."
                )
            return cls(path, base, model.layout)
        folder = cls.open(path)
        if (folder.base, folder.layout) != (base, model.layout):
            raise HeadcountError(
                f"{path} holds adapters of {folder.base} ({folder.layout}), not of {base} "
                f"({model.layout}): choose another folder."
            )
        return folder

    def _enter(self, row: Mapping[str, Any]) -> None:
        gates = np.ones(self.layout.total, dtype=np.float32)
        for head, gate in row["gates"].items():
            gates[self.layout.number(self.layout.parse(head))] = gate
        name = str(row["name"])
        if name == safe_name(name) and (self.path / name / ADAPTER).exists():
            facts = int(row["rank"]), float(row["error"]), str(row["compared"])
            adapter = Adapter(name, gates, *facts)
            self.adapters[name] = self._by_gates[gates.tobytes()] = adapter

    def named(self, gates: Float[np.ndarray, "heads"]) -> Adapter | None:
        """The adapter of a head set, if there is one."""
        return self._by_gates.get((np.asarray(gates, dtype=np.float32) + 0).tobytes())

    def add(self, model: Model, name: str, gates: Float[np.ndarray, "heads"], most: int) -> Adapter:
        """Write the adapter of a head set, unless it is there; it is checked before it counts."""
        gates = np.asarray(gates, dtype=np.float32) + 0
        known = self.adapters.get(name)
        if known is not None and np.array_equal(known.gates, gates):
            return known
        if known is not None or (self.path / name).exists():
            raise HeadcountError(
                f"{self.path / name} holds another adapter: give the head set another name."
            )
        given = torch.from_numpy(gates)
        rank = check_rank(model, given, name, most)
        with new_folder(self.path / name) as made:
            write_adapter(made, model, low_rank_parts(model, given), self.base)
            error = check_adapter(made, model, given)
            changed = {
                str(self.layout.head(n)): float(gates[n])
                for n in np.flatnonzero(gates != 1).tolist()
            }
            compared = "weights" if is_unloaded(model.module) else "logits"
            row = {"name": name, "rank": rank, "error": error, "compared": compared}
            row["gates"] = changed
            counts = list(self.layout.counts)
            head = {"format": FORMAT, "base": self.base, "heads_per_layer": counts}
            lines = [row] if (self.path / INDEX).exists() else [head, row]
            with (self.path / INDEX).open("a", encoding="utf-8") as index:
                index.writelines(f"{json.dumps(line)}\n" for line in lines)
        self._enter(row)
        return self.adapters[name]

    @property
    def rank(self) -> int:
        """The largest rank, which an engine must allow."""
        return max((adapter.rank for adapter in self.adapters.values()), default=0)

    @property
    def served_rank(self) -> int:
        """The smallest --max-lora-rank of vLLM that holds all adapters."""
        return next((rank for rank in SERVED_RANKS if rank >= self.rank), self.rank)


def base_name(model: Model) -> str:
    """The name by which engines load the model: a hub id, or the absolute path of its folder."""
    spec = str((model.origin or {}).get("spec", model.name))
    if spec in BUNDLED:
        return str(bundled_folder(spec).resolve())
    with suppress(OSError):
        if Path(spec).expanduser().exists():
            return str(Path(spec).expanduser().resolve())
    return spec


def adapter_name(label: Any, gates: Float[np.ndarray, "heads"], layout: HeadLayout) -> str:
    """A name for the adapter of a head set, from its label or, if that is a number, from its heads.

    It has no dot, because PEFT makes it the name of a module.

    >>> layout = HeadLayout((2, 2))
    >>> adapter_name(("random", 8, 0), np.zeros(4), layout)
    'random-8-0'
    >>> adapter_name(0, np.array([1, 0, 0.5, 1]), layout)
    'off-0_1-x0_5-1_0'
    """
    if not isinstance(label, int):
        parts = label if isinstance(label, tuple) else (label,)
        return safe_name("-".join(map(str, parts))).replace(".", "_")
    changed = np.flatnonzero(gates != 1).tolist()
    if len(changed) > 4:
        return f"{len(changed)}-heads-{digest(gates.astype('<f4').tobytes())[:8]}"
    words = [f"{'off' if gates[n] == 0 else f'x{gates[n]:g}'}-{layout.head(n)}" for n in changed]
    return "-".join(words).replace("-off", "").replace(".", "_")


def export_adapters(
    model: Model,
    heads: Any,
    folder: str | Path,
    *,
    base: str = "",
    max_rank: int = MAX_RANK,
    progress: bool = False,
) -> AdapterFolder:
    """Write head sets as LoRA adapters: a folder for each in `folder`, and an index of them.

    `heads` is one head set or several, as for `evaluate`; the labels of a dict name the adapters.
    Each is a folder that PEFT loads, and that engines such as vLLM serve beside the model. It is
    checked against the gated model. A folder with adapters of the same model gets those that it
    lacks. `base` is the model's name for those who load an adapter (default: its hub id or folder).

    >>> from headcount import export_adapters, load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> folder = getfixture("tmp_path") / "adapters"
    >>> made = export_adapters(model, {"two-off": ["3.4", "11.2"]}, folder)
    >>> made.adapters["two-off"].rank, made.adapters["two-off"].error < 1e-4
    (64, True)
    """
    table = gates_by_label(heads, check_model(model).layout)
    if not hasattr(plain(model.module), "save_pretrained") or hasattr(
        plain(model.module), "peft_config"
    ):
        raise HeadcountError(
            f"Cannot write adapters for {model.name}: it is not a plain Hugging Face model (merge "
            "adapters first)."
        )
    if max_rank < 1:
        raise HeadcountError(f"The rank of an adapter is at least 1, not {max_rank}.")
    named = {adapter_name(label, gates, model.layout): gates for label, gates in table.items()}
    for name, gates in named.items():
        check_rank(model, torch.from_numpy(gates), name, max_rank)  # before anything is written
    made = AdapterFolder.of(folder, model, base)
    with progress_bar("adapters", len(named), show=progress, unit="adapter") as bar:
        for name, gates in named.items():
            made.add(model, name, gates, max_rank)
            bar.update()
    return made
