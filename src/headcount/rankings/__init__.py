"""Rankings: from a model and a task to one score per head, higher meaning more important.

One file per method. A method is a factory `method(model, task, *, …) -> HeadScores` in RANKINGS; it
asks for a `lab` where it measures, and tells its cost where that is more than a pass.
"""

from __future__ import annotations

from headcount.rankings.ablation import ablation, patching
from headcount.rankings.attribution import attribution, integrated_gradients
from headcount.rankings.causal_gates.fit import (
    RoleSettings,
    facilitation,
    interference,
    irrelevance,
)
from headcount.rankings.costs import ranking_costs
from headcount.rankings.patterns import attention_induction, attention_previous, attention_retrieval
from headcount.rankings.probe import ProbeSettings, probe, probe_context
from headcount.rankings.random_draws import random_ranking
from headcount.rankings.ranking import COSTS, FURTHER, RANKINGS, Ranking, fitting, rank

__all__ = ["RANKINGS", "Ranking", "fitting", "rank"]

RANKINGS.register("random", "Random")(random_ranking)
RANKINGS.register("attribution", "Attribution")(attribution)
RANKINGS.register("integrated-gradients", "Integrated gradients")(integrated_gradients)
RANKINGS.register("ablation", "Ablation")(ablation)
RANKINGS.register("patching", "Patching")(patching)
RANKINGS.register("probe", "Probe", ProbeSettings)(probe)
RANKINGS.register("attention-induction", "Attention: induction")(attention_induction)
RANKINGS.register("attention-previous", "Attention: previous token")(attention_previous)
RANKINGS.register("attention-retrieval", "Attention: retrieval")(attention_retrieval)
RANKINGS.register("facilitation", "Facilitation", RoleSettings)(facilitation)
RANKINGS.register("irrelevance", "Irrelevance", RoleSettings)(irrelevance)
RANKINGS.register("interference", "Interference", RoleSettings)(interference)
COSTS.update(ranking_costs())
FURTHER["probe"] = probe_context
