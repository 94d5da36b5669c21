"""Ways to switch off sets of heads, each as its own documentation or its experts write it.

Every contestant gets the same weights, prompts and head sets, and gives the log-probability of the
target at the last position for each set and prompt. All run without gradients and without a
key/value cache of their own, and leave their results on the device until the end where they can.
"""

from __future__ import annotations

import copy
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from problem import HeadSet, Problem
from torch import Tensor, nn

from headcount import Lab, evaluate, wrap
from headcount.models.forward_modes import instead

Sweep = Callable[[Sequence[HeadSet]], Tensor]  # head sets → log-probabilities (sets, prompts)
Hook = Callable[..., Any]


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


def by_layer(heads: HeadSet) -> dict[int, list[int]]:
    """The heads of a set in each layer that has any, first layer first."""
    found: dict[int, list[int]] = {}
    for head in sorted(heads):
        found.setdefault(head.layer, []).append(head.index)
    return found


def masks(problem: Problem, sets: Sequence[HeadSet]) -> list[dict[int, Tensor]]:
    """For each set and each layer with heads in it: 0 at these heads' columns, 1 elsewhere.

    Sent to the device in one piece, so that nobody waits for it in the middle of a sweep.
    """
    size = problem.head_size
    layers = [(place, layer) for place, heads in enumerate(sets) for layer in by_layer(heads)]
    keep = torch.ones(len(layers), problem.layout.counts[0] * size)
    for row, (place, layer) in enumerate(layers):
        for index in by_layer(sets[place])[layer]:
            keep[row, index * size : (index + 1) * size] = 0
    there = keep.to(problem.ids.device, next(problem.module.parameters()).dtype)
    found: list[dict[int, Tensor]] = [{} for _ in sets]
    for row, (place, layer) in enumerate(layers):
        found[place][layer] = there[row]
    return found


def masked(keep: Tensor) -> Hook:
    """A forward pre-hook that sets the columns of absent heads to zero."""

    def hook(_: object, args: tuple[Tensor, ...]) -> None:
        args[0].mul_(keep)

    return hook


def projections(model: Any) -> list[nn.Module]:
    """The output projections of a Llama-like model."""
    return [layer.self_attn.o_proj for layer in model.model.layers]


def hooked(model: Any, mask: dict[int, Tensor], stack: ExitStack) -> None:
    """Switch heads off until the stack is left."""
    for layer, keep in mask.items():
        handle = projections(model)[layer].register_forward_pre_hook(masked(keep))
        stack.callback(handle.remove)


def _plain(problem: Problem) -> Sweep:
    """A hook on the output projection's input; every layer, all logits."""
    model, ids = problem.own_module(), problem.ids

    def sweep(sets: Sequence[HeadSet]) -> Tensor:
        values = []
        for mask in masks(problem, sets):
            with ExitStack() as stack:
                hooked(model, mask, stack)
                logits = model(input_ids=ids, use_cache=False).logits  # (prompts, tokens, vocab)
            values.append(target_logprob(logits[:, -1], problem.targets))
        return torch.stack(values)

    return sweep


def _by_hand(problem: Problem) -> Sweep:
    """What an expert writes with torch alone: layer inputs kept once per sweep, then, per head
    set, no layer before its first head and no logits but the last.
    """
    model = problem.own_module()
    layers = model.model.layers
    few = {"input_ids": problem.ids, "use_cache": False, "logits_to_keep": 1}

    def sweep(sets: Sequence[HeadSet]) -> Tensor:
        inputs: dict[int, Tensor] = {}

        def keep(number: int) -> Hook:
            def hook(_: object, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
                inputs[number] = args[0] if args else kwargs["hidden_states"]

            return hook

        with ExitStack() as stack:
            for number, layer in enumerate(layers):
                handle = layer.register_forward_pre_hook(keep(number), with_kwargs=True)
                stack.callback(handle.remove)
            whole = model(**few).logits
        values = []
        for mask in masks(problem, sets):
            if not mask:
                values.append(target_logprob(whole[:, -1], problem.targets))
                continue
            with ExitStack() as stack:
                first = min(mask)
                for layer in layers[:first]:
                    stack.enter_context(instead(layer, lambda *_, x=inputs[first], **__: x))
                hooked(model, mask, stack)
                logits = model(**few).logits
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

    def off(keep: Tensor) -> Hook:
        def hook(z: Tensor, hook: object) -> Tensor:  # z: (prompts, tokens, heads, size)
            return z.mul_(keep.view(z.shape[2:]))

        return hook

    def sweep(sets: Sequence[HeadSet]) -> Tensor:
        values = []
        for mask in masks(problem, sets):
            logits = bridge.run_with_hooks(
                problem.ids,
                fwd_hooks=[
                    (f"blocks.{layer}.attn.hook_z", off(keep)) for layer, keep in mask.items()
                ],
                use_cache=False,
                logits_to_keep=1,
            )
            values.append(target_logprob(logits[:, -1], problem.targets))
        return torch.stack(values)

    return sweep


def _nnsight_plain(problem: Problem) -> Sweep:
    """One trace per head set; every layer, logits at the last position only."""
    import nnsight

    model = nnsight.NNsight(problem.own_module())
    layers = model.model.layers

    def sweep(sets: Sequence[HeadSet]) -> Tensor:
        values = []
        for mask in masks(problem, sets):
            with model.trace(input_ids=problem.ids, use_cache=False, logits_to_keep=1):
                for layer, keep in mask.items():
                    projection = layers[layer].self_attn.o_proj
                    projection.input = projection.input * keep
                logits = nnsight.save(model.lm_head.output)
            values.append(target_logprob(logits[:, -1], problem.targets))
        return torch.stack(values)

    return sweep


def _nnsight_expert(problem: Problem, *, contiguous: bool = False) -> Sweep:
    """Layer inputs saved once per sweep; then all layers before the first head are skipped.

    `logits_to_keep=1` leaves the last positions apart in memory, and on a CPU torch then reads the
    whole unembedding once for each prompt. `contiguous` puts them side by side first.
    """
    import nnsight

    model = nnsight.NNsight(problem.own_module())
    layers = model.model.layers

    def sweep(sets: Sequence[HeadSet]) -> Tensor:
        with model.trace(input_ids=problem.ids, use_cache=False, logits_to_keep=1):
            inputs = nnsight.save([layer.input for layer in layers])
        values = []
        for mask in masks(problem, sets):
            first = min(mask, default=0)
            with model.trace(input_ids=problem.ids, use_cache=False, logits_to_keep=1):
                for layer in layers[:first]:
                    layer.skip(inputs[first])  # only the last one's output is read
                for number, keep in mask.items():
                    projection = layers[number].self_attn.o_proj
                    projection.input = projection.input * keep
                if contiguous:
                    model.lm_head.input = model.lm_head.input.contiguous()
                logits = nnsight.save(model.lm_head.output)
            values.append(target_logprob(logits[:, -1], problem.targets))
        return torch.stack(values)

    return sweep


def pyvene() -> Any:
    """The package; the plots that it imports beside are not needed where matplotlib is missing."""
    names = ("matplotlib", "matplotlib.pyplot") if find_spec("matplotlib") is None else ()
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    try:
        import pyvene
    finally:
        for name in names:
            del sys.modules[name]
    return pyvene


def intervened(module: nn.Module, mask: dict[int, Tensor]) -> Any:
    """pyvene's model with an intervention on each output projection that has absent heads."""
    representations = [
        {
            "component": f"model.layers[{layer}].self_attn.o_proj.input",
            "intervention": lambda base, source, keep=keep: base * keep,
        }
        for layer, keep in mask.items()
    ]
    return pyvene().IntervenableModel(representations, model=module)


def _pyvene(problem: Problem) -> Sweep:
    """An `IntervenableModel` for each head set, logits at the last position only."""
    module = problem.own_module()
    pyvene()

    def sweep(sets: Sequence[HeadSet]) -> Tensor:
        values = []
        base = {"input_ids": problem.ids, "logits_to_keep": 1}
        for mask in masks(problem, sets):
            if mask:
                _, output = intervened(module, mask)(base, use_cache=False)
            else:
                output = module(**base, use_cache=False)
            values.append(target_logprob(output.logits[:, -1], problem.targets))
        return torch.stack(values)

    return sweep


def _headcount(problem: Problem) -> Sweep:
    """`evaluate` as a user calls it, from texts to values, with the plan that it picks itself."""
    model = wrap(problem.own_module(), problem.tokenizer, name="headcount")
    model.fast_paths  # noqa: B018  proven once for each model

    def sweep(sets: Sequence[HeadSet]) -> Tensor:
        gates = np.stack([model.layout.gates(off=heads) for heads in sets])
        values = evaluate(
            model, problem.task, gates, split="all", metric="logprob", lab=Lab(store=None)
        )
        return torch.from_numpy(values.values)

    return sweep


PLAIN, EXPERT = "plain", "nnsight_expert"
CONTESTANTS = {
    contestant.key: contestant
    for contestant in [
        Contestant(PLAIN, "plain hooks", "transformers", "transformers", _plain),
        Contestant("by_hand", "expert, by hand", "transformers", "transformers", _by_hand),
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
        Contestant("pyvene", "pyvene", "pyvene", "pyvene", _pyvene),
        Contestant("headcount", "headcount", "headcount", "headcount", _headcount),
    ]
}


def choose(keys: Iterable[str] | None) -> list[Contestant]:
    """The contestants with these keys, or all, in the order above."""
    wanted = set(CONTESTANTS if keys is None else keys)
    return [contestant for key, contestant in CONTESTANTS.items() if key in wanted]
