"""Rankings: from a model and a task to one score per head; a higher score is more important.

One file per ranking. A ranking is a function `(model, task, *, settings…, lab) -> HeadScores` in
RANKINGS; it takes a `lab` only if it measures. A ranking that costs more or less than one pass over
the ranking split has a function in COSTS, which tells a counter what it will run.
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
