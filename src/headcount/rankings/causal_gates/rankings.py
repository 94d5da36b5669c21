"""Rankings by causal gates: by how much each head facilitates, is irrelevant, or interferes."""

from __future__ import annotations

from collections.abc import Callable

from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import fit_gates
from headcount.store import Store
from headcount.tasks import Task


def _ranking(role: str, summary: str) -> Callable[..., HeadScores]:
    def by_gates(
        model: Model,
        task: Task,
        *,
        updates: int = 500,
        batch: int = 64,
        seeds: int = 10,
        variant: str = "published",
        store: Store | None = None,
        progress: bool = True,
    ) -> HeadScores:
        gates = fit_gates(
            model,
            task,
            updates=updates,
            batch=batch,
            seeds=seeds,
            variant=variant,
            store=store,
            progress=progress,
        )
        return gates.ranking(role)

    by_gates.__name__ = by_gates.__qualname__ = role
    by_gates.__doc__ = f"""{summary}

    The mean over seeds, with one sample per seed; fitted on the ranking part as `fit_gates` does.
    With a store all three rankings by gates share one fit.
    """
    return by_gates


facilitation = _ranking("facilitation", "Learned gates: how open a head stays when pushed shut.")
irrelevance = _ranking("irrelevance", "Learned gates: how freely a head opens and shuts.")
interference = _ranking("interference", "Learned gates: how shut a head stays when pushed open.")
