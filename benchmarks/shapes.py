"""Models with random weights in published shapes, and problems for them.

Times do not depend on the values of the weights; that all contestants agree is checked all the
same, so the weights are large enough for heads to matter.
"""

from __future__ import annotations

import numpy as np
import torch
from problem import Problem, spread
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headcount import Example, Task
from headcount.tasks import encode

# vocabulary, width, MLP width, layers, heads, key/value heads, tied embeddings
SHAPES = {
    "tiny": (997, 64, 96, 4, 4, 2, True),  # to try things without a GPU
    "135m": (49152, 576, 1536, 30, 9, 3, True),  # SmolLM2-135M
    "0.5b": (151936, 896, 4864, 24, 14, 2, True),  # Qwen2.5-Coder-0.5B
    "1.5b": (151936, 1536, 8960, 28, 12, 2, True),  # Qwen2.5-Coder-1.5B
    "1b": (128256, 2048, 8192, 16, 32, 8, True),  # Llama-3.2-1B
    "8b": (128256, 4096, 14336, 32, 32, 8, False),  # Llama-3.1-8B
}
SCALE = 1.5  # of a matrix product: what a weight matrix does to the size of its input


Shape = tuple[int, int, int, int, int, int, bool]


def config(shape: Shape) -> LlamaConfig:
    """The configuration of a shape."""
    vocabulary, width, inner, layers, heads, pairs, tied = shape
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=pairs,
        tie_word_embeddings=tied,
        initializer_range=SCALE * width**-0.5,
    )


def random_model(
    shape: str, device: str = "cuda", dtype: torch.dtype = torch.bfloat16
) -> LlamaForCausalLM:
    """A model of a published shape."""
    return random_llama(SHAPES[shape], device, dtype)


def random_llama(shape: Shape, device: str, dtype: torch.dtype) -> LlamaForCausalLM:
    """A model of this shape, its weights drawn with a fixed seed on the device."""
    torch.manual_seed(0)
    usual = torch.get_default_dtype()
    with torch.device(device):
        torch.set_default_dtype(dtype)
        try:
            model = LlamaForCausalLM(config(shape)).eval()
        finally:
            torch.set_default_dtype(usual)
    model.generation_config.eos_token_id = None  # texts are as long as they may be
    return model.requires_grad_(False)


def word_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """The word "w7" is the token 7, and so on."""
    words = {f"w{number}": number for number in range(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def shape_problem(
    shape: str, *, prompts: int, tokens: int, device: str, dtype: torch.dtype
) -> Problem:
    """Random prompts of one length for a random model."""
    module = random_model(shape, device, dtype)
    vocabulary = SHAPES[shape][0]
    task = task_of(vocabulary, prompts, tokens)
    tokenizer = word_tokenizer(vocabulary)
    encoded = encode(task, tokenizer)
    problem = Problem(
        module,
        tokenizer,
        task,
        torch.tensor([one.prompt for one in encoded], device=device),
        torch.tensor([one.target[0] for one in encoded], device=device),
        (),
        0,
    )
    return problem.of_heads(spread(problem.layout))


def task_of(vocabulary: int, prompts: int, tokens: int) -> Task:
    """Random prompts of one length, each with a random target."""
    rng = np.random.default_rng(0)
    ids = rng.integers(3, vocabulary, (prompts, tokens + 1)).tolist()
    examples = (
        Example(str(place), " ".join(f"w{one}" for one in row[:-1]), f" w{row[-1]}")
        for place, row in enumerate(ids)
    )
    return Task("random words", 1, tuple(examples))
