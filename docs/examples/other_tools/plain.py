"""What the tools leave to you: the metric, and the heads of a curve with its random control."""

import numpy as np


def logit_difference(logits, right, wrong):
    """Logit of the right answer minus that of the wrong one, for each prompt."""
    last = logits[:, -1]  # (prompts, vocab)
    return (last.gather(1, right[:, None]) - last.gather(1, wrong[:, None]))[:, 0]


def curve_sets(scores, counts, seeds):
    """The heads of TopK and RandomK, as {(series, count, draw): [(layer, head), …]}."""
    order = np.argsort(-scores.flatten(), kind="stable")  # scores: (layers, heads)
    sets = {}
    for count in counts:
        sets["top", count, 0] = order[:count]
        rest = np.sort(order[count:])  # random heads are drawn outside the best ones
        for seed in range(seeds):
            drawn = np.random.default_rng(seed).choice(rest, count, replace=False)
            sets["random", count, seed] = drawn
    return {
        key: [divmod(int(number), scores.shape[1]) for number in heads]
        for key, heads in sets.items()
    }
