"""Decoding under gates: greedy or sampled, each row under its own head set.

Prompts go through the key/value cache step by step (see `steps`) where a model is proven to carry
that and the prompts suit it; otherwise its own `generate` does the decoding, and gates act inside.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.engine.measure.forward import check_finite, measuring, out_of_memory, too_large
from headcount.engine.measure.plan import SHORTEST_PREFIX, default_tokens
from headcount.engine.write.sampling import Sampling, Watch
from headcount.engine.write.steps import Pick, Steps, bears_gaps, shared_start
from headcount.engine.write.stopping import Generation, Stopping, cut
from headcount.errors import HeadcountError, did_you_mean
from headcount.heads import as_gates
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.models.sites import coarsest_dtype, plain, probe_prompt
from headcount.models.slices import tolerance
from headcount.system.progress import progress as progress_bar
from headcount.tasks.answer_endings import check_ending

Scope = Literal["all", "decode"]
_Run = Callable[[list[int]], "list[Generation]"]


def generate(
    model: Model,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    heads: Any = None,
    *,
    max_new_tokens: int = 128,
    scope: Scope = "all",
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: str | Sequence[str] = (),
    until: str = "",
    rows: int | None = None,
    share: bool = True,
    progress: bool = True,
) -> list[Generation]:
    """Let the model continue each prompt under a head set.

    `heads` is a list of heads that are off, or gates: one row for all prompts or one for each.
    Scope "all" gates prompt and new tokens; "decode" gates only the passes over single new tokens,
    so the first new token comes from the whole model. Temperature 0 is greedy; at any other, a
    prompt and a seed always draw the same numbers: for several texts, give several seeds. Text from
    one of the `stop` strings on is cut off; `until` "boxed" ends a text with the token that
    completes its box (see `tasks.endings`). What all prompts start with runs once for each head
    set, unless `share` is False. Of the model's own generation settings only the end tokens are
    heeded: no beams, no penalties.

    >>> from headcount import generate, load_model
    >>> model = load_model("smollm2-135m")
    >>> generate(model, ["The capital of France is"], max_new_tokens=1)[0].text
    ' Paris'
    """
    if isinstance(prompts, str):
        raise HeadcountError("Give a list of prompts, even where there is only one.")
    stop = [stop] if isinstance(stop, str) else list(stop)
    _check(model, scope, max_new_tokens, temperature, top_p, stop, until)
    ids = [_ids(model, prompt, max_new_tokens) for prompt in prompts]
    gates = None if heads is None else _gates(model, heads, len(ids))
    if gates is not None and scope == "decode" and max_new_tokens == 1:
        warnings.warn(
            'Scope "decode" leaves the first new token as it is, so with one new token these heads '
            "change nothing.",
            stacklevel=2,
        )
    sampler = None if temperature == 0 else partial(Sampling, temperature, top_p, seed)
    job = _Job(model, max_new_tokens, scope, stop, until, sampler, share)
    results: dict[int, Generation] = {}
    at_once = rows or rows_at_once(model, ids, max_new_tokens)
    with (
        progress_bar("decoding", len(ids), show=progress, unit="prompt") as bar,
        measuring(model),
    ):
        run, batches = _ways(job, ids, gates, at_once)
        while batches:
            batch = batches.pop(0)
            texts = job.within_memory(run, batch)
            if texts is None:
                if len(batch) == 1:
                    raise too_large(model, len(ids[batch[0]]) + max_new_tokens)
                half = len(batch) // 2
                batches[:0] = [batch[:half], batch[half:]]
                continue
            results.update(zip(batch, texts, strict=True))
            bar.update(len(batch))
    return [results[place] for place in range(len(ids))]


def _ways(
    job: _Job,
    ids: Sequence[tuple[int, ...]],
    gates: Float[np.ndarray, "prompts heads"] | None,
    rows: int,
) -> tuple[_Run, list[list[int]]]:
    """How to decode a batch of the prompts, and the batches."""
    by_generate = [] if not ids else _batches(job.model, ids, rows)

    def generate(batch: list[int]) -> list[Generation]:
        return job.generate([ids[i] for i in batch], None if gates is None else gates[batch])

    if not ids or not job.model.short_cuts.cache:
        return generate, by_generate
    sets, place = np.zeros((1, 0)), np.zeros(len(ids), dtype=int)
    if gates is not None:
        sets, place = np.unique(gates, axis=0, return_inverse=True)
        place = place.reshape(-1)
    shared = shared_start(ids) if job.share and len(ids) >= 2 * len(sets) else 0
    prefix = ids[0][:shared] if shared >= SHORTEST_PREFIX else ()
    block = max(1, rows * len(sets) // len(ids))  # head sets whose prompts fit into one batch
    mixed = len(set(map(len, ids))) > 1 and bears_gaps(job.model)
    length = (lambda i: 0) if mixed else (lambda i: len(ids[i]))
    order = sorted(range(len(ids)), key=lambda i: (place[i] // block, -len(ids[i]), i))
    batches = [
        group[start : start + rows]
        for _, found in groupby(order, key=lambda i: (place[i] // block, length(i)))
        for group in [list(found)]
        for start in range(0, len(group), rows)
    ]
    if not prefix and len(batches) > 2 * len(by_generate):  # too many lengths
        return generate, by_generate
    steps = job.steps(None if gates is None else sets, prefix)

    def by_steps(batch: list[int]) -> list[Generation]:
        texts = steps.run([ids[i] for i in batch], [int(place[i]) for i in batch])
        return [job.generation(text) for text in texts]

    return by_steps, batches


def check_scope(scope: str) -> None:
    """Refuse a scope that there is not."""
    if scope not in get_args(Scope):
        raise HeadcountError(
            f'There is no scope "{scope}" (known: {", ".join(get_args(Scope))}).'
            f"{did_you_mean(scope, get_args(Scope))}"
        )


def _check(
    model: Model,
    scope: str,
    new: int,
    temperature: float,
    top_p: float,
    stop: Sequence[str],
    until: str,
) -> None:
    check_scope(scope)
    check_ending(until)
    if new < 1:
        raise HeadcountError(f"Ask for at least one new token, not {new}.")
    if not (temperature >= 0 and 0 < top_p <= 1):
        raise HeadcountError("The temperature must be at least 0, and top_p above 0 and at most 1.")
    if not all(stop):
        raise HeadcountError("A stop string is empty, which would end every text at once.")
    if (stop or until) and model.tokenizer is None:
        raise HeadcountError("Stop strings need a tokenizer, which this model was given none of.")
    if not hasattr(plain(model.module), "generate"):
        raise HeadcountError(
            f"{model.name} cannot decode: it has no `generate`, as Hugging Face models do."
        )


def _ids(model: Model, prompt: str | Sequence[int], new: int) -> tuple[int, ...]:
    if isinstance(prompt, str) and model.tokenizer is None:
        raise HeadcountError("Give prompts as token ids: this model was given no tokenizer.")
    found = tuple(map(int, model.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt))
    if not found:
        raise HeadcountError("A prompt has no tokens: write at least one word.")
    limit = context_limit(model)
    if limit is not None and limit < len(found) + new - 1:  # the last one is not read
        raise HeadcountError(
            f"A prompt of {len(found)} tokens and {new} new ones do not fit into the {limit} that "
            f"{model.name} can read: shorten the prompt or ask for fewer new tokens."
        )
    return found


def context_limit(model: Model) -> int | None:
    """How many tokens the model can read, by its own settings; None where they do not say."""
    config = getattr(plain(model.module), "config", None)
    text = getattr(config, "get_text_config", lambda: config)()
    limit = getattr(text, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def _gates(model: Model, heads: Any, prompts: int) -> Float[np.ndarray, "prompts heads"]:
    gates = as_gates(heads, model.layout)
    if len(gates) not in (1, prompts):
        raise HeadcountError(
            f"Give one row of gates or one for each of the {prompts} prompts, not {len(gates)}."
        )
    return np.broadcast_to(gates, (prompts, model.layout.total))


def rows_at_once(model: Model, ids: Sequence[Sequence[int]], new: int) -> int:
    """Decoding reads all weights for each token: many rows at once, while their caches fit."""
    return max(1, 16 * default_tokens(model) // (max(map(len, ids), default=1) + new))


def _batches(model: Model, ids: Sequence[Sequence[int]], rows: int) -> list[list[int]]:
    """Prompts of like length together, so that there is little padding.

    Where a model does not bear padding on the left, only prompts of one length go together.
    """
    order = sorted(range(len(ids)), key=lambda place: (-len(ids[place]), place))
    alike = [order]
    if rows > 1 and len({len(prompt) for prompt in ids}) > 1 and not bears_padding(model):
        alike = [list(group) for _, group in groupby(order, key=lambda place: len(ids[place]))]
    return [group[start : start + rows] for group in alike for start in range(0, len(group), rows)]


_BEARS_PADDING: WeakKeyDictionary[Model, bool] = WeakKeyDictionary()


def bears_padding(model: Model) -> bool:
    """Whether a prompt padded on the left is continued as it is alone; proven when first asked for.

    A model may bear padding in a pass and yet count it while decoding, where `generate` does not
    tell it the positions.
    """
    if model not in _BEARS_PADDING:
        long = tuple(probe_prompt(model.module, 1)[0].tolist())
        short = long[4:]
        decode = partial(_decode, model, new=3, ends=set(), output_logits=True)
        try:
            together, alone = decode([long, short]).logits, decode([short]).logits
            errors = [
                float((a[1:] - b).abs().max() / b.abs().max())
                for a, b in zip(together, alone, strict=True)
            ]
            _BEARS_PADDING[model] = max(errors) <= tolerance(coarsest_dtype(model.module))
        except Exception:  # a model that padding breaks in any way does without it
            _BEARS_PADDING[model] = False
    return _BEARS_PADDING[model]


@dataclass(frozen=True)
class _Job:
    """What is asked of every batch."""

    model: Model
    new: int
    scope: Scope
    stop: list[str]
    until: str
    sampler: Any
    share: bool = True  # what all prompts start with runs once

    @cached_property
    def ends(self) -> set[int]:
        """Token ids that end a text."""
        return _ends(self.model)

    @property
    def stops(self) -> bool:
        """Whether a text may end by what it says."""
        return bool(self.stop or self.until)

    def within_memory(self, run: _Run, batch: list[int]) -> list[Generation] | None:
        """The continuations of some prompts, or None where memory is too short for them."""
        try:
            return run(batch)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def steps(
        self, gates: Float[np.ndarray, "sets heads"] | None, prefix: tuple[int, ...]
    ) -> Steps:
        """The way through the cache, for prompts that all start with `prefix`."""
        stopping = Stopping(self.model, self.stop, self.until) if self.stops else None

        def ended(rows: list[list[int]]) -> list[bool]:
            stopped = [False] * len(rows) if stopping is None else stopping.ended(rows)
            return [end or row[-1] in self.ends for end, row in zip(stopped, rows, strict=True)]

        def pick(prompts: Sequence[tuple[int, ...]]) -> Pick:
            draw: Pick = self.sampler(prompts, self.new).draw
            return draw

        return Steps(
            self.model,
            gates,
            prefix,
            self.scope == "decode",
            self.new,
            None if self.sampler is None else pick,
            ended if self.stops or self.ends else None,
        )

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[tuple[int, ...]], gates: Float[np.ndarray, "rows heads"] | None
    ) -> list[Generation]:
        """The way through the model's own `generate`."""
        model, module = self.model, plain(self.model.module)
        watch = Watch()
        processors: list[Any] = [watch]
        with ExitStack() as stack:
            # Gates that start within `generate` end after it: what they find must not be its own.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            if gates is not None:
                context = gating(module, model.sites, torch.from_numpy(gates.copy()))
                if self.scope == "all":
                    stack.enter_context(context)
                else:
                    processors.append(_AfterThePrompt(model, context, stack))
            if self.sampler is not None:
                processors.append(self.sampler(prompts, self.new))
            width = max(map(len, prompts))
            criteria = [Stopping(model, self.stop, self.until, width)] if self.stops else []
            output = _decode(model, prompts, self.new, self.ends, processors, criteria)
        check_finite(watch.found, model)
        return [self.generation(row) for row in output.sequences[:, width:].tolist()]

    def generation(self, ids: list[int]) -> Generation:
        """New tokens as a text."""
        return cut(self.model, ids, self.ends, self.stop, self.until)


def _decode(
    model: Model,
    prompts: Sequence[tuple[int, ...]],
    new: int,
    ends: set[int],
    processors: Sequence[Any] = (),
    criteria: Sequence[Any] = (),
    **others: Any,
) -> Any:
    """What `generate` gives for these prompts, padded on the left so that all go on in step."""
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
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
            ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=settings,
            logits_processor=LogitsProcessorList(processors),
            stopping_criteria=StoppingCriteriaList(criteria),
        )


@contextmanager
def _no_other_settings(module: nn.Module) -> Iterator[None]:
    """Keep a model's own generation settings out: `generate` takes from them what is not given."""
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


def _ends(model: Model) -> set[int]:
    """Token ids that end a text, by the model's own settings and its tokenizer."""
    config = getattr(plain(model.module), "generation_config", None)
    ends = getattr(config, "eos_token_id", None)
    found = set(ends if isinstance(ends, list | tuple) else [ends])
    found.add(getattr(model.tokenizer, "eos_token_id", None))
    return {int(end) for end in found if end is not None}


class _AfterThePrompt:
    """Starts gating when the pass over the prompt has ended."""

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
                'new token: scope "decode" cannot leave the prompt alone, use "all".'
            )
