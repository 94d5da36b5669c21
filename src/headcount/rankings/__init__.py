"""Rankings: from a model and a task to one score per head; a higher score is more important.

Each file has a function `ranking(model, task, *, …) -> HeadScores`, which asks for a `lab` if it
measures. A ranking that runs more than one pass over the ranking split has a
`count` function, which tells a counter what will run.
"""

from __future__ import annotations

from headcount.rankings import (
    ablation,
    attribution,
    elimination,
    ensemble,
    patterns,
    probe,
    reconstruction,
    retrieval,
    shapley,
)
from headcount.rankings.causal_gates import budget, contrast, fit, streaming
from headcount.rankings.random_draws import random_ranking
from headcount.rankings.ranking import RANKINGS, Ranking, fit_list, fitting, rank

__all__ = ["JOINT", "RANKINGS", "Ranking", "fit_list", "fitting", "rank"]

# These measure or learn what heads do together, at many times the cost of those of single heads.
JOINT = (
    "shapley",
    "iterative",
    "greedy",
    "ensemble",
    "budget-gates",
    "contrast",
    "streaming-gates",
)

_enter = RANKINGS.register
_enter("random", "Random", count=lambda *_: None, goal="both")(random_ranking)
_derivatives = {"count": attribution.count_derivatives, "check": attribution.check_derivatives}
_enter("attribution", "Attribution", **_derivatives, goal="mask")(attribution.attribution)
_enter("integrated-gradients", "Integrated gradients", **_derivatives, goal="both")(
    attribution.integrated_gradients
)
_single = {"count": ablation.count_single_heads, "check": ablation.check_single_heads}
_enter("ablation", "Ablation", **_single, goal="mask")(ablation.ablation)
_groups = {"count": ablation.count_whole_groups, "check": ablation.check_single_heads}
_enter("group-ablation", "Ablation of groups", **_groups, goal="mask")(ablation.group_ablation)
_rebuilt = {
    "count": reconstruction.count_reconstruction,
    "check": reconstruction.check_reconstruction,
}
_enter("reconstruction", "Reconstruction", **_rebuilt, goal="keep")(reconstruction.reconstruction)
_enter("patching", "Patching", **_single, goal="mask")(ablation.patching)
_restored = {"count": ablation.count_denoising, "check": ablation.check_single_heads}
_enter("denoising", "Denoising", **_restored, goal="keep")(ablation.denoising)
_shapley = {"count": shapley.count_shapley, "check": shapley.check_shapley}
_enter("shapley", "Shapley values", **_shapley, goal="both")(shapley.shapley)
_iterative = {"count": elimination.count_iterative, "check": elimination.check_iterative}
_enter("iterative", "Iterative attribution", **_iterative)(elimination.iterative)
_greedy = {"count": elimination.count_greedy, "check": elimination.check_elimination}
_enter("greedy", "Greedy elimination", **_greedy)(elimination.greedy)
_ensemble = {"count": ensemble.count_ensemble, "check": ensemble.check_ensemble}
_enter("ensemble", "Ensemble", **_ensemble)(ensemble.ensemble)
_budget = {"config": budget.BudgetSettings, "count": budget.count_budget_gates}
_enter("budget-gates", "Gates with a budget", **_budget)(budget.budget_gates)
_streaming = {"config": streaming.StreamingGateSettings, "goal": "keep"}
_enter(
    "streaming-gates",
    "Streaming gates",
    count=streaming.count_streaming_gates,
    **_streaming,
)(streaming.streaming_gates)
_probe = {"config": probe.ProbeSettings, "count": probe.count_probe, "goal": "neither"}
_enter("probe", "Probe", **_probe, context=probe.probe_context)(probe.probe)
_retrieval = {"count": patterns.count_retrieval, "goal": "neither"}
_enter(
    "attention-induction", "Attention: induction", count=patterns.count_induction, goal="neither"
)(patterns.attention_induction)
_enter("attention-previous", "Attention: previous token", goal="neither")(
    patterns.attention_previous
)
_enter("attention-retrieval", "Attention: retrieval", **_retrieval)(patterns.attention_retrieval)
_enter("retrieval-score", "Retrieval score", **_retrieval)(retrieval.retrieval_score)
_roles = {"config": fit.RoleSettings, "count": fit.count_gates}
_enter("facilitation", "Facilitation", **_roles, goal="keep")(fit.facilitation)
_enter("irrelevance", "Irrelevance", **_roles, goal="neither")(fit.irrelevance)
_enter("interference", "Interference", **_roles, goal="neither")(fit.interference)
_contrast = {"config": contrast.ContrastSettings, "count": contrast.count_contrast}
_contrast |= {"check": contrast.check_contrast, "context": contrast.contrast_context}
_enter("contrast", "Contrastive gates", **_contrast, goal="neither")(contrast.contrast_ranking)
