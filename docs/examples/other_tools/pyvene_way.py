"""The three experiments with pyvene: interventions on the input of the output projections."""

import pyvene
import torch
from plain import logit_difference
from transformers import AutoModelForCausalLM


def load(folder):
    """A checkpoint of transformers; its fused attention could not be differentiated below."""
    how = {"dtype": torch.float32, "attn_implementation": "eager"}
    return AutoModelForCausalLM.from_pretrained(folder, **how)


def without(model, heads, ids, right, wrong):
    """The metric without these heads, for each prompt."""
    interventions = [
        {
            "layer": layer,
            "component": "head_attention_value_output",
            "unit": "h",
            "intervention_type": pyvene.ZeroIntervention,
        }
        for layer, _ in heads
    ]
    places = [[[head]] * len(ids) for _, head in heads]  # for each intervention and prompt
    config = pyvene.IntervenableConfig(interventions, model_type=type(model))
    with torch.no_grad():
        if heads:
            intervened = pyvene.IntervenableModel(config, model)
            _, output = intervened({"input_ids": ids}, unit_locations={"base": places})
        else:
            output = model(ids)
    return logit_difference(output.logits, right, wrong)


def rank_all_heads(model, ids, right, wrong):
    """The derivative of the mean metric in each head's gate."""
    size = model.config.head_dim
    shape = model.config.num_hidden_layers, model.config.num_attention_heads
    gates = torch.ones(shape, requires_grad=True)
    interventions = [
        {
            "component": f"model.layers[{layer}].self_attn.o_proj.input",
            # A copy, since pyvene writes the result into the tensor z itself.
            "intervention": lambda z, _, gate=gate: z.clone() * gate.repeat_interleave(size),
        }
        for layer, gate in enumerate(gates)
    ]
    _, output = pyvene.IntervenableModel(interventions, model=model)({"input_ids": ids})
    logit_difference(output.logits, right, wrong).mean().backward()
    return gates.grad.numpy()
