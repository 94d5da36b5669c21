r"""A tiny llama that writes one text again and again, whatever it reads: \boxed{4}\boxed{4}\boxed{…

Its blocks add next to nothing, and its output matrix follows the chain of the text's tokens.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model

from headcount import wrap
from headcount.models.model import Model

BOX = r"\boxed{4}"


@cache
def chain_model(text: str = BOX) -> Model:
    """After each token of `text` comes the next, after the last and any other token the first."""
    tokenizer = byte_level()
    ids = tokenizer.encode(text)
    assert len(set(ids)) == len(ids) < 31, "a chain needs tokens that differ"
    module: Any = tiny_model(
        "llama", vocab_size=2000, tie_word_embeddings=False, max_position_embeddings=512
    )
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.mul_(1e-3)
        words, out = module.get_input_embeddings().weight, module.get_output_embeddings().weight
        words.zero_()
        out.zero_()
        words[:, len(ids)] = 1  # all tokens but those of the chain look the same
        out[ids[0], len(ids)] = 1
        for place, token in enumerate(ids):
            words[token] = torch.nn.functional.one_hot(torch.tensor(place), words.shape[1])
            out[ids[(place + 1) % len(ids)], place] = 1
        module.model.norm.weight.fill_(1.0)
    return wrap(module, tokenizer, name="chain")
