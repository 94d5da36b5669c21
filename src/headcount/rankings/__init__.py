"""Rankings: from a model and a task to one score per head, higher meaning more important.

One file per method. A method is a factory `method(model, task, *, …) -> HeadScores` in RANKINGS; it
asks for a `lab` where it measures. Where it runs more than a pass over the ranking split, COSTS has
a function that tells a counter what.
"""

from __future__ import annotations

from headcount.rankings import ablation, attribution, patterns, probe
from headcount.rankings.causal_gates import fit
from headcount.rankings.random_draws import random_ranking
from headcount.rankings.ranking import COSTS, FURTHER, RANKINGS, Ranking, fitting, rank

__all__ = ["RANKINGS", "Ranking", "fitting", "rank"]

RANKINGS.register("random", "Random")(random_ranking)
RANKINGS.register("attribution", "Attribution")(attribution.attribution)
RANKINGS.register("integrated-gradients", "Integrated gradients")(attribution.integrated_gradients)
RANKINGS.register("ablation", "Ablation")(ablation.ablation)
RANKINGS.register("patching", "Patching")(ablation.patching)
RANKINGS.register("probe", "Probe", probe.ProbeSettings)(probe.probe)
RANKINGS.register("attention-induction", "Attention: induction")(patterns.attention_induction)
RANKINGS.register("attention-previous", "Attention: previous token")(patterns.attention_previous)
RANKINGS.register("attention-retrieval", "Attention: retrieval")(patterns.attention_retrieval)
RANKINGS.register("facilitation", "Facilitation", fit.RoleSettings)(fit.facilitation)
RANKINGS.register("irrelevance", "Irrelevance", fit.RoleSettings)(fit.irrelevance)
RANKINGS.register("interference", "Interference", fit.RoleSettings)(fit.interference)
COSTS |= {
    "random": lambda *_: None,
    "attribution": attribution.count_derivatives,
    "integrated-gradients": attribution.count_derivatives,
    "ablation": ablation.count_single_heads,
    "patching": ablation.count_single_heads,
    "attention-induction": patterns.count_induction,
    "attention-retrieval": patterns.count_retrieval,
    "probe": probe.count_probe,
    **dict.fromkeys(("facilitation", "irrelevance", "interference"), fit.count_gates),
}
FURTHER["probe"] = probe.probe_context
