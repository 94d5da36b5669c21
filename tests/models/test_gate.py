"""The one formula, z' = g·z + b, where it acts and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from custom import (
    Attention,
    Beside,
    CustomLM,
    Flat,
    OneHeadBeside,
    SoftmaxByHand,
    TenHeadsTokensFirst,
    TokensFirst,
    TwoHeadsBeside,
    UsedTwice,
    WithResidual,
)
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_model
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.gate import gating
from headcount.models.proof import prove
from headcount.models.sites import HeadSite, input_device, to_rows

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers about kernels it has not got

ROWS, TOKENS = 3, 7
MODELS: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: tiny_model("llama"),
    "gpt2": lambda: tiny_model("gpt2"),
    "hrm_text": lambda: tiny_model("hrm_text"),  # every block runs several times
    **{
        kind.__name__: lambda kind=kind: CustomLM(kind, Attention, kind)
        for kind in (
            *(Flat, TokensFirst, TenHeadsTokensFirst, Beside, OneHeadBeside, TwoHeadsBeside),
            *(WithResidual, UsedTwice, SoftmaxByHand),
        )
    },
}
every_model = pytest.mark.parametrize("name", MODELS)


class Gated:
    """A model with what the tests want of it: logits under gates, and what a projection gets."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.sites = prove(module).sites
        self.heads = sum(site.heads for site in self.sites)

    def logits(self, ids: Tensor, gates: Tensor | None = None, **options: Any) -> Tensor:
        if gates is None:
            return self.module(input_ids=ids).logits
        with gating(self.module, self.sites, gates, **options):
            return self.module(input_ids=ids).logits

    def z(self, ids: Tensor, gates: Tensor | None = None, **options: Any) -> list[Tensor]:
        """What each site's projection receives: (rows, tokens, width)."""
        gates = torch.ones(1, self.heads) if gates is None else gates
        with (
            gating(self.module, self.sites, gates, **options),  # first: its hooks run before these
            reading(self.module, self.sites, len(ids)) as seen,
        ):
            self.module(input_ids=ids)
        return seen

    def random_gates(self, rows: int, tokens: int | None = None, seed: int = 0) -> Tensor:
        shape = (rows, self.heads) if tokens is None else (rows, self.heads, tokens)
        return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 0.5


@contextmanager
def reading(module: nn.Module, sites: Sequence[HeadSite], rows: int) -> Iterator[list[Tensor]]:
    named, seen, runs, handles = dict(module.named_modules()), {}, {}, []

    def hook_for(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            run = runs[name] = runs.get(name, -1) + 1
            for site in sites:
                if (site.module, site.call) == (name, run):
                    seen[site.index] = to_rows(args[0], site.order, rows)

        return hook

    result: list[Tensor] = []
    for name in {site.module for site in sites}:
        handles.append(named[name].register_forward_pre_hook(hook_for(name)))
    yield result
    for handle in handles:
        handle.remove()
    result.extend(seen[site.index] for site in sites)


@cache
def model(name: str) -> Gated:
    return Gated(MODELS[name]())


def prompts(rows: int = ROWS, tokens: int = TOKENS, seed: int = 1) -> Tensor:
    return torch.randint(3, 50, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def by_head(z: Tensor, site: HeadSite) -> Tensor:
    return z[..., site.span].unflatten(-1, (site.heads, site.size))  # (rows, tokens, heads, size)


class TestFormula:
    @every_model
    def test_z_at_the_first_site(self, name: str) -> None:
        m, ids = model(name), prompts()
        site, before = m.sites[0], m.z(ids)[0]
        gates, z0 = m.random_gates(ROWS), torch.randn(ROWS, TOKENS, site.width)
        g = gates[:, None, : site.heads, None]
        expected = before.clone()
        gated = g * by_head(before, site) + (1 - g) * by_head(z0, site)
        expected[..., site.span] = gated.flatten(-2)
        after = m.z(ids, gates, ablations=[z0] + [None] * (len(m.sites) - 1))[0]
        torch.testing.assert_close(after, expected)

    @every_model
    def test_every_site_has_its_own_gates(self, name: str) -> None:
        m, ids = model(name), prompts()
        gates = m.random_gates(1)
        start = 0
        for site, z in zip(m.sites, m.z(ids, gates), strict=True):
            # The site's own gates alone, off: its heads must say nothing, columns beside them may.
            off = torch.ones(1, m.heads)
            off[:, start : start + site.heads] = 0
            silent = m.z(ids, off)
            assert not silent[site.index][..., site.span].any()
            assert silent[site.index].shape == z.shape
            for other in m.sites[: site.index]:
                torch.testing.assert_close(silent[other.index], m.z(ids)[other.index])
            start += site.heads
        assert start == m.heads

    @every_model
    def test_one_head_off_is_columns_off(self, name: str) -> None:
        m, ids = model(name), prompts()
        site, plain = m.sites[-1], m.z(ids)[-1]
        gates = torch.ones(1, m.heads)
        gates[0, -1] = 0  # the last head of the last site
        gated = m.z(ids, gates)[-1]
        changed = (gated != plain).any(0).any(0).nonzero().flatten().tolist()
        assert changed == list(range(site.span.stop - site.size, site.span.stop))

    @every_model
    def test_rows_are_independent(self, name: str) -> None:
        m, ids = model(name), prompts()
        gates = m.random_gates(ROWS)
        together = m.logits(ids, gates)
        for row in range(ROWS):
            alone = m.logits(ids[row : row + 1], gates[row : row + 1])
            torch.testing.assert_close(together[row : row + 1], alone)

    @every_model
    def test_one_row_of_gates_serves_all_rows(self, name: str) -> None:
        m, ids = model(name), prompts()
        gates = m.random_gates(1)
        assert torch.equal(m.logits(ids, gates), m.logits(ids, gates.repeat(ROWS, 1)))

    @every_model
    def test_a_gate_for_each_token(self, name: str) -> None:
        m, ids = model(name), prompts()
        gates, same = m.random_gates(ROWS, TOKENS), m.random_gates(ROWS)
        torch.testing.assert_close(
            m.logits(ids, same[..., None].repeat(1, 1, TOKENS)), m.logits(ids, same)
        )
        # What a gate does to a token is not seen before it.
        late = gates.clone()
        late[..., -1] += 1
        early, later = m.logits(ids, gates), m.logits(ids, late)
        torch.testing.assert_close(early[:, :-1], later[:, :-1])
        assert not torch.allclose(early[:, -1], later[:, -1], atol=1e-3)
        site, z = m.sites[0], m.z(ids)[0]
        g = gates[:, : site.heads].transpose(1, 2)[..., None]
        torch.testing.assert_close(by_head(m.z(ids, gates)[0], site), g * by_head(z, site))

    @every_model
    def test_one_row_of_gates_for_each_token(self, name: str) -> None:
        m, ids = model(name), prompts()
        gates = m.random_gates(1, TOKENS)
        assert torch.equal(m.logits(ids, gates), m.logits(ids, gates.repeat(ROWS, 1, 1)))

    @every_model
    @pytest.mark.parametrize("shape", ["width", "row", "tokens", "rows and tokens"])
    def test_ablations_broadcast(self, name: str, shape: str) -> None:
        m, ids = model(name), prompts()
        sizes = {"width": (), "row": (1, 1), "tokens": (1, TOKENS), "rows and tokens": (3, TOKENS)}
        z0 = [torch.randn(*sizes[shape], site.width) for site in m.sites]
        whole = [z.expand(ROWS, TOKENS, -1) for z in z0]
        off = torch.zeros(1, m.heads)
        for z, wanted, site in zip(m.z(ids, off, ablations=z0), whole, m.sites, strict=True):
            torch.testing.assert_close(z[..., site.span], wanted[..., site.span])
        torch.testing.assert_close(
            m.logits(ids, m.random_gates(ROWS), ablations=z0),
            m.logits(ids, m.random_gates(ROWS), ablations=whole),
        )

    @every_model
    def test_a_ablation_that_is_the_head_itself_changes_nothing(self, name: str) -> None:
        m, ids = model(name), prompts()
        own = m.z(ids)
        torch.testing.assert_close(
            m.logits(ids, m.random_gates(ROWS), ablations=own), m.logits(ids), atol=1e-5, rtol=1e-5
        )

    @every_model
    def test_steering_by_a_bias(self, name: str) -> None:
        m, ids = model(name), prompts()
        ones, site = torch.ones(1, m.heads), m.sites[0]
        push = torch.randn(site.width)
        biases = [push] + [None] * (len(m.sites) - 1)
        before, after = m.z(ids)[0], m.z(ids, ones, biases=biases)[0]
        torch.testing.assert_close(after[..., site.span], (before + push)[..., site.span])
        assert not torch.allclose(m.logits(ids, ones, biases=biases), m.logits(ids), atol=1e-3)
        nothing = [torch.zeros(site.width) for site in m.sites]
        torch.testing.assert_close(m.logits(ids, ones, biases=nothing), m.logits(ids))

    @every_model
    def test_columns_beside_the_heads_stay(self, name: str) -> None:
        m, ids = model(name), prompts()
        gates = torch.zeros(1, m.heads)
        site, before, after = m.sites[0], m.z(ids)[0], m.z(ids, gates)[0]
        assert torch.equal(after[..., : site.start], before[..., : site.start])
        assert torch.equal(after[..., site.span.stop :], before[..., site.span.stop :])

    @pytest.mark.parametrize("rows", [1, ROWS])
    def test_passes_of_one_context_are_gated_like_passes_of_their_own(self, rows: int) -> None:
        m = model("llama")
        gates = m.random_gates(rows)
        some = [prompts(), prompts(tokens=1), prompts(tokens=TOKENS - 2), prompts(tokens=1)]
        if rows == 1:  # one row of gates serves any batch
            some += [prompts(rows=1), prompts(rows=ROWS + 2, tokens=1)]
        with gating(m.module, m.sites, gates):
            found = [m.module(input_ids=ids).logits for ids in some]
            if rows > 1:
                with pytest.raises(HeadcountError, match=f"for {rows} rows do not fit 1 at"):
                    m.module(input_ids=prompts(rows=1, tokens=1))
        for ids, logits in zip(some, found, strict=True):
            assert torch.equal(logits, m.logits(ids, gates))

    def test_blocks_that_are_computed_again(self) -> None:
        m, ids = Gated(tiny_model("llama")), prompts()
        m.module.train()  # transformers checkpoints in training only; there is no dropout
        gates = m.random_gates(ROWS)
        slopes = []
        for again in (False, True):
            if again:
                m.module.gradient_checkpointing_enable({"use_reentrant": False})
            m.module.zero_grad()
            with gating(m.module, m.sites, gates):
                m.module(input_ids=ids, use_cache=False).logits.sum().backward()
            slopes.append(m.module.get_input_embeddings().weight.grad.clone())
        torch.testing.assert_close(*slopes)


class TestLayouts:
    @pytest.mark.parametrize(
        ("kind", "start", "width", "order"),
        [
            (Attention, 0, 20, "rows"),
            (Flat, 0, 20, "flat"),
            (TokensFirst, 0, 20, "tokens"),
            (TenHeadsTokensFirst, 0, 50, "tokens"),
            (Beside, 7, 34, "rows"),
            (OneHeadBeside, 7, 19, "rows"),
            (TwoHeadsBeside, 7, 24, "rows"),
        ],
    )
    def test_geometry(self, kind: type[Attention], start: int, width: int, order: str) -> None:
        (site,) = prove(CustomLM(kind)).sites
        assert (site.start, site.width, site.order) == (start, width, order)
        assert (site.heads, site.size) == (kind.heads, kind.size)

    @pytest.mark.parametrize("kind", [Flat, TokensFirst])
    def test_layout_does_not_change_what_gates_do(self, kind: type[Attention]) -> None:
        plain, odd = Gated(CustomLM(Attention)), Gated(CustomLM(kind))
        odd.module.load_state_dict(plain.module.state_dict())
        gates, ids = plain.random_gates(ROWS, TOKENS), prompts()
        z0 = [torch.randn(ROWS, TOKENS, plain.sites[0].width)]
        torch.testing.assert_close(
            odd.logits(ids, gates, ablations=z0), plain.logits(ids, gates, ablations=z0)
        )

    def test_shared_blocks_are_gated_one_call_at_a_time(self) -> None:
        m, ids = model("hrm_text"), prompts()
        sites = [site for site in m.sites if site.module == m.sites[0].module]
        assert [site.call for site in sites] == list(range(len(sites)))
        assert len(sites) == sites[0].runs > 2
        plain = m.z(ids)
        for site in sites:
            gates = torch.ones(1, m.heads)
            first = sum(s.heads for s in m.sites[: site.index])
            gates[0, first : first + site.heads] = 0
            gated = m.z(ids, gates)
            silent = [s.index for s in m.sites if not gated[s.index].any()]
            assert silent == [site.index]
            assert all(torch.equal(gated[i], plain[i]) for i in range(site.index))

    def test_some_calls_of_a_shared_block_can_be_gated_alone(self) -> None:
        m, ids = model("hrm_text"), prompts()
        gates = torch.ones(1, m.heads)
        gates[0, : m.sites[0].heads] = 0
        with gating(m.module, m.sites[:1], gates[:, : m.sites[0].heads]):
            alone = m.module(input_ids=ids).logits
        assert torch.equal(alone, m.logits(ids, gates))

    def test_a_pass_that_broke_off_does_not_shift_the_next(self) -> None:
        m, ids = model("hrm_text"), prompts()
        gates = m.random_gates(1)
        expected = m.logits(ids, gates)
        last = dict(m.module.named_modules())[m.sites[-1].module]
        with gating(m.module, m.sites, gates):
            handle = last.register_forward_hook(_fail)
            with pytest.raises(ZeroDivisionError):
                m.module(input_ids=ids)
            handle.remove()
            assert torch.equal(m.module(input_ids=ids).logits, expected)

    def test_an_inner_model_can_be_run_by_itself(self) -> None:
        # Nothing announces such a pass, and the second must be gated like the first.
        for name in ("llama", "hrm_text"):
            m, ids = model(name), prompts()
            with gating(m.module, m.sites, m.random_gates(1)):
                first, second = (m.module.model(input_ids=ids)[0] for _ in range(2))
                whole = m.module(input_ids=ids).logits
            assert torch.equal(first, second)
            assert torch.equal(whole, m.logits(ids, m.random_gates(1)))

    @pytest.mark.parametrize("name", ["llama", "Flat"])
    def test_inputs_may_come_by_place_or_as_embeddings(self, name: str) -> None:
        m, ids = model(name), prompts()
        gates = m.random_gates(1, TOKENS)
        expected = m.logits(ids, gates)
        with gating(m.module, m.sites, gates):
            by_place = m.module(ids).logits
            embedded = m.module(inputs_embeds=m.module.get_input_embeddings()(ids)).logits
        assert torch.equal(by_place, expected)
        assert torch.equal(embedded, expected)


class TestGradients:
    @pytest.mark.parametrize("name", ["gpt2", "Flat", "Beside", "UsedTwice"])
    def test_gradients_in_g_are_finite_differences(self, name: str) -> None:
        m, ids = Gated(MODELS[name]().double()), prompts(rows=2)
        z0 = [torch.randn(site.width, dtype=torch.float64) for site in m.sites]
        gates = m.random_gates(2).double().requires_grad_()

        def value(gates: Tensor) -> Tensor:
            return m.logits(ids, gates, ablations=z0)[:, -1].log_softmax(-1)[:, 5].sum()

        (slope,) = torch.autograd.grad(value(gates), gates)
        step = 1e-6
        with torch.no_grad():
            for head in range(0, m.heads, 3):
                up, down = gates.detach().clone(), gates.detach().clone()
                up[:, head] += step
                down[:, head] -= step
                difference = (value(up) - value(down)) / (2 * step)
                assert float(slope[:, head].sum()) == pytest.approx(float(difference), abs=1e-7)

    def test_each_row_has_its_own_gradient(self) -> None:
        m, ids = model("llama"), prompts()
        gates = torch.ones(ROWS, m.heads, requires_grad=True)
        (slopes,) = torch.autograd.grad(m.logits(ids, gates)[:, -1, 5].sum(), gates)
        for row in range(ROWS):
            one = torch.ones(1, m.heads, requires_grad=True)
            (slope,) = torch.autograd.grad(m.logits(ids[[row]], one)[:, -1, 5].sum(), one)
            torch.testing.assert_close(slopes[row], slope[0], atol=1e-5, rtol=1e-4)

    def test_gradients_flow_through_gates_of_one(self) -> None:
        m = model("llama")
        gates = torch.ones(1, m.heads, requires_grad=True)
        m.logits(prompts(), gates).sum().backward()
        assert (gates.grad != 0).all()

    def test_two_passes_in_one_context(self) -> None:
        # The second pass may not lean on the graph, or on the lack of one, of the first.
        m, ids = model("llama"), prompts()
        gates = torch.full((1, m.heads), 0.5, requires_grad=True)
        z0 = [torch.ones(site.width) for site in m.sites]
        with torch.no_grad():
            context = gating(m.module, m.sites, gates, ablations=z0)
            context.__enter__()
            m.module(input_ids=ids)
        slopes = []
        for _ in range(2):
            (slope,) = torch.autograd.grad(m.module(input_ids=ids).logits.sum(), gates)
            slopes.append(slope)
        context.__exit__(None, None, None)
        assert torch.equal(*slopes)
        assert slopes[0].any()

    def test_gates_that_are_learned_in_place(self) -> None:
        m, ids = model("llama"), prompts()
        gates = torch.ones(1, m.heads, requires_grad=True)
        with gating(m.module, m.sites, gates):
            m.module(input_ids=ids)
            with torch.no_grad():
                gates.zero_()
            after = m.module(input_ids=ids).logits
        assert torch.equal(after, m.logits(ids, torch.zeros(1, m.heads)))

    def test_gradients_flow_to_a_steering_vector(self) -> None:
        m = model("llama")
        push = torch.zeros(m.sites[0].width, requires_grad=True)
        biases = [push] + [None] * (len(m.sites) - 1)
        m.logits(prompts(), torch.ones(1, m.heads), biases=biases).sum().backward()
        assert push.grad.any()


class TestNumbers:
    def test_gates_keep_the_precision_of_the_model(self) -> None:
        m = Gated(CustomLM(Attention).double())
        gates = torch.full((1, m.heads), 1 + 1e-12, dtype=torch.float64)
        plain, gated = m.z(prompts())[0], m.z(prompts(), gates)[0]
        torch.testing.assert_close(gated / plain, gates[0, 0].expand_as(plain), rtol=1e-15, atol=0)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision(self, dtype: torch.dtype) -> None:
        m, ids = Gated(tiny_model("llama").to(dtype)), prompts()
        gates = m.random_gates(ROWS)
        logits = m.logits(ids, gates)
        assert logits.dtype == dtype
        reference = model("llama").logits(ids, gates)
        close = 20 * torch.finfo(dtype).eps
        torch.testing.assert_close(logits.float(), reference, atol=close, rtol=close)

    def test_ablations_in_another_precision(self) -> None:
        m, ids = Gated(tiny_model("llama").bfloat16()), prompts()
        z0 = [torch.randn(site.width, dtype=torch.float64) for site in m.sites]
        z = m.z(ids, torch.zeros(1, m.heads), ablations=z0)
        assert all(torch.equal(a, b.bfloat16().expand_as(a)) for a, b in zip(z, z0, strict=True))

    @pytest.mark.parametrize("rows", [1, ROWS])
    @pytest.mark.parametrize("heads", [-1, 1, 8])
    def test_gates_of_the_wrong_length(self, rows: int, heads: int) -> None:
        m = model("llama")
        with (
            pytest.raises(HeadcountError, match=rf"\(rows, {m.heads}\).*not \({rows}, "),
            gating(m.module, m.sites, torch.ones(rows, m.heads + heads)),
        ):
            pass

    @pytest.mark.parametrize("name", ["llama", "Flat", "TokensFirst"])
    def test_gates_for_another_number_of_rows(self, name: str) -> None:
        m = model(name)
        with pytest.raises(HeadcountError, match=r"Gates for 7 rows do not fit 3 at .*o_proj"):
            m.logits(prompts(), torch.zeros(7, m.heads))

    @pytest.mark.parametrize("name", ["llama", "Flat", "TokensFirst"])
    def test_gates_for_another_number_of_tokens(self, name: str) -> None:
        m = model(name)
        with pytest.raises(HeadcountError, match=r"Gates for 5 tokens do not fit 7 at .*o_proj"):
            m.logits(prompts(), torch.zeros(ROWS, m.heads, 5))

    @pytest.mark.parametrize("name", ["llama", "Flat", "TokensFirst"])
    @pytest.mark.parametrize("what", ["ablations", "biases"])
    @pytest.mark.parametrize("rows", [1, 2])
    def test_ablations_of_another_shape(self, name: str, what: str, rows: int) -> None:
        # One row too many would be stretched over a batch of one.
        m, ids = model(name), prompts(rows=1)
        z0 = [torch.zeros(rows, TOKENS + 2 - rows, site.width) for site in m.sites]
        wrong = "8 tokens do not fit 7" if rows == 1 else "2 rows do not fit 1"
        with pytest.raises(HeadcountError, match=f"(Ablations|Biases) for {wrong}"):
            m.logits(ids, torch.zeros(1, m.heads), **{what: z0})


def _fail(*_: Any) -> None:
    raise ZeroDivisionError


HOOKS = (
    *("_forward_pre_hooks", "_forward_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_backward_hooks", "_backward_pre_hooks"),
)


def condition(module: nn.Module) -> dict[str, Any]:
    """Everything about a model that gating could leave changed."""
    parts = dict(module.named_modules())
    return {
        "hooks": {n: {h: list(vars(p)[h].items()) for h in HOOKS} for n, p in parts.items()},
        "training": {name: part.training for name, part in parts.items()},
        "attributes": {name: sorted(vars(part)) for name, part in parts.items()},
        "requires_grad": {n: p.requires_grad for n, p in module.named_parameters()},
        "grad": {n: p.grad is None for n, p in module.named_parameters()},
        "weights": {
            n: (t.data_ptr(), t._version, t.detach().flatten().view(torch.uint8).tolist())
            for n, t in module.state_dict(keep_vars=True).items()
        },
        "config": str(getattr(module, "config", None)),
    }


class TestNothingIsLeftBehind:
    @pytest.fixture
    def m(self) -> Gated:
        m = Gated(tiny_model("llama"))
        m.module.train()
        m.module.model.norm.eval()
        m.module.lm_head.requires_grad_(False)
        m.module.register_forward_hook(lambda *_: None)  # the user's own stays
        return m

    def test_after_a_pass(self, m: Gated) -> None:
        before = condition(m.module)
        with torch.no_grad():
            m.logits(prompts(), m.random_gates(ROWS), every_site=True)
        assert condition(m.module) == before

    def test_inside_the_context_there_is_something(self, m: Gated) -> None:
        before = condition(m.module)
        with gating(m.module, m.sites, m.random_gates(1)):
            assert condition(m.module) != before

    def test_after_gradients(self, m: Gated) -> None:
        before = condition(m.module)
        gates = m.random_gates(ROWS).requires_grad_()
        torch.autograd.grad(m.logits(prompts(), gates).sum(), gates)
        assert condition(m.module) == before

    def test_after_an_exception_in_the_context(self, m: Gated) -> None:
        before = condition(m.module)
        with pytest.raises(ZeroDivisionError), gating(m.module, m.sites, m.random_gates(1)):
            _fail()
        assert condition(m.module) == before

    def test_after_an_exception_in_the_forward_pass(self, m: Gated) -> None:
        before = condition(m.module)
        with pytest.raises(IndexError):
            m.logits(prompts() + 10_000, m.random_gates(1))
        with pytest.raises(HeadcountError):
            m.logits(prompts(), m.random_gates(ROWS + 1))
        assert condition(m.module) == before

    def test_after_a_context_that_could_not_begin(self, m: Gated) -> None:
        before = condition(m.module)
        missing = [*m.sites[:1], HeadSite(1, "no.such.module", "no", 0, 4, 16, 64)]
        with pytest.raises(KeyError), gating(m.module, missing, torch.zeros(1, 8)):
            pass
        assert condition(m.module) == before

    def test_contexts_inside_each_other(self, m: Gated) -> None:
        before = condition(m.module)
        with (
            gating(m.module, m.sites, m.random_gates(1)),
            gating(m.module, m.sites, m.random_gates(1, seed=1)),
        ):
            pass
        assert condition(m.module) == before
        # The compiler is free again.
        assert torch.compiler.is_compiling() is False
        assert torch._dynamo.eval_frame._stance.stance == "default"

    def test_sites_that_stay_whole_are_not_touched(self) -> None:
        m = model("llama")
        gates = torch.ones(1, m.heads)
        gates[0, 0] = 0
        named = dict(m.module.named_modules())
        with gating(m.module, m.sites, gates):
            hooked = [site.index for site in m.sites if named[site.module]._forward_pre_hooks]
        assert hooked == [0]


NUMBERS = st.floats(-3, 3, width=32)
SOME_MODELS = st.sampled_from(["llama", "Flat", "TokensFirst", "Beside"])


class TestProperties:
    @given(
        name=SOME_MODELS, rows=st.integers(1, 4), tokens=st.integers(1, 12), by_token=st.booleans()
    )
    def test_gates_of_one_change_nothing(
        self, name: str, rows: int, tokens: int, by_token: bool
    ) -> None:
        m, ids = model(name), prompts(rows, tokens)
        ones = torch.ones(rows, m.heads, tokens) if by_token else torch.ones(rows, m.heads)
        z0 = [torch.randn(site.width) for site in m.sites]
        with torch.no_grad():
            plain = m.logits(ids)
            assert torch.equal(m.logits(ids, ones, every_site=True), plain)
            assert torch.equal(m.logits(ids, ones, every_site=True, ablations=z0), plain)

    @given(name=SOME_MODELS, first=st.integers(0, 99), second=st.integers(100, 199))
    def test_gates_inside_gates_multiply(self, name: str, first: int, second: int) -> None:
        m, ids = model(name), prompts()
        one, two = m.random_gates(ROWS, seed=first), m.random_gates(ROWS, seed=second)
        with torch.no_grad(), gating(m.module, m.sites, one):
            nested = m.logits(ids, two)
        with torch.no_grad():
            torch.testing.assert_close(nested, m.logits(ids, one * two), atol=1e-4, rtol=1e-4)

    @given(name=SOME_MODELS, a=NUMBERS, b=NUMBERS, mix=st.floats(0, 1), seed=st.integers(0, 99))
    def test_z_is_linear_in_g(self, name: str, a: float, b: float, mix: float, seed: int) -> None:
        m, ids = model(name), prompts()
        site = m.sites[0]
        z0 = [torch.randn(site.width, generator=torch.Generator().manual_seed(seed))]
        z0 += [None] * (len(m.sites) - 1)

        def z(gate: float) -> Tensor:
            gates = torch.ones(1, m.heads)
            gates[0, 1 % site.heads] = gate
            return m.z(ids, gates, ablations=z0)[0]

        with torch.no_grad():
            between = mix * z(a) + (1 - mix) * z(b)
            torch.testing.assert_close(z(mix * a + (1 - mix) * b), between, atol=1e-4, rtol=1e-4)


def test_ids_go_where_the_embeddings_are() -> None:
    assert input_device(model("llama").module) == torch.device("cpu")
