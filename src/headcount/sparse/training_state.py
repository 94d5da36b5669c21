"""A training run on disk: everything that decides its next step, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from headcount.errors import HeadcountError
from headcount.system.files import replacing, write_file

STATE = "state.json"


def save_state(folder: Path, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Keep numbers and tensors; what was kept before goes only when the new is complete."""
    from safetensors.torch import save_file

    name = f"state-{facts['step']}.safetensors"
    with replacing(folder / name) as beside:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, beside)
    # Python writes floats so that they are read back to the last bit.
    write_file(folder / STATE, json.dumps({**facts, "tensors": name}))
    for old in folder.glob("state-*.safetensors"):
        if old.name != name:
            old.unlink()


def load_state(
    folder: Path, identity: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """What was kept, or None; a run with other settings is refused instead of overwritten."""
    from safetensors.torch import load_file

    if not (folder / STATE).exists():
        return None
    try:
        facts = json.loads((folder / STATE).read_text("utf-8"))
        tensors = load_file(folder / facts["tensors"])
    except Exception as error:
        raise HeadcountError(
            f"What {folder} keeps of an earlier run is damaged ({error}): delete the folder to "
            "begin anew."
        ) from error
    ours = json.loads(json.dumps(identity))
    differing = [name for name, value in ours.items() if facts["identity"].get(name) != value]
    if differing:
        raise HeadcountError(
            f"{folder} holds a run with other settings ({', '.join(differing)}): choose another "
            "--out, or delete that folder."
        )
    return facts, tensors
