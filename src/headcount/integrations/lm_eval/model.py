"""A model of lm-eval whose answers are headcount's own measurements under a head set.

lm-eval makes the prompts, their token ids and the scores. Log-probabilities and texts between them
come from a lab: from its store, or measured by the fast paths, for all head sets of a table at
once.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs

from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.measure.sweep import Sweep
from headcount.engine.write.writing import Sampled, Writing
from headcount.errors import HeadcountError
from headcount.heads import HeadSet
from headcount.lab import Lab, lab_for
from headcount.metrics.logits import SIGNED_LOGPROB
from headcount.models.model import Model, load_model
from headcount.models.sites import plain
from headcount.system.files import canonical
from headcount.tasks import Encoded, Example, Task
from headcount.tasks.lm_eval_docs import quiet_lm_eval

Ids = tuple[int, ...]
NOT_GREEDY = -0.5  # signed log-probabilities below belong to texts that greedy decoding leaves out
KNOWN = ("do_sample", "temperature", "top_p", "until", "max_gen_toks")  # settings of decoding


@dataclass(frozen=True, eq=False)
class TokenSweep(Sweep):
    """A sweep over examples that lm-eval has encoded."""

    encoded: tuple[Encoded, ...] = ()

    @cached_property
    def examples(self) -> list[Encoded]:
        """The examples as they were given."""
        return list(self.encoded)


@dataclass(frozen=True, eq=False)
class TokenWriting(Writing):
    """A request for the texts after prompts that lm-eval has encoded."""

    encoded: tuple[Encoded, ...] = ()

    @cached_property
    def examples(self) -> list[Encoded]:
        """The prompts as they were given."""
        return list(self.encoded)


@dataclass(frozen=True, eq=False)
class Asked:
    """What lm-eval asks for: one request of ours, and the place in it of each of lm-eval's."""

    request: TokenSweep | TokenWriting
    numbers: Sequence[int]  # of lm-eval's requests
    places: Sequence[int]

    def answers(self, lab: Lab) -> np.ndarray:
        """The answers of each head set, (sets, requests): texts, or log-probabilities and flags."""
        if isinstance(self.request, TokenWriting):
            return lab.write(self.request).texts[:, self.places]
        values = lab.measure(self.request).table[:, self.places]
        answers = np.empty(values.shape, dtype=object)
        for place, value in np.ndenumerate(values):
            answers[place] = -abs(float(value)), bool(value > NOT_GREEDY)
        return answers


@register_model("headcount")
class HeadcountLM(HFLM):  # type: ignore[misc]
    """A causal model under a head set, for `lm_eval` and `lm_eval.simple_evaluate`.

    model      a `Model`, or what `load_model` takes
    heads      the heads that are off, as names ("3.4 11.2"), or with `keep` the only ones that stay
    head_sets  in place of heads: a table of several, of which `row` is the one that answers
    lab        carries out what is asked (default: a lab with the user's store)

    All other arguments are those of `load_model`, and `max_length` and `add_bos_token` of lm-eval.
    """

    def __init__(
        self,
        model: Model | str,
        heads: Any = (),
        keep: bool = False,
        head_sets: HeadSets | None = None,
        lab: Lab | None = None,
        max_length: int | None = None,
        add_bos_token: bool | None = None,
        **loading: Any,
    ) -> None:
        for name in ("batch_size", "max_batch_size"):  # headcount batches by itself
            loading.pop(name, None)
        if str(loading.get("device")).startswith("cuda") and not torch.cuda.is_available():
            del loading["device"]  # lm_eval names one that this machine may not have
        self.headcount = model if isinstance(model, Model) else load_model(model, **loading)
        module, layout = plain(self.headcount.module), self.headcount.layout
        if self.headcount.tokenizer is None or not hasattr(module, "device"):
            raise HeadcountError("lm-eval needs a Hugging Face model with a tokenizer.")
        if isinstance(heads, int | float):
            raise HeadcountError(
                f"lm_eval reads the head as the number {heads}, in which 3.1 and 3.10 are the same "
                "head: write it in quotes, heads='3.10'."
            )
        self.head_sets = head_sets or HeadSets.of(HeadSet(heads, keep=keep), layout)
        self.row = 0
        self.lab = lab
        with quiet_lm_eval():
            super().__init__(
                module,
                tokenizer=copy.deepcopy(self.headcount.tokenizer),  # it gets a padding token
                max_length=max_length,
                add_bos_token=add_bos_token,
                batch_size=1 << 30,  # so that all windows of a long text are asked for at once
            )

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval records of the model."""
        return {"model_name": self.headcount.name, **self.headcount.facts}

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[Any]:
        """The log-probability of each continuation, and whether greedy decoding would write it."""
        return self._answers(self.asked(requests))

    def _loglikelihood_tokens(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
        pairs = [(tuple(context), tuple(target)) for _, context, target in requests]
        return self._answers([self._scoring("windows of texts", pairs, range(len(pairs)))])

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """The text that the model writes after each context."""
        return self._answers(self.asked(requests))

    def _answers(self, asked: Iterable[Asked]) -> list[Any]:
        lab = lab_for(self.lab, self.headcount)
        found: dict[int, Any] = {}
        for one in asked:
            found.update(zip(one.numbers, one.answers(lab)[self.row], strict=True))
        return [found[number] for number in sorted(found)]

    def asked(self, requests: Sequence[Any]) -> list[Asked]:
        """The measurements that answer these requests of lm-eval, of one benchmark at a time."""
        groups: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, request in enumerate(requests):
            groups[request.request_type, request.task_name or ""].append(number)
        asked = []
        for (kind, name), numbers in groups.items():
            chosen = [requests[number].args for number in numbers]
            if kind == "loglikelihood":
                pairs = [self._pair(*arguments[:2]) for arguments in chosen]
                asked.append(self._scoring(name, pairs, numbers))
            else:
                asked += self._writings(name, chosen, numbers)
        return asked

    def _pair(self, context: str, continuation: str) -> tuple[Ids, Ids]:
        """The ids of a context and its continuation, as lm-eval makes them."""
        if context:
            both = self._encode_pair(context, continuation)
            return tuple(both[0]), tuple(both[1])
        ids = tuple(self.tok_encode(continuation, add_special_tokens=False))
        first = self.prefix_token_id
        return (ids[:1], ids[1:]) if ids[:1] == (first,) else ((first,), ids)

    def _scoring(
        self, name: str, pairs: Sequence[tuple[Ids, Ids]], numbers: Sequence[int]
    ) -> Asked:
        """The log-probabilities of targets; what is too long loses its beginning, as in lm-eval."""
        different: dict[tuple[Ids, Ids], int] = {}
        places = []
        for context, target in pairs:
            if not target or len(target) > self.max_length:
                raise HeadcountError(
                    f"An answer of {name} has {len(target)} tokens, and {self.headcount.name} "
                    f"can score 1 to {self.max_length}: leave this benchmark out."
                )
            kept = (*context, *target)[-(self.max_length + 1) :]
            pair = kept[: len(kept) - len(target)], target
            places.append(different.setdefault(pair, len(different)))
        encoded = tuple(
            Encoded(_named(n, context, target), context, target, (), None)
            for n, (context, target) in enumerate(different)
        )
        task = Task(f"lm-eval: {name}", 1, tuple(one.example for one in encoded))
        about = self.headcount, task, SIGNED_LOGPROB, self.head_sets
        return Asked(TokenSweep(*about, "all", encoded=encoded), numbers, places)

    def _writings(
        self, name: str, arguments: Sequence[Any], numbers: Sequence[int]
    ) -> Iterator[Asked]:
        """The texts after prompts: one request for each way of decoding."""
        groups: dict[str, dict[int, Ids]] = defaultdict(dict)
        settings: dict[str, dict[str, Any]] = {}
        before: Counter[str] = Counter()
        for number, (context, how) in zip(numbers, arguments, strict=True):
            chosen = self._decoding(name, how)
            again = canonical({**chosen, "prompt": context})
            # A prompt that is asked for several times is sampled with as many seeds.
            chosen["seed"] = before[again] if chosen["temperature"] else 0
            before[again] += 1
            room = self.max_length - chosen["max_new_tokens"]
            groups[canonical(chosen)][number] = tuple(
                self.tok_encode(context, left_truncate_len=room)
            )
            settings[canonical(chosen)] = chosen
        for key, prompts in groups.items():
            yield self._writing(name, prompts, **settings[key])

    def _writing(
        self,
        name: str,
        prompts: Mapping[int, Ids],
        stop: Sequence[str],
        max_new_tokens: int,
        **how: Any,
    ) -> Asked:
        order = {ids: place for place, ids in enumerate(dict.fromkeys(prompts.values()))}
        encoded = tuple(Encoded(_named(n, ids), ids, (), (), None) for ids, n in order.items())
        examples = tuple(one.example for one in encoded)
        limits: dict[str, Any] = {"stop": tuple(stop), "max_new_tokens": max_new_tokens}
        request = TokenWriting(
            self.headcount,
            Task(f"lm-eval: {name}", 1, examples, **limits),
            self.head_sets,
            "all",
            sampled=Sampled(**how),
            strip=False,
            encoded=encoded,
        )
        return Asked(request, list(prompts), [order[ids] for ids in prompts.values()])

    def _decoding(self, name: str, how: dict[str, Any]) -> dict[str, Any]:
        """The settings of decoding that a benchmark asks for; those that we lack are refused."""
        chosen: dict[str, Any] = normalize_gen_kwargs(how, self.max_gen_toks)
        unknown = [setting for setting in chosen if setting not in KNOWN]
        if unknown:
            raise HeadcountError(
                f"{name} asks for the decoding setting {unknown[0]}, which headcount does not "
                f"have: override it in a task file of your own (it has: {', '.join(KNOWN)})."
            )
        if chosen["max_gen_toks"] >= self.max_length:
            raise HeadcountError(
                f"{name} asks for {chosen['max_gen_toks']} new tokens, and {self.headcount.name} "
                f"reads {self.max_length} in all: lower max_gen_toks in a task file of your own."
            )
        end = self.tok_decode(self.eot_token_id, skip_special_tokens=False)
        return {
            "temperature": chosen["temperature"] if chosen["do_sample"] else 0.0,
            "top_p": float(chosen.get("top_p", 1.0)),
            "stop": [text for text in handle_stop_sequences(chosen["until"], eos=end) if text],
            "max_new_tokens": chosen["max_gen_toks"],
        }


def _named(number: int, prompt: Ids, target: Ids = ()) -> Example:
    """An example for messages: what is measured are the ids."""
    return Example(str(number), f"{len(prompt)} tokens", f"{len(target)} tokens, {number}")
