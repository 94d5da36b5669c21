"""Registered names that go with the test that registered them."""

from __future__ import annotations

import pytest

from headcount.metrics import METRICS
from headcount.rankings import RANKINGS
from headcount.studies import STUDIES
from headcount.tasks import TASKS


def forget_new_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back at the end of the test what it registers."""
    for registry in (TASKS, RANKINGS, METRICS, STUDIES):
        monkeypatch.setattr(registry, "entries", dict(registry.entries))
