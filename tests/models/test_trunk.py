"""Late starts: what is recorded, what is run again, and models that would be led astray by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from custom import VOCAB, WIDTH, Attention, Block, CustomLM, Flat, TokensFirst
from fast_paths_of_model import by_replay, by_whole_passes, error, left_behind, random_gates
from tiny import tiny_model
from torch import Tensor, nn

from headcount.models.fast_paths import FastPaths, recording, replaying, scored_end, watching
from headcount.models.forward_modes import instead, scored_logits
from headcount.models.gate import gating
from headcount.models.proof import prove
from headcount.models.prove_fast_paths import prove_fast_paths
from headcount.models.sites import HeadSite, run

DEPTH = 11  # blocks of the models below: more than the proof gates one by one


class WithHead(CustomLM):
    """A custom model that says where its logits are made."""

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def fast_paths_of(module: nn.Module) -> tuple[tuple[HeadSite, ...], FastPaths]:
    sites = prove(module).sites
    return sites, prove_fast_paths(module, sites)


def texts(rows: int, tokens: int = 9) -> Tensor:
    return torch.randint(1, VOCAB, (rows, tokens), generator=torch.Generator().manual_seed(rows))


def assert_right(module: nn.Module, sites: tuple[HeadSite, ...], paths: FastPaths) -> None:
    """Whatever late start it carries, from every site, in batches unlike the proof's."""
    if paths.trunk is None:
        return
    scored = 2 if paths.head else 9
    for start in range(len(sites)):
        for rows, sets in ((1, 1), (1, 3), (5, 2)):
            gates = random_gates(sites, start, sets)
            expected = by_whole_passes(module, sites, texts(rows), gates)[:, -scored:]
            run(module, texts(rows).flip(1))  # something else came before
            got = by_replay(module, sites, paths, texts(rows), gates, start, scored)
            assert error(got, expected) < 1e-5
    assert left_behind(module) == []


# Models made by hand


@pytest.mark.parametrize("attention", [Attention, Flat, TokensFirst])
def test_an_ordinary_model_carries_a_late_start(attention: type[Attention]) -> None:
    module = WithHead(*[attention] * 3)
    sites, paths = fast_paths_of(module)
    assert paths.head
    assert paths.attention == (attention is Attention)  # the others turn the projection's output
    assert paths.trunk is not None
    assert paths.trunk.blocks == ("blocks.0", "blocks.1", "blocks.2")
    assert paths.trunk.block_of == (0, 1, 2)
    assert not paths.cache
    assert_right(module, sites, paths)


def test_tokens_in_front_are_not_mistaken_for_rows() -> None:
    """With as many rows as scored tokens, cutting the wrong axis would go unnoticed."""
    assert fast_paths_of(WithHead(Attention, Attention))[1].scored
    assert not fast_paths_of(WithHead(Attention, TokensFirst))[1].scored


def test_a_model_without_output_embeddings_keeps_all_logits() -> None:
    module = CustomLM(Attention, Attention)
    sites, paths = fast_paths_of(module)
    assert (paths.head, paths.scored) == (False, False)
    assert paths.attention
    assert_right(module, sites, paths)


class Skipping(WithHead):
    """Block `target` also reads what block `source` gave."""

    def __init__(self, source: int, target: int) -> None:
        super().__init__(*[Attention] * DEPTH)
        self.source, self.target = source, target

    def forward(self, input_ids: Tensor) -> Any:
        x, given = self.start(input_ids), []
        for number, block in enumerate(self.blocks):
            if number == self.target:
                x = x + 0.3 * given[self.source]
            x = block(x)
            given.append(x)
        return SimpleNamespace(logits=self.head(self.norm(x)))

    def start(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        return x + torch.linspace(-1, 1, x.shape[1] * WIDTH).view(x.shape[1:])


@pytest.mark.parametrize(
    ("source", "target"), [(0, DEPTH - 1), (0, 2), (1, 3), (4, 6), (8, DEPTH - 1), (5, 6)]
)
def test_skip_connections_lose_the_late_start(source: int, target: int) -> None:
    """Wherever they are, and however short."""
    module = Skipping(source, target)
    sites, paths = fast_paths_of(module)
    assert paths.head
    assert (paths.trunk is None) == (target - source > 1)
    assert_right(module, sites, paths)


class Whispering(Skipping):
    """The same past the forward pass: a block leaves something in a box that a later one reads.

    The box stays full between passes; and where it fits no batch, it is made to fit.
    """

    def __init__(self, source: int, target: int) -> None:
        super().__init__(source, target)
        self.box = [torch.zeros(1)]
        block = self.blocks[source]
        block.__class__, block.box = Leaving, self.box

    def forward(self, input_ids: Tensor) -> Any:
        x = self.start(input_ids)
        for number, block in enumerate(self.blocks):
            if number == self.target:
                left = self.box[0]
                x = x + 0.3 * left[torch.arange(len(x)) % len(left)]
            x = block(x)
        return SimpleNamespace(logits=self.head(self.norm(x)))


class Leaving(Block):
    box: list[Tensor]

    def forward(self, x: Tensor) -> Tensor:
        self.box[0] = super().forward(x)
        return self.box[0]


@pytest.mark.parametrize(("source", "target"), [(0, DEPTH - 1), (1, 3), (4, 6)])
def test_state_between_passes_loses_the_late_start(source: int, target: int) -> None:
    """Though what the pass before left there is right as long as that had the same prompts."""
    assert fast_paths_of(Whispering(source, target))[1].trunk is None


class Twice(WithHead):
    """All blocks run two times."""

    def forward(self, input_ids: Tensor) -> Any:
        x = self.embed(input_ids)
        x = x + torch.linspace(-1, 1, x.shape[1] * WIDTH).view(x.shape[1:])
        for block in (*self.blocks, *self.blocks):
            x = block(x)
        return SimpleNamespace(logits=self.head(self.norm(x)))


def test_blocks_that_run_twice_are_run_whole() -> None:
    sites, paths = fast_paths_of(Twice(Attention, Attention))
    assert [site.call for site in sites] == [0, 0, 1, 1]
    assert paths.trunk is None


class InPlace(Block):
    """Adds to its input where it lies, as code that saves memory does."""

    def forward(self, x: Tensor) -> Tensor:
        x += self.attention(self.norm(x))
        x += self.down(self.mlp(x))
        return x


class HalfInPlace(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        x += self.down(self.mlp(x))
        return x


@pytest.mark.parametrize("kind", [InPlace, HalfInPlace])
def test_blocks_that_write_into_their_input(kind: type[Block]) -> None:
    """A recording that a later block writes into is no recording."""
    module = WithHead(*[Attention] * 3)
    for block in module.blocks:
        block.__class__ = kind
    sites, paths = fast_paths_of(module)
    assert (paths.trunk is None) == (kind is InPlace)
    assert_right(module, sites, paths)


class AddingAfter(Attention):
    """Does something to the projection's output, inside the attention."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(super().forward(x))


def test_what_follows_the_projection_in_an_attention_is_run() -> None:
    module = WithHead(AddingAfter, AddingAfter)
    sites, paths = fast_paths_of(module)
    assert paths.trunk is not None
    assert not paths.attention
    assert_right(module, sites, paths)


# What is run and what is kept


@contextmanager
def running(module: nn.Module) -> Iterator[list[str]]:
    """The names of the modules with weights whose own code runs."""
    ran: list[str] = []
    wrapped = []
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):

            def note(*_: Any, name: str = name) -> None:
                ran.append(name)

            wrapped.append(part.register_forward_pre_hook(note))
    try:
        yield ran
    finally:
        for handle in wrapped:
            handle.remove()


def test_nothing_before_the_projection_runs_again() -> None:
    module = tiny_model("llama", num_hidden_layers=3)
    sites, paths = fast_paths_of(module)
    assert paths.trunk is not None
    with recording(module, paths.trunk, sites, rows=2) as kept:
        run(module, texts(2))
    with running(module) as ran, replaying(module, paths.trunk, sites[1], kept, folds=2):
        run(module, texts(2).repeat(2, 1))
    inside = [name.removeprefix("model.layers.") for name in ran]
    mlp = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    attention = [f"self_attn.{x}_proj" for x in "qkvo"]
    assert inside == [
        *(f"1.{name}" for name in ("self_attn.o_proj", *mlp)),
        *(f"2.{name}" for name in (*attention, *mlp)),
        "lm_head",
    ]


def test_a_recording_keeps_no_more_than_is_needed() -> None:
    """Blocks' outputs and heads; not what attentions write, which is made anew."""
    module = tiny_model("llama", num_hidden_layers=3)
    sites, paths = fast_paths_of(module)
    assert paths.trunk is not None
    with recording(module, paths.trunk, sites, rows=2) as kept:
        run(module, texts(2))
    assert [z.shape for z in kept.inputs.values()] == [(2, 9, 64)] * 3
    assert [x.shape for x in kept.blocks.values()] == [(2, 9, 32)] * 3
    assert all(out[0] is None for out in kept.attentions.values())


def test_scored_ends_run_at_the_scored_positions() -> None:
    module = tiny_model("llama")
    _, paths = fast_paths_of(module)
    shapes: dict[str, torch.Size] = {}
    for name in ("model.layers.0.mlp", "model.layers.1.self_attn.q_proj", "lm_head"):
        module.get_submodule(name).register_forward_hook(
            lambda _, args, out, name=name: shapes.update({name: out.shape})
        )
    down = module.get_submodule("model.layers.1.mlp.down_proj")
    down.register_forward_hook(lambda _, args, out: shapes.update(down=out.shape))
    with scored_end(module, paths, 2):
        logits = run(module, texts(3))
    assert logits.shape == (3, 2, 101)
    assert [shape[1] for shape in shapes.values()] == [9, 9, 2, 2]


# Nothing is left behind


def contexts(
    module: nn.Module, sites: tuple[HeadSite, ...], paths: FastPaths
) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    assert paths.trunk is not None
    trunk = paths.trunk
    with recording(module, trunk, sites, rows=2) as kept:
        run(module, texts(2))
    return {
        "recording": lambda: recording(module, trunk, sites, rows=2),
        "replaying": lambda: replaying(module, trunk, sites[-1], kept),
        "scored_end": lambda: scored_end(module, paths, 1),
        "scored_logits": lambda: scored_logits(module, 1),
        "watching": lambda: watching(module, []),
        "gating": lambda: gating(module, sites, random_gates(sites)),
    }


class StoppedError(Exception):
    pass


@pytest.mark.parametrize(
    "name", ["recording", "replaying", "scored_end", "scored_logits", "watching", "gating"]
)
@pytest.mark.parametrize("failing", ["in the pass", "after it", "never"])
def test_nothing_is_left_behind(name: str, failing: str) -> None:
    module = tiny_model("llama")
    sites, paths = fast_paths_of(module)
    before = run(module, texts(2))
    context = contexts(module, sites, paths)[name]
    norm = module.model.norm
    try:
        with context():
            assert left_behind(module) != []
            if failing == "in the pass":
                norm.forward = lambda x: (_ for _ in ()).throw(StoppedError)
            run(module, texts(2))
            if failing == "after it":
                raise StoppedError
    except StoppedError:
        assert failing != "never"
    vars(norm).pop("forward", None)
    assert left_behind(module) == []
    assert torch.equal(run(module, texts(2)), before)


def test_forwards_that_were_there_before_come_back() -> None:
    """Accelerate and others put forwards of their own on modules."""
    module = nn.Linear(2, 2)
    x = torch.ones(1, 2)

    def own(x: Tensor) -> Tensor:
        return x + 1

    module.forward = own  # type: ignore[ranking-assign]
    with instead(module, lambda x: x + 2):
        with instead(module, lambda x: x + 3):
            assert module(x).tolist() == [[4, 4]]
        assert module(x).tolist() == [[3, 3]]
    assert module.forward is own
