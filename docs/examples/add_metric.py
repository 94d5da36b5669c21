"""A metric of your own: the reciprocal rank of the right answer among all tokens."""

from headcount import evaluate, load_model, make_task
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
    model = load_model("smollm2-135m")
    task = make_task("ioi", model.tokenizer, n=16)
    gates = [model.layout.gates(off=[]), model.layout.gates(off=["0.0", "0.1", "0.2"])]
    whole, without = evaluate(model, task, gates, metric="reciprocal_rank").mean()
    print(f"{RECIPROCAL_RANK.name}: {whole:.2f}; without three heads {without:.2f}")
