"""The three experiments with TransformerLens 4: hooks on `hook_z`, by name."""

import torch
from plain import logit_difference
from transformer_lens.model_bridge import TransformerBridge


def load(folder):
    """A checkpoint as a bridge; its weights stay as they are."""
    return TransformerBridge.boot_transformers(folder, dtype=torch.float32)


def without(bridge, heads, ids, right, wrong):
    """The metric without these heads, for each prompt."""

    def switch_off(z, hook):  # z: (prompts, tokens, heads, size)
        z[:, :, [head for layer, head in heads if layer == hook.layer()]] = 0
        return z

    hooks = [(f"blocks.{layer}.attn.hook_z", switch_off) for layer in {layer for layer, _ in heads}]
    with torch.no_grad():
        logits = bridge.run_with_hooks(ids, fwd_hooks=hooks)
    return logit_difference(logits, right, wrong)


def rank_all_heads(bridge, ids, right, wrong):
    """The derivative of the mean metric in each head's gate: z · gradient, summed."""
    scores = torch.zeros(bridge.cfg.n_layers, bridge.cfg.n_heads)
    kept = {}

    def forward(z, hook):
        kept[hook.layer()] = z.detach()

    def backward(gradient, hook):
        layer = hook.layer()
        scores[layer] = (gradient * kept[layer]).sum((0, 1, 3))

    def of_heads(name):
        return name.endswith("attn.hook_z")

    with bridge.hooks(fwd_hooks=[(of_heads, forward)], bwd_hooks=[(of_heads, backward)]):
        logit_difference(bridge(ids), right, wrong).mean().backward()
    return scores.numpy()
