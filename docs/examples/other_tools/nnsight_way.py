"""The three experiments with nnsight: values read, changed and differentiated inside a trace."""

import nnsight
import torch
from plain import logit_difference


def load(folder):
    """A checkpoint, wrapped."""
    how = {"task": "text-generation", "dispatch": True, "dtype": torch.float32}
    return nnsight.TransformersModel(folder, **how)


def without(model, heads, ids, right, wrong):
    """The metric without these heads, for each prompt."""
    size = model.config.head_dim
    with torch.no_grad(), model.trace(ids):
        for layer, head in sorted(heads):  # in the order in which the model runs
            z = model.model.layers[layer].self_attn.o_proj.input
            z[:, :, head * size : (head + 1) * size] = 0
        logits = model.lm_head.output.save()
    return logit_difference(logits, right, wrong)


def rank_all_heads(model, ids, right, wrong):
    """The derivative of the mean metric in each head's gate: z · gradient, summed."""
    heads = model.config.num_attention_heads
    scores = []
    with model.trace(ids):
        zs = [layer.self_attn.o_proj.input for layer in model.model.layers]
        metric = logit_difference(model.lm_head.output, right, wrong).mean()
        with metric.backward():
            for z in reversed(zs):  # gradients come last layer first
                product = (z * z.grad).unflatten(-1, (heads, -1))
                scores.append(product.sum((0, 1, 3)).save())
    return torch.stack(scores[::-1]).detach().numpy()
