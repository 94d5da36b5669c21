"""The panels of masked-heads: what their counts share."""

from __future__ import annotations

from function_panels import Function, made

from headcount.stats import mean_of, simultaneous
from headcount.studies.masked_heads.panels import FunctionPanel, panels_of


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


def test_no_interval_of_shares_reaches_beyond_what_shares_can_differ() -> None:
    """Few draws that disagree have wide intervals, but no accuracy falls by more than 1."""
    falls = Function((0.9, 0.5, 0.2, 0.0, 0.0), (0.9, 0.8, 0.2, 0.8, 0.1))
    panels, _ = made({"retrieval": falls})
    found = [panels[0].difference("random", count) for count in (4, 8, 16, 32)]
    assert all(one.interval.low >= -1 and one.interval.high <= 1 for one in found)
    assert all(one.low >= -1 and one.high <= 1 for one in simultaneous(found))
    assert mean_of(found).limits == (-1, 1)


def test_no_interval_reaches_beyond_what_a_metric_can_be() -> None:
    """A cosine is at most 1; where a metric has no largest value, nothing is cut."""
    function = Function([0.9] * 5, [0.9] * 5, [0.99, 0.98, 0.98, 0.98, 0.98])
    (panel,), facts = made({"math": function}, similarity="similarity")
    free = panel.interval("top", 4, "similarity")
    facts["metrics"][1]["most"] = free.value + 1e-6
    (panel,) = panels_of(panel.values, facts)
    cut = panel.interval("top", 4, "similarity")
    assert cut.high == free.value + 1e-6 < free.high
    assert (cut.value, cut.low) == (free.value, free.low)
