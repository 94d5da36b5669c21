"""Three experiments with headcount; the folder other_tools has the same with other tools."""

from headcount import curve, evaluate, load_model, make_task, rank

METRIC = "logit_difference"


def zero_one_head(model, task, head="20.0"):
    """Experiment 1: the metric with all heads and without one, on the test split."""
    return evaluate(model, task, {"whole": [], "without": [head]}, metric=METRIC)


def rank_all_heads(model, task):
    """Experiment 2: the derivative of the metric in each head's gate, on the ranking split."""
    return rank(model, task, "attribution", metric=METRIC)


def mask_more_and_more(model, task, scores):
    """Experiment 3: TopK against RandomK heads, on the test split."""
    settings = {"counts": [0, 1, 2, 4, 8, 16], "seeds": 3, "series": ["top", "random"]}
    return curve(model, task, scores, metric=METRIC, **settings)


if __name__ == "__main__":
    model = load_model("smollm2-135m-q4")
    task = make_task("ioi", model, n=32)
    values = zero_one_head(model, task)
    print("Without head 20.0:", values.difference("without", "whole"))
    scores = rank_all_heads(model, task)
    print("Best heads:", *scores.top(8))
    print(mask_more_and_more(model, task, scores))
