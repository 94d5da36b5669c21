"""A language model whose head sites are proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from headcount.errors import HeadcountError, unknown
from headcount.figures.html import frame, table
from headcount.heads import UNITS, HeadLayout, Unit
from headcount.models.bundled import full_name
from headcount.models.fast_paths import FastPaths
from headcount.models.fingerprint import (
    checksum,
    fingerprint_tensors,
    fingerprint_tokenizer,
    settings_of,
)
from headcount.models.forward_modes import PASSES, exactly
from headcount.models.gate import require_one_process
from headcount.models.key_value import (
    KeyValueHeads,
    by_key_value_head,
    prove_streaming,
    read_key_values,
)
from headcount.models.load import load_pretrained
from headcount.models.proof import Proof, prove, require_language_model
from headcount.models.prove_fast_paths import prove_fast_paths, prove_late, prove_scored_logits
from headcount.models.remember_proof import Memory, is_hooked
from headcount.models.sites import HeadSite, input_device, is_unloaded, plain
from headcount.models.weights import quantised_as, weights_in_words
from headcount.system.fingerprint import as_json, fingerprint_files
from headcount.system.transformers_compat import attention_configs, kernel_of
from headcount.tasks.encoding import Encoded, encode, front_ids, own_prefix
from headcount.tasks.task import Task, quoted

SLOTS = "_slots"  # under this name a model keeps the slots of its last decoding (`slots_for`)


@dataclass(frozen=True, eq=False)
class Model:
    """A Hugging Face causal LM, its tokenizer, and its proven head sites.

    Made by `load_model` or `wrap`; the module inside is the user's own and is never changed.

    >>> from headcount import load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> model.name, str(model.layout), len(model.sites)
    ('smollm2-135m-q4', '270 heads in 30 layers', 30)
    """

    module: nn.Module
    tokenizer: Any
    name: str
    proof: Proof = field(repr=False)
    weight_files: Sequence[Path] | None = field(default=None, repr=False)
    # The arguments of `load_model`, so that a worker process can load the same model.
    origin: Mapping[str, Any] | None = field(default=None, repr=False)
    memory: Memory | None = field(default=None, repr=False)  # what is remembered of its proofs
    file_format: str = field(default="", repr=False)  # of weights that a file has in fewer bits
    # Which ways of decoding were proven on this model, by name.
    proven: dict[str, bool] = field(default_factory=dict, repr=False)
    # The same model gated by query heads, if this one is gated by key/value heads.
    by_query: Model | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        known = None if self.memory is None else self.memory.checksum
        vars(self)["_checksum"] = known or checksum(plain(self.module))
        vars(self)["_setup"] = self._setup_now()

    def notice_changes(self) -> None:
        """Forget the identity of the model if somebody has changed its weights or settings.

        Values that a store keeps for the old ones are then no longer found.
        """
        self.forget_changed()
        identity = vars(self).get("identity")
        if identity is None and self.weight_files is None:
            return  # it will be made from the weights as they are then
        now = checksum(plain(self.module))
        if now != vars(self)["_checksum"]:
            vars(self).update(_checksum=now, weight_files=None)
            vars(self).pop("identity", None)
        elif identity and identity["kernel"] != self.kernel:
            del vars(self)["identity"]

    def forget_changed(self) -> None:
        """Forget fast paths that were proven with other settings, kernels or devices."""
        now = self._setup_now()
        if now != vars(self)["_setup"]:
            vars(self)["_setup"] = now
            self.proven.clear()
            for name in ("fast_paths", "scores_alone", "late", "device", "dtype", "spread", SLOTS):
                vars(self).pop(name, None)

    def _setup_now(self) -> Any:
        module = plain(self.module)
        kernels = [str(kernel_of(config)) for config in attention_configs(self.module)]
        where = {(parameter.device, parameter.dtype) for parameter in module.parameters()}
        return as_json(settings_of(module)), kernels, where

    def __repr__(self) -> str:
        return f"<Model {self.name}: {', '.join(self._facts().values())}>"

    def _repr_html_(self) -> str:
        checks = [[f"✓ {check.statement}"] for check in self.proof.checks]
        facts = [[name, text] for name, text in self._facts().items()]
        return frame(self.name, table(["", ""], facts), table(["proven"], checks))

    def _facts(self) -> dict[str, str]:
        """The facts that `repr` shows, by name."""
        shapes = dict.fromkeys(f"{site.heads} × {site.size}" for site in self.sites)
        return {
            "class": type(plain(self.module)).__name__,
            "heads": str(self.layout),
            "heads × size": " or ".join(shapes),
            "weights": "not loaded"
            if is_unloaded(self.module)
            else f"{self.precision} on {self.device}",
            "attention": self.kernel,
        }

    @property
    def unit(self) -> Unit:
        """What the layout counts: query heads, or key/value heads (`by_key_value_heads`)."""
        return "head" if self.by_query is None else "kv"

    @property
    def sites(self) -> tuple[HeadSite, ...]:
        """The head sites, in the order in which they run."""
        return self.proof.sites

    @cached_property
    def layout(self) -> HeadLayout:
        """How many heads each site has."""
        return HeadLayout(tuple(site.heads for site in self.sites), self.unit)

    @cached_property
    def key_values(self) -> tuple[KeyValueHeads, ...]:
        """The key/value heads of each layer, proven on first access; refused where none are seen.

        The first access must not be under gates.
        """
        if self.by_query is not None:
            return self.by_query.key_values
        require_one_process(self.sites, "Gating by key/value heads")
        return read_key_values(self.module, self.sites)

    def by_key_value_heads(self) -> Model:
        """The same model, gated by key/value heads: each stands for all of its query heads.

        Whatever takes a model then works with key/value heads in place of heads, under names such
        as "3.1".

        >>> from headcount import load_model
        >>> print(load_model("smollm2-135m-q4").by_key_value_heads().layout)
        90 key/value heads in 30 layers
        """
        if self.by_query is not None:
            return self
        proof = replace(self.proof, sites=by_key_value_head(self.sites, self.key_values))
        origin = None if self.origin is None else {**self.origin, "unit": "kv"}
        return replace(self, proof=proof, origin=origin, by_query=self)

    def require_streaming(self) -> None:
        """Refuse a model whose heads cannot be let stream; tried once."""
        require_one_process(self.sites, "Streaming attention")
        if not self.proven.get("streaming"):
            prove_streaming(self.module, (self.by_query or self).sites)
            self.proven["streaming"] = True

    @cached_property
    def fast_paths(self) -> FastPaths:
        """The fast paths that reproduce this model's logits, proven on first access.

        The first access must not be under gates or anything else that changes the logits.
        """
        with PASSES, torch.compiler.set_stance("force_eager"):
            paths: FastPaths = self._find(
                "paths", lambda: prove_fast_paths(self.module, self.sites)
            )
            return paths

    @property
    def known_paths(self) -> FastPaths | None:
        """The fast paths, if they are known without a proof."""
        if "fast_paths" in vars(self):
            return self.fast_paths
        known = self.memory is not None and self.memory.known.paths is not None
        return self.fast_paths if known and self.memory and self.memory.holds() else None

    @cached_property
    def scores_alone(self) -> bool:
        """Whether logits can be computed at the scored positions only, proven on first access.

        This is the one fast path whose proof is so short that it pays in the smallest work.
        """
        if (paths := self.known_paths) is not None:
            return paths.head
        with PASSES, torch.compiler.set_stance("force_eager"):
            return bool(
                self._find("scores_alone", lambda: prove_scored_logits(self.module, self.sites))
            )

    def _find(self, what: Literal["paths", "scores_alone"], prove: Callable[[], Any]) -> Any:
        return prove() if self.memory is None else self.memory.find(what, prove)

    @cached_property
    def late(self) -> bool:
        """Whether gates at late positions can reuse the cache of all earlier ones: proven too."""
        with PASSES, torch.compiler.set_stance("force_eager"):
            return prove_late(self.module, self.sites, self.fast_paths)

    @cached_property
    def context_limit(self) -> int | None:
        """How many tokens the model can read, by its config; None if the config does not say."""
        config = getattr(plain(self.module), "config", None)
        text = getattr(config, "get_text_config", lambda: config)()
        limit = getattr(text, "max_position_embeddings", None)
        return limit if isinstance(limit, int) and limit > 0 else None

    @cached_property
    def vocabulary(self) -> int | None:
        """How many token ids the model knows; None if it has no plain table of embeddings."""
        embeddings = getattr(plain(self.module), "get_input_embeddings", lambda: None)()
        count = getattr(embeddings, "num_embeddings", None)
        return count if isinstance(count, int) else None

    def encode(self, task: Task) -> list[Encoded]:
        """The examples of a task as token ids; refuses those that the model cannot read."""
        if self.tokenizer is None:
            raise HeadcountError(
                f"{self.name} has no tokenizer to read the task with: wrap the model with its own."
            )
        examples = encode(task, self.tokenizer)
        for example in examples:
            what = f'Example {quoted(example.example.id)} of the task "{task.name}"'
            self.check_readable((*example.prompt, *example.target[:-1]), what)
            for answer in (example.target, *example.foils, *example.also):
                self.check_known(answer, what)
            if example.corrupted is not None:
                corrupted = (*example.corrupted, *example.target[:-1])
                self.check_readable(corrupted, f"{what}, corrupted,")
        return examples

    def check_readable(self, ids: Sequence[int], what: str) -> None:
        """Refuse more tokens than the model can read, and token ids that it does not know."""
        if self.context_limit is not None and len(ids) > self.context_limit:
            raise HeadcountError(
                f"{what} has {len(ids)} tokens, more than the {self.context_limit} that "
                f"{self.name} can read: shorten it or leave it out."
            )
        self.check_known(ids, what)

    def check_room(self, tokens: int, new: int) -> None:
        """Refuse a prompt that leaves too little room for new tokens."""
        limit = self.context_limit
        if limit is not None and limit < tokens + new - 1:  # the model never reads the last token
            raise HeadcountError(
                f"A prompt of {tokens} tokens and {new} new ones do not fit into the {limit} that "
                f"{self.name} can read: shorten the prompt or ask for fewer new tokens."
            )

    def check_known(self, ids: Sequence[int], what: str) -> None:
        """Refuse token ids that the model does not know."""
        count = self.vocabulary
        unknown = next((i for i in ids if count is not None and not 0 <= i < count), None)
        if unknown is not None:
            raise HeadcountError(
                f"{what} has the token id {unknown}, and {self.name} knows {count} token ids: give "
                "the model its own tokenizer."
            )

    @cached_property
    def device(self) -> torch.device:
        """The device that the token ids go to."""
        return input_device(self.module)

    @cached_property
    def dtype(self) -> torch.dtype:
        """The number format of the weights."""
        return next(p.dtype for p in self.module.parameters() if p.is_floating_point())

    @cached_property
    def spread(self) -> bool:
        """Whether the weights lie on several devices, or some are offloaded."""
        return len({parameter.device for parameter in self.module.parameters()}) > 1

    @property
    def kernel(self) -> str:
        """The attention kernel's name in transformers, and the gate bias of a sparse kernel."""
        config = getattr(plain(self.module), "config", None)
        name = str(getattr(config, "_attn_implementation", None))
        # Only configs of sparse attention know which dense kernel it replaced.
        sparse = [c for c in attention_configs(self.module) if hasattr(c, "dense_kernel")]
        return f"{name}, gate bias {sparse[0].gate_bias:g}" if sparse else name

    @property
    def hooked(self) -> bool:
        """Whether hooks of the caller's own may change what is computed (`is_hooked`)."""
        return is_hooked(plain(self.module))

    @cached_property
    def identity(self) -> dict[str, str]:
        """The properties that determine a measured value; part of every key in the store.

        In float32 all devices agree within the engine's error bound, so a stored value serves them
        all. In half precision each device rounds differently, so the device is part of the key.
        """
        weights = (
            fingerprint_tensors(plain(self.module))
            if self.weight_files is None
            else fingerprint_files(self.weight_files)
        )
        whole = self.dtype in (torch.float32, torch.float64)
        return {
            "weights": weights,
            "tokenizer": fingerprint_tokenizer(self.tokenizer),
            "dtype": _name_of(self.dtype),
            **({} if whole else {"device": self.device.type}),
            "kernel": self.kernel,
            **({} if self.unit == "head" else {"unit": self.unit}),
        }

    @property
    def prefix(self) -> str | None:
        """What the tokenizer puts in front of a text, such as BOS; None if that cannot be told."""
        try:
            return str(self.tokenizer.decode(list(own_prefix(self.tokenizer, "a"))))
        except HeadcountError:
            return None

    def prefix_of(self, task: Task) -> str | None:
        """What stands in front of a task's texts; None in a chat, whose template decides."""
        if task.chat:
            return None
        return str(self.tokenizer.decode(list(front_ids(self.tokenizer, task))))

    @property
    def stored(self) -> str:
        """The format in which the weights are kept, if it has fewer bits than they are used in."""
        settings = getattr(getattr(plain(self.module), "config", None), "quantization_config", None)
        return self.file_format or (quantised_as(settings) if settings else "")

    @property
    def precision(self) -> str:
        """The number format of the weights in words, and whether they come from fewer bits."""
        return weights_in_words({"stored": self.stored, "dtype": _name_of(self.dtype)})

    @property
    def facts(self) -> dict[str, Any]:
        """What a result records of the model: its size, its weights, device, BOS rule, identity."""
        return {
            "heads": list(self.layout.counts),
            "parameters": sum(weight.numel() for weight in plain(self.module).parameters()),
            "stored": self.stored,
            "device": self.device.type,
            "prefix": self.prefix,
            **self.identity,
        }


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def load_model(
    spec: str | Path,
    *,
    dtype: str = "float32",
    device: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    attention: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    unit: Unit = "head",
) -> Model:
    """Load a causal LM and prove its head sites.

    `spec` is a Hugging Face hub id, a local folder, a `.gguf` file, a bundled model's name, or
    `sparse:NAME` for a sparse model that comes with headcount. With the unit "kv", the model is
    gated by key/value heads (`Model.by_key_value_heads`).

    >>> from headcount import load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> model.layout.total
    270
    """
    if unit not in UNITS:
        raise unknown("unit", str(unit), UNITS)
    chosen: dict[str, Any] = {
        "dtype": dtype,
        "device": device,
        "device_map": device_map,
        "attention": attention,
        "revision": revision,
        "trust_remote_code": trust_remote_code,
    }
    loaded = load_pretrained(spec, **chosen)
    with exactly(loaded.model):
        memory = Memory(loaded.model, prove)
    origin = {"spec": full_name(str(spec)), **chosen}
    proof = memory.known.proof
    made = loaded.model, loaded.tokenizer, loaded.name, proof, loaded.files, origin, memory
    model = Model(*made, file_format=loaded.stored)
    return model.by_key_value_heads() if unit == "kv" else model


def check_model(model: Any) -> Model:
    """The model; whatever `load_model` and `wrap` did not make is refused."""
    if not isinstance(model, Model):
        raise HeadcountError(f"Give a model from load_model or wrap, not a {type(model).__name__}.")
    return model


def wrap(model: nn.Module, tokenizer: Any, *, name: str | None = None) -> Model:
    """Prove the head sites of a model that is in memory; the model is not changed.

    Compiled, quantised and PEFT models work too.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(
    ...     vocab_size=99, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
    ...     num_attention_heads=4, num_key_value_heads=2,
    ... )
    >>> wrap(LlamaForCausalLM(config), tokenizer=None).layout
    HeadLayout(counts=(4, 4))
    """
    require_language_model(model)
    with exactly(model):
        memory = Memory(model, prove)
    if name is None:
        config = getattr(plain(model), "config", None)
        name = getattr(config, "_name_or_path", "") or type(plain(model)).__name__
    return Model(model, tokenizer, name, memory.known.proof, memory=memory)
