"""Head sets as LoRA adapters: PEFT, which knows nothing of heads, gives the gated logits."""

import tempfile

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from headcount import export_adapters, gated, load_model, make_task, rank
from headcount.rankings.random_draws import draw_random

if __name__ == "__main__":
    model = load_model("smollm2-135m-q4")
    best = rank(model, make_task("ioi", model, n=16)).top(4)
    numbers = [model.layout.number(head) for head in best]
    drawn = draw_random(model.layout, 4, outside=numbers, seed=0)
    head_sets = {"top-4": best, "random-4": [model.layout.head(n) for n in drawn]}

    with tempfile.TemporaryDirectory() as folder:
        made = export_adapters(model, head_sets, folder)
        theirs = AutoModelForCausalLM.from_pretrained(made.base, dtype=torch.float32)
        theirs = PeftModel.from_pretrained(theirs, made.path / "top-4", adapter_name="top-4")
        theirs.load_adapter(made.path / "random-4", adapter_name="random-4")

    # One batch, and another head set in each row; "__base__" is the whole model.
    text = "Then, Mary and John went to the garden. John gave a lamp to"
    ids = model.tokenizer(text, return_tensors="pt").input_ids
    names = ["__base__", *head_sets]
    with torch.no_grad():
        by_peft = theirs.eval()(ids.expand(3, -1), adapter_names=names).logits  # (3, tokens, vocab)
        for name, logits in zip(names, by_peft, strict=True):
            with gated(model, head_sets.get(name, [])):
                ours = model.module(ids).logits[0]  # (tokens, vocab)
            error = float((logits - ours).abs().max() / ours.abs().max())
            word = model.tokenizer.decode(logits[-1].argmax())
            print(f"{name}: next is {word!r}; differs from the gates by {error:.0e}")
