"""A metric of your own: the reciprocal rank of the right answer among all tokens."""

from headcount import evaluate, load_model, make_task, rank
from headcount.metrics import METRICS, Metric, Scored


def reciprocal_rank(scored: Scored):
    """1 where the target's first token is the most likely one, 1/2 where it is second, …"""
    logits = scored.logits[:, 0].float()  # (rows, vocab), where the first token is predicted
    right = logits.gather(-1, scored.targets[:, :1])  # (rows, 1)
    return 1 / (1 + (logits > right).sum(-1))  # (rows)


RECIPROCAL_RANK = Metric(
    "reciprocal_rank",  # in the store and, once it is in METRICS, wherever a metric has a name
    "Reciprocal rank of the target",
    reciprocal_rank,
    differentiable=False,  # so rankings by derivative refuse it
)
METRICS[RECIPROCAL_RANK.key] = RECIPROCAL_RANK


if __name__ == "__main__":
    model = load_model("smollm2-135m-q4")
    task = make_task("ioi", model.tokenizer, n=16)
    best = rank(model, task).top(4)
    gates = [model.layout.gates(off=[]), model.layout.gates(off=best)]
    whole, without = evaluate(model, task, gates, metric="reciprocal_rank").mean()
    print(f"{RECIPROCAL_RANK.name}: {whole:.2f}; without four heads {without:.2f}")
