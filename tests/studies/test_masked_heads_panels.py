"""The panels of masked-heads: what their counts share."""

from __future__ import annotations

from function_panels import Function, made

from headcount.studies.masked_heads.panels import FunctionPanel


def drawn(panel: FunctionPanel) -> dict[str, set[int]]:
    """The levels of draws and rankings that the differences at all counts have."""
    parts = [panel.difference("random", count).parts for count in (4, 8, 16, 32)]
    names = ("draws", "rankings")
    return {
        name: {level.owner for part in parts for level in part if level.name == name}
        for name in names
    }


def test_the_counts_of_a_function_share_their_draws_and_rankings() -> None:
    shares = (0.9, 0.7, 0.6, 0.5, 0.4)
    again = {"reranked": shares}
    panels, _ = made({"knowledge-recall": Function(shares, (0.9,) * 5, more=again)})
    assert {name: len(owners) for name, owners in drawn(panels[0]).items()} == {
        "draws": 1,
        "rankings": 1,
    }
