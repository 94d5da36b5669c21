"""Decoding under gates: greedy or sampled, each row under its own head set.

Where a model is proven to support it and the prompts suit it, our own loop over the key/value cache
does the decoding (see `steps`); otherwise the model's own `generate` does, with gated heads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.engine.measure.batch import shared_start
from headcount.engine.measure.forward import check_finite, fits, measuring
from headcount.engine.measure.plan import SHORTEST_PREFIX, default_tokens
from headcount.engine.write.continuous import MOST_SLOTS, Continuous, decodes_in_slots
from headcount.engine.write.prefix import Prefix, Prompt
from headcount.engine.write.sampling import FiniteCheck, Sampling
from headcount.engine.write.settings import Decoding
from headcount.engine.write.steps import Steps, ignores_gaps, pad_left, padding_ignored
from headcount.engine.write.stopping import Generation, Stopping, cut
from headcount.errors import HeadcountError
from headcount.heads import gates_by_label
from headcount.models.gate import gating
from headcount.models.late import depends_on_length
from headcount.models.memory import too_large
from headcount.models.model import Model, check_model
from headcount.models.sites import plain, probe_prompt
from headcount.registry import make_settings
from headcount.system.progress import progress as progress_bar
from headcount.tasks.encoding import one_bos
from headcount.tasks.task import HALF_PAIR, NOT_UNICODE

NOTHING_GATED = (
    'Scope "decode" does not gate the first new token, so with one new token these heads change '
    'nothing: ask for more new tokens, or use scope "all".'
)
_Run = Callable[[list[int]], "list[Generation]"]


def generate(
    model: Model,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    heads: Any = None,
    *,
    rows: int | None = None,
    share: bool = True,
    progress: bool = True,
    **settings: Any,
) -> list[Generation]:
    """Let the model continue each prompt under a head set.

    `heads` are the heads that are off, or gates: one row for all prompts or one row for each. A
    prefix that all prompts share runs once for each head set, unless `share` is False. The model's
    own generation settings are ignored (beams, penalties), except for its end tokens. Settings:

    max_new_tokens       a text is cut after this many new tokens (128)
    scope                "all" gates prompt and new tokens; "decode" gates only the passes over
                         single new tokens, so the first new token comes from the whole model
    temperature, top_p   0 is greedy; at any other temperature, the random numbers depend only on
    seed                 the prompt and the seed: for several texts, give several seeds
    stop                 strings that end a text; the text is cut before the first of them
    until                "boxed" ends a text with the token that completes its \\boxed{…}

    >>> from headcount import generate, load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> generate(model, ["The capital of France is"], max_new_tokens=1)[0].text
    ' Paris'
    """
    if isinstance(prompts, str):
        raise HeadcountError("Give a list of prompts, even if there is only one.")
    decoding = make_settings("generate", Decoding, settings)
    decoding.check(check_model(model))
    model.forget_changed()
    new = decoding.max_new_tokens
    ids = [_ids(model, prompt, new) for prompt in prompts]
    gates = None if heads is None else _gates(model, heads, len(ids))
    if gates is not None and decoding.scope == "decode" and new == 1:
        warnings.warn(NOTHING_GATED, stacklevel=2)
    job = _Job(model, decoding, ids, gates)
    results: dict[int, Generation] = {}

    def keep(run: _Run, batch: list[int]) -> None:
        results.update(zip(batch, run(batch), strict=True))

    def finish(number: int, new_tokens: list[int]) -> None:
        results[number] = job.generation(new_tokens)
        bar.update()

    with (
        progress_bar("decoding", len(ids), show=progress, unit="prompt") as bar,
        measuring(model),
    ):
        if ids and uses_slots(model, gated=gates is not None):
            job.continuous(share, finish).run(job.longest_first(), rows or MOST_SLOTS)
        else:
            run, batches = _choose_decoder(job, rows or rows_at_once(model, ids, new), share)
            for batch in _that_fit(job, lambda batch: keep(run, batch), batches):
                bar.update(len(batch))
    return [results[number] for number in range(len(ids))]


def _that_fit(
    job: _Job, run: Callable[[list[int]], None], batches: list[list[int]]
) -> Iterator[list[int]]:
    """Run each batch, halved until it fits into memory."""
    while batches:
        batch = batches.pop(0)
        if fits(job.model, partial(run, batch)):
            yield batch
        elif len(batch) == 1:
            raise too_large(job.model, len(job.ids[batch[0]]) + job.decoding.max_new_tokens)
        else:
            half = len(batch) // 2
            batches[:0] = [batch[:half], batch[half:]]


def uses_slots(model: Model, *, gated: bool) -> bool:
    """Whether to decode in slots: on a GPU, where the model is proven to support it."""
    return model.device.type == "cuda" and decodes_in_slots(model, gated)


def _choose_decoder(job: _Job, rows: int, share: bool) -> tuple[_Run, list[list[int]]]:
    """A function that decodes a batch (our own loop or the model's `generate`), and the batches."""
    model, ids = job.model, job.ids
    mixed = len(set(map(len, ids))) > 1  # whether the prompts have different lengths
    zeros = np.zeros(len(ids), dtype=int)
    by_generate = _batches(ids, rows, zeros, mixed and rows > 1 and not ignores_padding(model))
    if not ids or not model.fast_paths.cache:
        return job.generate, by_generate
    sets, row_of = job.head_sets
    prefix = job.prefix(share)
    block = max(1, rows * len(sets) // len(ids))  # head sets whose prompts fit into one batch
    batches = _batches(ids, rows, row_of // block, mixed and not ignores_gaps(model))
    if not prefix.tokens and len(batches) > 2 * len(by_generate):  # too many lengths for our loop
        return job.generate, by_generate
    ended = job.ended if job.decoding.stops or job.ends else None
    steps = Steps(prefix, job.decoding, ended)

    def by_steps(batch: list[int]) -> list[Generation]:
        texts = steps.run([ids[i] for i in batch], [int(row_of[i]) for i in batch])
        return [job.generation(text) for text in texts]

    return by_steps, batches


def _batches(
    ids: Sequence[Prompt], rows: int, block: Int[np.ndarray, "prompts"], apart: bool
) -> list[list[int]]:
    """Group the prompts of each block into batches of similar length, to need little padding.

    With `apart`, a batch holds prompts of one length only: the model does not ignore padding.
    """
    order = sorted(range(len(ids)), key=lambda i: (block[i], -len(ids[i]), i))
    alike = groupby(order, key=lambda i: (block[i], apart and len(ids[i])))
    groups = [list(group) for _, group in alike]
    return [group[start : start + rows] for group in groups for start in range(0, len(group), rows)]


def _ids(model: Model, prompt: str | Sequence[int], new: int) -> Prompt:
    if isinstance(prompt, str) and model.tokenizer is None:
        raise HeadcountError("Give prompts as token ids: this model has no tokenizer.")
    if isinstance(prompt, str) and HALF_PAIR.search(prompt):
        raise HeadcountError(f"A prompt is {NOT_UNICODE}: write it as Unicode text.")
    ids = tuple(map(int, model.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt))
    ids = one_bos(model.tokenizer, ids) if isinstance(prompt, str) else ids
    if not ids:
        raise HeadcountError("A prompt has no tokens: write at least one word.")
    model.check_known(ids, "A prompt")
    model.check_room(len(ids), new)
    return ids


def _gates(model: Model, heads: Any, prompts: int) -> Float[np.ndarray, "prompts heads"]:
    gates = np.array(list(gates_by_label(heads, model.layout).values()))
    if len(gates) not in (1, prompts):
        raise HeadcountError(
            f"Give one head set, or one for each of the {prompts} prompts, not {len(gates)}."
        )
    return np.broadcast_to(gates, (prompts, model.layout.total))


def rows_at_once(model: Model, ids: Sequence[Sequence[int]], new: int) -> int:
    """How many rows to decode at once: many, since every step reads all weights for any batch."""
    return max(1, 16 * default_tokens(model) // (max(map(len, ids), default=1) + new))


def ignores_padding(model: Model) -> bool:
    """Whether `generate` continues a left-padded prompt as it continues the prompt alone.

    A model may ignore padding in a single pass and yet count it while decoding, where `generate`
    does not pass the positions.
    """
    if depends_on_length(model.module):
        return False
    ids = tuple(probe_prompt(model.module, 1)[0].tolist())

    def logits(prompts: list[Prompt]) -> Sequence[Tensor]:
        written: Any = _decode(model, prompts, 3, set(), output_logits=True)
        steps: Sequence[Tensor] = written.logits
        return steps

    return padding_ignored(model, "padding", [ids, ids[4:]], logits)


@dataclass(frozen=True, eq=False)
class _Job:
    """Prompts to continue, each under its own gates."""

    model: Model
    decoding: Decoding
    ids: list[Prompt]
    gates: Float[np.ndarray, "prompts heads"] | None

    @cached_property
    def ends(self) -> set[int]:
        """Token ids that end a text."""
        return end_tokens(self.model)

    @cached_property
    def stopping(self) -> Stopping:
        """Ends a text by its content: at a stop string or by the rule `until`."""
        return Stopping(self.model, self.decoding)

    @cached_property
    def head_sets(self) -> tuple[Float[np.ndarray, "sets heads"], Int[np.ndarray, "prompts"]]:
        """The different head sets, and which of them each prompt has."""
        if self.gates is None:
            return np.zeros((1, 0)), np.zeros(len(self.ids), dtype=int)
        sets, row_of = np.unique(self.gates, axis=0, return_inverse=True)
        return sets, row_of.reshape(-1)

    def prefix(self, share: bool) -> Prefix:
        """The tokens with which all prompts start, if running them once for each head set pays."""
        sets, _ = self.head_sets
        shared = shared_start(self.ids) if share and len(self.ids) >= 2 * len(sets) else 0
        tokens = self.ids[0][:shared] if shared >= SHORTEST_PREFIX else ()
        gates = None if self.gates is None else sets
        return Prefix(self.model, gates, tokens, ungated=self.decoding.scope == "decode")

    def continuous(self, share: bool, finish: Callable[[int, list[int]], None]) -> Continuous:
        """A decoder that works in slots."""
        ended = self.ended if self.decoding.stops or self.ends else None
        sets = self.head_sets[1].tolist()
        return Continuous(self.prefix(share), self.decoding, ended, finish, self.ids, sets)

    def longest_first(self) -> list[int]:
        """The numbers of the prompts, those of a head set together."""
        _, row_of = self.head_sets
        return sorted(range(len(self.ids)), key=lambda i: (row_of[i], -len(self.ids[i]), i))

    def ended(self, rows: list[list[int]], new: int = 1) -> list[bool]:
        """Which rows have ended with one of their `new` last tokens."""
        stopped = self.stopping.ended(rows, new)
        return [
            end or any(token in self.ends for token in row[-new:])
            for end, row in zip(stopped, rows, strict=True)
        ]

    @torch.no_grad()
    def generate(self, batch: list[int]) -> list[Generation]:
        """Continue some of the prompts by the model's own `generate`."""
        model, module, decoding = self.model, plain(self.model.module), self.decoding
        prompts = [self.ids[number] for number in batch]
        new, width = decoding.max_new_tokens, max(map(len, prompts))
        finite = FiniteCheck()
        processors: list[Any] = [finite]
        with ExitStack() as stack:
            # Gating that starts inside `_decode` ends after it, and restores the stance that it
            # found there; this outer context then restores the caller's stance.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            if self.gates is not None:
                context = gating(module, model.sites, torch.from_numpy(self.gates[batch]))
                if decoding.scope == "all":
                    stack.enter_context(context)
                else:
                    processors.append(_GateAfterPrompt(model, context, stack))
            if decoding.temperature:
                processors.append(Sampling(decoding, prompts, new))
            criteria = [Stopping(model, decoding, width)] if decoding.stops else []
            output = _decode(model, prompts, new, self.ends, processors, criteria)
        check_finite(finite.result, model)
        return [self.generation(row) for row in output.sequences[:, width:].tolist()]

    def generation(self, ids: list[int]) -> Generation:
        """Decode new tokens and cut the text where it ends."""
        return cut(self.model, ids, self.ends, self.decoding)


def _decode(
    model: Model,
    prompts: Sequence[Prompt],
    new: int,
    ends: set[int],
    processors: Sequence[Any] = (),
    criteria: Sequence[Any] = (),
    **others: Any,
) -> Any:
    """The output of the model's `generate` for these prompts, padded on the left."""
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

    ids, padding = pad_left(prompts, 0, model.device)
    settings = GenerationConfig(
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=sorted(ends) or None,
        pad_token_id=min(ends, default=0),
        return_dict_in_generate=True,
        **others,
    )
    module: Any = plain(model.module)
    with _no_other_settings(module), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        return module.generate(
            ids,
            attention_mask=torch.ones_like(ids) if padding is None else padding.mask,
            generation_config=settings,
            logits_processor=LogitsProcessorList(processors),
            stopping_criteria=StoppingCriteriaList(criteria),
        )


@contextmanager
def _no_other_settings(module: nn.Module) -> Iterator[None]:
    """Hide the model's own generation settings, which `generate` would use as defaults."""
    from transformers import GenerationConfig

    tops = [module, getattr(module, "get_base_model", lambda: module)()]  # PEFT wraps the model
    before = [(top, top.generation_config) for top in tops if hasattr(top, "generation_config")]
    try:
        for top, _ in before:
            top.generation_config = GenerationConfig()
        yield
    finally:
        for top, settings in before:
            top.generation_config = settings


def end_tokens(model: Model) -> set[int]:
    """Token ids that end a text, from the model's generation settings and its tokenizer."""
    config = getattr(plain(model.module), "generation_config", None)
    ends = getattr(config, "eos_token_id", None)
    candidates = [*ends] if isinstance(ends, list | tuple) else [ends]
    candidates.append(getattr(model.tokenizer, "eos_token_id", None))
    return {int(end) for end in candidates if end is not None}


class _GateAfterPrompt:
    """Starts the gating after the pass over the prompt, for scope "decode"."""

    def __init__(self, model: Model, context: Any, stack: ExitStack) -> None:
        self.model, self.context, self.stack = model, context, stack
        self.started = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if not self.started:
            self.started = True
            self.stack.enter_context(self.context)
            embeddings: Any = plain(self.model.module).get_input_embeddings()  # type: ignore[operator]
            handle = embeddings.register_forward_pre_hook(self._require_single_tokens)
            self.stack.callback(handle.remove)
        return scores

    def _require_single_tokens(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        if args and args[0].shape[1] != 1:
            raise HeadcountError(
                f"{self.model.name} keeps no keys and values and reads its prompt again for every "
                'new token, so scope "decode" would gate the prompt too: use "all".'
            )
