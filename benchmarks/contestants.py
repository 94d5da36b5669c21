"""Six ways to switch off heads one by one, each as its own documentation or its experts write it.

Every contestant gets the same weights, prompts and heads, and gives the log-probability of the
target at the last position for each head and prompt. All run without gradients and without a
key/value cache of their own, and leave their results on the device until the end where they can.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch
from problem import Problem
from torch import Tensor

from headcount import Head, evaluate, wrap

Sweep = Callable[[Sequence[Head]], Tensor]  # heads → log-probabilities (heads, prompts)


@dataclass(frozen=True)
class Contestant:
    """A way to solve the problem: `prepare` does once what need not be done for every sweep."""

    key: str
    name: str
    package: str  # its name in an import
    distribution: str  # its name on the package index
    prepare: Callable[[Problem], Sweep]

    @property
    def installed(self) -> bool:
        """Whether its package is there."""
        return find_spec(self.package) is not None


def target_logprob(logits: Tensor, targets: Tensor) -> Tensor:
    """log p of each row's target: logits (prompts, vocab) → (prompts,)."""
    logits = logits.float()
    return logits.gather(-1, targets[:, None]).squeeze(-1) - logits.logsumexp(-1)


def _columns(problem: Problem, head: Head) -> slice:
    size = problem.head_size
    return slice(head.index * size, (head.index + 1) * size)


def _plain(problem: Problem) -> Sweep:
    """A hook on the output projection's input; every layer, all logits."""
    model, ids = problem.own_module(), problem.ids

    def zero(columns: slice) -> Callable[..., None]:
        def hook(_: object, args: tuple[Tensor, ...]) -> None:
            args[0][..., columns] = 0

        return hook

    def sweep(heads: Sequence[Head]) -> Tensor:
        values = []
        for head in heads:
            projection = model.model.layers[head.layer].self_attn.o_proj
            handle = projection.register_forward_pre_hook(zero(_columns(problem, head)))
            logits = model(input_ids=ids, use_cache=False).logits  # (prompts, tokens, vocab)
            handle.remove()
            values.append(target_logprob(logits[:, -1], problem.targets))
        return torch.stack(values)

    return sweep


def _transformer_lens(problem: Problem) -> Sweep:
    """`run_with_hooks` on `hook_z`; raw weights, logits at the last position only."""
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(
        "same weights",  # a name is asked for, but with a model at hand nothing is looked up by it
        hf_model=problem.own_module(),
        tokenizer=copy.deepcopy(problem.tokenizer),  # the bridge changes its settings
        device=problem.ids.device,
        dtype=next(problem.module.parameters()).dtype,
    )

    def zero(index: int) -> Callable[..., Tensor]:
        def hook(z: Tensor, hook: object) -> Tensor:  # z: (prompts, tokens, heads, size)
            z[:, :, index] = 0
            return z

        return hook

    def sweep(heads: Sequence[Head]) -> Tensor:
        values = []
        for head in heads:
            logits = bridge.run_with_hooks(
                problem.ids,
                fwd_hooks=[(f"blocks.{head.layer}.attn.hook_z", zero(head.index))],
                use_cache=False,
                logits_to_keep=1,
            )
            values.append(target_logprob(logits[:, -1], problem.targets))
        return torch.stack(values)

    return sweep


def _nnsight_plain(problem: Problem) -> Sweep:
    """One trace per head; every layer, logits at the last position only."""
    import nnsight

    model = nnsight.NNsight(problem.own_module())
    layers = model.model.layers

    def sweep(heads: Sequence[Head]) -> Tensor:
        values = []
        for head in heads:
            columns = _columns(problem, head)
            with model.trace(input_ids=problem.ids, use_cache=False, logits_to_keep=1):
                layers[head.layer].self_attn.o_proj.input[..., columns] = 0
                logits = nnsight.save(model.lm_head.output)
            values.append(target_logprob(logits[:, -1], problem.targets))
        return torch.stack(values)

    return sweep


def _nnsight_expert(problem: Problem, *, contiguous: bool = False) -> Sweep:
    """Layer inputs saved once per sweep; then, per head, all layers before its own are skipped.

    `logits_to_keep=1` leaves the last positions apart in memory, and on a CPU torch then reads the
    whole unembedding once for each prompt. `contiguous` puts them side by side first.
    """
    import nnsight

    model = nnsight.NNsight(problem.own_module())
    layers = model.model.layers

    def sweep(heads: Sequence[Head]) -> Tensor:
        with model.trace(input_ids=problem.ids, use_cache=False, logits_to_keep=1):
            inputs = nnsight.save([layer.input for layer in layers])
        values = []
        for head in heads:
            columns = _columns(problem, head)
            with model.trace(input_ids=problem.ids, use_cache=False, logits_to_keep=1):
                for layer in layers[: head.layer]:
                    layer.skip(inputs[head.layer])  # only the last one's output is read
                layers[head.layer].self_attn.o_proj.input[..., columns] = 0
                if contiguous:
                    model.lm_head.input = model.lm_head.input.contiguous()
                logits = nnsight.save(model.lm_head.output)
            values.append(target_logprob(logits[:, -1], problem.targets))
        return torch.stack(values)

    return sweep


def _headcount(problem: Problem) -> Sweep:
    """`evaluate` as a user calls it, from texts to values, with the plan that it picks itself."""
    model = wrap(problem.own_module(), problem.tokenizer, name="headcount")
    model.short_cuts  # noqa: B018  proven once for each model

    def sweep(heads: Sequence[Head]) -> Tensor:
        gates = np.stack([model.layout.gates(off=[head]) for head in heads])
        values = evaluate(model, problem.task, gates, part="all", store=None, progress=False)
        return torch.from_numpy(values.values)

    return sweep


PLAIN, EXPERT = "plain", "nnsight_expert"
CONTESTANTS = {
    contestant.key: contestant
    for contestant in [
        Contestant(PLAIN, "plain hooks", "transformers", "transformers", _plain),
        Contestant(
            "transformer_lens",
            "TransformerLens",
            "transformer_lens",
            "transformer-lens",
            _transformer_lens,
        ),
        Contestant("nnsight_plain", "nnsight, plain", "nnsight", "nnsight", _nnsight_plain),
        Contestant(EXPERT, "nnsight, expert", "nnsight", "nnsight", _nnsight_expert),
        Contestant(
            "nnsight_tuned",
            "nnsight, expert, tuned",
            "nnsight",
            "nnsight",
            partial(_nnsight_expert, contiguous=True),
        ),
        Contestant("headcount", "headcount", "headcount", "headcount", _headcount),
    ]
}


def choose(keys: Iterable[str] | None) -> list[Contestant]:
    """The contestants with these keys, or all, in the order above."""
    wanted = set(CONTESTANTS if keys is None else keys)
    return [contestant for key, contestant in CONTESTANTS.items() if key in wanted]
