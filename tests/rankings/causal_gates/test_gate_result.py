"""Fitted causal gates: roles, shares and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headcount import HeadcountError, HeadLayout
from headcount.rankings.causal_gates.result import CausalGates


def example_gates() -> CausalGates:
    plus = np.array([[1.0, 0.9, 0.1, 0.6], [1.0, 0.8, 0.7, 0.6]])
    minus = np.array([[0.9, 0.1, 0.0, 0.3], [0.8, 0.6, 0.1, 0.3]])
    return CausalGates(HeadLayout((2, 2)), plus, minus, {"seeds": 2, "note": "made up"})


def test_scores_and_shares() -> None:
    gates = example_gates()
    np.testing.assert_allclose(gates.score("facilitation"), gates.minus)
    np.testing.assert_allclose(gates.score("interference"), 1 - gates.plus)
    np.testing.assert_allclose(gates.score("irrelevance"), gates.plus * (1 - gates.minus))
    names = ["facilitation", "irrelevance", "interference", "undecided"]
    assert gates.labels(0).tolist() == names
    shares = {row["role"]: row for row in gates.shares()}
    assert shares["facilitation"]["share"] == 3 / 8
    assert (shares["facilitation"]["lowest"], shares["facilitation"]["highest"]) == (0.25, 0.5)
    assert (shares["facilitation"]["always"], shares["facilitation"]["any"]) == (0.25, 0.5)
    assert (shares["interference"]["always"], shares["interference"]["any"]) == (0.0, 0.25)
    assert shares["facilitation or interference"]["any"] == 0.75
    # One seed has the role in 1 of 4 heads, the other in 2 of 4.
    assert shares["facilitation"]["always_if_independent"] == 1 / 4 * 2 / 4
    assert shares["facilitation"]["any_if_independent"] == 1 - 3 / 4 * 2 / 4
    assert (
        gates.ranking("irrelevance").values.tolist() == gates.score("irrelevance").mean(0).tolist()
    )
    with pytest.raises(HeadcountError, match='Did you mean "irrelevance"'):
        gates.ranking("irelevance")


def test_gates_round_trip_through_a_file(tmp_path: Path) -> None:
    gates = example_gates()
    gates.save(tmp_path / "sub" / "gates.json")
    again = CausalGates.load(tmp_path / "sub" / "gates.json")
    np.testing.assert_allclose(again.plus, gates.plus, atol=1e-5)
    np.testing.assert_allclose(again.minus, gates.minus, atol=1e-5)
    assert again.layout == gates.layout
    assert again.parameters == gates.parameters
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(HeadcountError, match="not a file of causal gates"):
        CausalGates.load(tmp_path / "bad.json")
    with pytest.raises(HeadcountError, match="Cannot read"):
        CausalGates.load(tmp_path / "missing.json")
    with pytest.raises(HeadcountError, match="between 0 and 1"):
        CausalGates(gates.layout, gates.plus + np.nan, gates.minus)
    with pytest.raises(HeadcountError, match="shape"):
        CausalGates(gates.layout, gates.plus[:, :3], gates.minus[:, :3])
