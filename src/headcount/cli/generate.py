"""`headcount generate`: let a model write under a head set."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from headcount.cli.common import model_from, print_json
from headcount.engine.write.decode import generate as decode


def generate(arguments: Namespace) -> int:
    """Continue each prompt and print what comes."""
    model = model_from(arguments)
    heads = [model.layout.parse(text) for text in arguments.heads]
    texts = decode(
        model,
        arguments.prompt,
        model.layout.gates(off=heads),
        max_new_tokens=arguments.max_new_tokens,
        scope=arguments.scope,
        temperature=arguments.temperature,
        seed=arguments.seed,
        progress=not arguments.quiet,
    )
    if arguments.json:
        print_json([asdict(text) for text in texts])
        return 0
    for prompt, text in zip(arguments.prompt, texts, strict=True):
        print(f"{prompt}{text.text}")
    return 0
