"""Rankings: from a model and a task to one score per head; a higher score is more important.

Each file has a function `ranking(model, task, *, …) -> HeadScores`, which asks for a `lab` if it
measures. A ranking that runs more than one pass over the ranking split has a
`count` function, which tells a counter what will run.
"""

from __future__ import annotations

from headcount.rankings import ablation, attribution, patterns, probe
from headcount.rankings.causal_gates import fit
from headcount.rankings.random_draws import random_ranking
from headcount.rankings.ranking import RANKINGS, Ranking, fitting, rank

__all__ = ["RANKINGS", "Ranking", "fitting", "rank"]

_enter = RANKINGS.register
_enter("random", "Random", count=lambda *_: None)(random_ranking)
_derivatives = {"count": attribution.count_derivatives, "check": attribution.check_derivatives}
_enter("attribution", "Attribution", **_derivatives)(attribution.attribution)
_enter("integrated-gradients", "Integrated gradients", **_derivatives)(
    attribution.integrated_gradients
)
_single = {"count": ablation.count_single_heads, "check": ablation.check_single_heads}
_enter("ablation", "Ablation", **_single)(ablation.ablation)
_enter("patching", "Patching", **_single)(ablation.patching)
_probe = {"config": probe.ProbeSettings, "count": probe.count_probe}
_enter("probe", "Probe", **_probe, context=probe.probe_context)(probe.probe)
_enter("attention-induction", "Attention: induction", count=patterns.count_induction)(
    patterns.attention_induction
)
_enter("attention-previous", "Attention: previous token")(patterns.attention_previous)
_enter("attention-retrieval", "Attention: retrieval", count=patterns.count_retrieval)(
    patterns.attention_retrieval
)
_roles = {"config": fit.RoleSettings, "count": fit.count_gates}
_enter("facilitation", "Facilitation", **_roles)(fit.facilitation)
_enter("irrelevance", "Irrelevance", **_roles)(fit.irrelevance)
_enter("interference", "Interference", **_roles)(fit.interference)
