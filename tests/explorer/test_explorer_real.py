"""The tour of docs/explorer.md on the bundled model: what it says is so."""

from __future__ import annotations

import pytest
from explorer.running import answers
from real import bundled

from headcount import make_task
from headcount.explorer.session import ExplorerSession


@pytest.mark.real
def test_the_tour_finds_the_heads_that_carry_ioi() -> None:
    model = bundled()
    session = ExplorerSession(model, make_task("ioi", model, n=16), store=None)
    start = answers(session, "start")[0][1]
    assert {f"role: {task}" for task in ("syntax", "arithmetic", "common-sense")} <= {
        *start["scores"]
    }
    state = {
        **start["state"],
        "prompt": "When Edward and Henry met at the park, Henry handed a bottle to",
    }
    state |= {"target": " Edward", "foils": [" Henry"]}
    eight = ["1.3", "1.4", "1.5", "18.0", "20.0", "22.4", "23.0", "29.1"]
    found = answers(session, "probabilities", state={**state, "heads": eight})[1][1]
    target = found["rows"][0]
    assert target["token"] == " Edward"
    assert target["set"] < 0.05 < 0.2 < min(target["random"])
    assert target["whole"] > 0.4
    why = answers(session, "why", state={**state, "selected": "23.0"})[0][1]
    last = why["attention"][-1]
    assert why["tokens"][last.index(max(last))] == " Edward"
    assert " Edward" in why["words"][-1]["up"]
    events = answers(session, "text", state={**state, "heads": eight}, new=3)
    assert "".join(events[-2][1]["whole"]).startswith(" Edward")
    session.close()
