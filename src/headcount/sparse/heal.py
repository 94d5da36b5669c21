"""Heal a pruned model: low-rank adapters, trained on text and merged into its weights.

The run is the one that tunes a dense control (`train.Run`): the same steps, seeds and checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headcount.sparse.settings import Settings
from headcount.sparse.sparsify import working_in
from headcount.sparse.text import Text
from headcount.sparse.train import STATE, Run, Running
from headcount.sparse.tunable import Tunable, merge
from headcount.system.files import replacing

ADAPTERS = "adapters.safetensors"  # the outcome of a finished run


def heal(
    module: nn.Module,
    text: Text,
    settings: Settings,
    folder: Path,
    identity: Mapping[str, Any],
    how: Running,
) -> bool:
    """Train adapters on `text` in `folder`, and merge them; False if the time ran out.

    The same call continues where the last one stopped, and a finished run is not repeated.
    `identity` says what is trained on what, besides the settings.
    """
    from safetensors.torch import load_file, save_file

    path = folder / ADAPTERS
    with working_in(folder):
        if not path.exists():
            with Tunable(module, settings) as tunable:
                run = Run(tunable, text, settings, folder, identity, how, label="healing")
                if not run.finish():
                    return False
                values = run.average if settings.average else tunable.copy()
            with replacing(path) as temporary:
                save_file({n: v.detach().cpu().contiguous() for n, v in values.items()}, temporary)
            for left in (folder / STATE, *folder.glob("state-*.safetensors")):
                left.unlink()
    with torch.no_grad():
        merge(module, load_file(path), settings.alpha / settings.rank)
    return True
