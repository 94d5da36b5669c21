"""Where weights go, with accelerate and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models.checkpoints import save_checkpoint

from headcount.models import load, options


@pytest.mark.parametrize("installed", [True, False])
def test_weights_go_straight_to_a_gpu_where_accelerate_is(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = torch.device("cuda", 0)
    monkeypatch.setattr(options, "check_device", lambda device: place)
    monkeypatch.setattr(options, "has_accelerate", lambda: installed)
    expected: dict[str, Any] = {"device_map": {"": place}} if installed else {}
    assert options.check_placement(None, None) == expected


def test_without_accelerate_they_are_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[Any] = []
    usual = torch.nn.Module.to

    def noting(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        moved.extend(args)
        return usual(self, *args, **kwargs)

    folder = save_checkpoint(tmp_path / "tiny")
    monkeypatch.setattr(load, "has_accelerate", lambda: False)
    monkeypatch.setattr(torch.nn.Module, "to", noting)
    load.load_pretrained(folder, device="cpu")
    assert moved[-1] == torch.device("cpu")
