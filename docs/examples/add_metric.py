"""A metric of your own: the reciprocal rank of the right answer among all tokens."""

import headcount
from headcount import evaluate, load_model, make_task, rank
from headcount.metrics import Scored


# Not differentiable: rankings by derivative refuse it.
@headcount.metric("reciprocal_rank", "Reciprocal rank of the target", differentiable=False)
def reciprocal_rank(scored: Scored):
    """1 where the target's first token is the most likely one, 1/2 where it is second, …"""
    logits = scored.logits[:, 0].float()  # (rows, vocab), where the first token is predicted
    right = logits.gather(-1, scored.targets[:, :1])  # (rows, 1)
    return 1 / (1 + (logits > right).sum(-1))  # (rows)


if __name__ == "__main__":
    model = load_model("smollm2-135m-q4")
    task = make_task("ioi", model.tokenizer, n=16)
    best = rank(model, task).top(4)
    gates = [model.layout.gates(off=[]), model.layout.gates(off=best)]
    whole, without = evaluate(model, task, gates, metric="reciprocal_rank").mean()
    print(f"Reciprocal rank of the target: {whole:.2f}; without four heads {without:.2f}")
