"""A ranking of your own: how loudly a head speaks where the answer is predicted."""

import numpy as np

import headcount
from headcount import HeadScores, Task, collect, load_model, make_task, rank
from headcount.models.model import Model
from headcount.tasks import encode


@headcount.ranking("loudness", "Loudness")
def loudness(model: Model, task: Task, *, power: float = 1.0) -> HeadScores:
    """The length of each head's output at the last token, on the ranking split."""
    prompts = [example.prompt for example in encode(task.split("ranking"), model.tokenizer)]
    by_site = collect(model, prompts, [[-1]] * len(prompts), progress=False)
    lengths = [np.linalg.norm(z[:, 0], axis=-1) for z in by_site]  # each (prompts, heads)
    samples = np.concatenate(lengths, axis=1) ** power  # (prompts, all heads), site by site
    return HeadScores(model.layout, samples.mean(axis=0), "loudness", samples=samples)


if __name__ == "__main__":
    model = load_model("smollm2-135m-q4")
    task = make_task("ioi", model.tokenizer, n=16)
    print(rank(model, task, "loudness", power=2.0))  # settings are checked and recorded
