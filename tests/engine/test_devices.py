"""What work takes elsewhere: by committed rates alone, and "not measured" where there is none."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import tiny_model

from headcount import wrap
from headcount.engine.measure import devices
from headcount.engine.measure.devices import elsewhere, rate

ROOT = Path(__file__).parents[2]
H100, H200 = "NVIDIA H100", "NVIDIA H200"
EIGHT = 8_030_261_248


def test_the_table_is_made_of_the_committed_results() -> None:
    script = ROOT / "benchmarks" / "devices.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0


def test_the_page_is_made_of_the_committed_counts() -> None:
    page = ROOT / "docs" / "published.md"
    before = page.read_text(encoding="utf-8")
    script = ROOT / "benchmarks" / "published.py"
    subprocess.run([sys.executable, script, "--page"], check=True)
    assert page.read_text(encoding="utf-8") == before


def test_rates_between_two_sizes_lie_between_theirs() -> None:
    small, large = rate(H200, "passes", 1_235_814_400), rate(H200, "passes", EIGHT)
    assert small < rate(H200, "passes", 3 * 10**9) < large
    assert rate(H200, "passes", 9 * 10**9) == large  # a little larger than the largest


@pytest.mark.parametrize(
    ("device", "kind", "parameters"),
    [(H100, "passes", EIGHT), (H200, "gradients", EIGHT), (H200, "passes", 70 * 10**9)],
)
def test_what_was_not_measured_has_no_rate(device: str, kind: str, parameters: int) -> None:
    assert math.isnan(rate(device, kind, parameters))  # type: ignore[arg-type]


def test_the_sentence_says_what_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wrap(tiny_model("llama").to(torch.bfloat16), None, name="tiny")
    size = sum(p.numel() for p in model.module.parameters())
    row = {"device": H200, "kind": "passes", "parameters": size, "seconds_per_token": 1e-4}
    monkeypatch.setattr(devices, "measured", lambda: (row,))
    h100, h200 = elsewhere([(model, "passes", 36_000_000), (model, "gradients", 5)])
    weights = f"weights {2 * size / 1e9:.3g} GB of"
    assert str(h100) == f"On one {H100}: passes and gradients not measured there; {weights} 80 GB."
    assert str(h200) == (
        f"On one {H200}: about 60 minutes (gradients not measured there); {weights} 141 GB."
    )
    assert h200.to_json()["not measured"] == ["gradients"]
