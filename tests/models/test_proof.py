"""What is proven of a model in whatever state it comes, and what is refused by name."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import custom
import pytest
import torch
import transformers
from custom import Attention, CustomLM, LateBypass, NothingAfter, RunTwice
from tiny import tiny_config, tiny_model
from torch import Tensor, nn
from toy import toy_tokenizer
from transformers import AttentionInterface

from headcount import wrap
from headcount.errors import HeadcountError
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.models.proof import Check, prove

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers about kernels it has not got

IDS = torch.tensor([[5, 17, 8, 33, 21, 9, 40], [3, 11, 29, 7, 45, 6, 12]])
HEADS, SIZE, SITES = 4, 16, 2  # of the tiny llama


def refusal(module: nn.Module) -> str:
    """The sentence with which a model is refused."""
    with pytest.raises(HeadcountError) as caught:
        prove(module)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


@torch.no_grad()
def logits(model: Model | nn.Module, gates: Tensor | None = None, ids: Tensor = IDS) -> Tensor:
    if gates is None or isinstance(model, nn.Module):
        module = model.module if isinstance(model, Model) else model
        return module(input_ids=ids).logits
    with gating(model.module, model.sites, gates):
        return model.module(input_ids=ids).logits


def some_gates(model: Model) -> Tensor:
    return torch.rand(len(IDS), model.layout.total, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def by_hand(module: nn.Module, gates: Tensor, names: str = "o_proj") -> Tensor:
    """The logits of a tiny llama with its columns scaled by what one knows of its config."""
    layers = [m for n, m in module.named_modules() if n.endswith(f".{names}")]
    assert len(layers) == SITES
    handles = []
    for number, layer in enumerate(layers):
        g = gates[:, number * HEADS : (number + 1) * HEADS].repeat_interleave(SIZE, 1)[:, None]
        hook = lambda _, args, g=g: ((args[0] * g).to(args[0].dtype),)  # noqa: E731
        handles.append(layer.register_forward_pre_hook(hook))
    with torch.compiler.set_stance("force_eager"):
        result = logits(module)
    for handle in handles:
        handle.remove()
    return result


BAD: dict[str, tuple[type[Attention], str]] = {
    "heads interleaved": (custom.Interleaved, "does not take one slice for each of 4 query heads"),
    "heads in another order": (custom.Reversed, "does not take one slice for each"),
    "heads off by one column": (custom.ShiftedByOne, "does not take one slice for each"),
    "talking heads": (custom.TalkingHeads, "does not take one slice for each"),
    "whispering heads": (custom.WhisperingHeads, "does not take one slice for each"),
    "two kinds of heads": (custom.TwoKinds, "does not take one slice for each"),
    "bypass": (custom.Bypass, "without passing through blocks.1.attention.o_proj"),
    "two readers": (custom.TwoReaders, "reaches blocks.1.attention.gate_proj without passing"),
    "no projection": (custom.NoProjection, "blocks.1.mlp.1, the first linear layer to receive"),
    "functional projection": (custom.Functional, "blocks.1.mlp.1, the first linear layer"),
    "projection by keyword": (custom.ByKeyword, "blocks.1.mlp.1, the first linear layer"),
    "curved projection": (custom.Curved, "blocks.1.mlp.1, the first linear layer to receive"),
}


class TestRefusals:
    @pytest.mark.parametrize("name", BAD)
    def test_bad_attention(self, name: str) -> None:
        self.must_be_refused(name, torch.float32)

    @pytest.mark.parametrize(
        "name", sorted(set(BAD) - {"whispering heads"})
    )  # too soft to be heard there
    def test_bad_attention_in_half_precision(self, name: str) -> None:
        self.must_be_refused(name, torch.bfloat16)

    def must_be_refused(self, name: str, dtype: torch.dtype) -> None:
        kind, reason = BAD[name]
        text = refusal(CustomLM(Attention, kind, Attention).to(dtype))
        assert text.startswith("Cannot prove the heads of blocks.1.attention: ")
        assert reason in text

    @pytest.mark.parametrize("name", BAD)
    def test_in_the_only_block(self, name: str) -> None:
        assert "blocks.0.attention" in refusal(CustomLM(BAD[name][0]))

    def test_a_way_past_every_module(self) -> None:
        text = refusal(LateBypass())
        assert "blocks.1.attention: part of their output reaches the logits" in text

    def test_nothing_after_the_attention(self) -> None:
        text = refusal(NothingAfter())
        assert "blocks.0.attention: no linear output projection receives" in text

    def test_prompts_packed_into_one_row(self) -> None:
        assert "has no heads that can be measured" in refusal(CustomLM(custom.Packed))

    def test_a_model_that_is_never_the_same(self) -> None:
        assert "equal prompts differ at blocks.0" in refusal(CustomLM(custom.Random))

    @pytest.mark.parametrize("number", [torch.nan, torch.inf])
    def test_logits_that_are_no_numbers(self, number: float) -> None:
        model = tiny_model("llama")
        with torch.no_grad():
            model.lm_head.weight[7, 3] = number
        assert refusal(model).startswith("The model's logits are not finite numbers (NaN or inf")

    def test_nan_inside(self) -> None:
        model = tiny_model("llama")
        with torch.no_grad():
            model.model.layers[0].self_attn.v_proj.weight[0, 0] = torch.nan
        assert "not finite numbers" in refusal(model)

    def test_no_attention(self) -> None:
        text = refusal(CustomLM(custom.RunningMean))
        assert text.startswith("CustomLM has no heads that can be measured: no part of it")

    def test_most_heads_dead(self) -> None:
        model = CustomLM(custom.SoftmaxByHand)
        with torch.no_grad():
            model.blocks[0].attention.qkv.weight[2 * 20 : 2 * 20 + 15] = 0  # values of three heads
            model.blocks[0].attention.qkv.bias[2 * 20 : 2 * 20 + 15] = 0
        assert "blocks.0.attention" in refusal(model)

    def test_a_check_that_fails_names_the_site(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from headcount.models import proof

        error = {"blocks.1.attention.o_proj": torch.nan}
        monkeypatch.setattr(proof, "_sum_error", lambda f: error.get(f.site.module, 0.0))
        text = refusal(CustomLM(Attention, Attention))
        assert "blocks.1.attention: \"the heads' writes sum to the block's output\" is off" in text

    def test_a_gate_of_one_must_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from headcount.models import gate

        near = lambda x, *_: x * (1 + 1e-6)  # noqa: E731
        monkeypatch.setattr(gate._Gate, "apply", lambda self, x, rows: near(x))
        assert '"a gate of 1 on every head changes no logit" is off' in refusal(tiny_model("llama"))

    def test_nan_never_holds(self) -> None:
        assert not Check("", torch.nan, 1.0).holds
        assert Check("", 0.0, 0.0).holds


class TestMixers:
    @pytest.mark.parametrize(
        ("kinds", "mixers"),
        [
            ((Attention, Attention), ()),
            ((custom.RunningMean, Attention), ("blocks.0.attention",)),
            ((Attention, custom.RunningMean), ("blocks.1.attention",)),
            ((Attention, custom.HeadsAndMean), ("blocks.1.attention",)),
            ((Attention, custom.HeadsAndModule), ("blocks.1.attention.beside",)),
            ((Attention, custom.Packed), ("blocks.1.attention",)),  # heads that cannot be seen
        ],
    )
    def test_tokens_that_mix_outside_heads(
        self, kinds: tuple[type[Attention], ...], mixers: tuple[str, ...]
    ) -> None:
        assert prove(CustomLM(*kinds)).mixers == mixers

    def test_a_mixer_that_runs_twice_is_named_once(self) -> None:
        proof = prove(RunTwice(custom.RunningMean, Attention))
        assert proof.mixers == ("blocks.0.attention",)
        assert [(site.module, site.call, site.runs) for site in proof.sites] == [
            ("blocks.1.attention.o_proj", 0, 2),
            ("blocks.1.attention.o_proj", 1, 2),
        ]

    def test_a_router_is_neither(self) -> None:
        proof = prove(CustomLM(custom.Routed, Attention))
        assert [site.heads for site in proof.sites] == [4, 4]
        assert not proof.mixers


def fingerprint(module: nn.Module) -> dict[str, Any]:
    state = module.state_dict(keep_vars=True)
    modules = dict(module.named_modules())
    return {
        "weights": {n: (t._version, t.detach().clone()) for n, t in state.items()},
        "training": {name: m.training for name, m in modules.items()},
        "hooks": {n: (*m._forward_hooks, *m._forward_pre_hooks) for n, m in modules.items()},
        "attributes": {name: sorted(vars(m)) for name, m in modules.items()},
        "grads": {n: (p.requires_grad, p.grad) for n, p in module.named_parameters()},
        "config": str(getattr(module, "config", None)),
    }


class TestWrap:
    def test_changes_nothing(self) -> None:
        module = tiny_model("llama")
        before, random_state = fingerprint(module), torch.get_rng_state()
        wrap(module, None)
        assert str(fingerprint(module)) == str(before)
        assert torch.equal(torch.get_rng_state(), random_state)

    def test_changes_nothing_when_it_refuses(self) -> None:
        for module in (CustomLM(Attention, custom.Bypass), CustomLM(custom.RunningMean)):
            module.train()
            before = fingerprint(module)
            with pytest.raises(HeadcountError):
                wrap(module, None)
            assert str(fingerprint(module)) == str(before)

    def test_changes_nothing_when_the_model_breaks(self) -> None:
        module = tiny_model("llama")
        handle = module.model.layers[1].register_forward_hook(_fail)
        before = fingerprint(module)
        with pytest.raises(ZeroDivisionError):
            wrap(module, None)
        assert str(fingerprint(module)) == str(before)
        handle.remove()
        assert wrap(module, None).layout.counts == (HEADS, HEADS)

    def test_training_mode_stays_part_by_part(self) -> None:
        module = tiny_model("llama", attention_dropout=0.5).train()
        module.model.layers[0].eval()
        before = fingerprint(module)
        wrap(module, None)
        assert str(fingerprint(module)) == str(before)

    def test_other_hooks_stay_and_run(self) -> None:
        module, ran = tiny_model("llama"), []
        module.model.layers[0].self_attn.o_proj.register_forward_pre_hook(lambda *_: ran.append(1))
        wrap(module, None)
        assert ran

    def test_a_model_without_config(self) -> None:
        model = wrap(CustomLM(Attention), None)
        assert (model.name, model.kernel) == ("CustomLM", "None")

    def test_inference_mode(self) -> None:
        with torch.inference_mode():
            assert wrap(tiny_model("llama"), None).layout.counts == (HEADS, HEADS)


def _fail(*_: Any) -> None:
    raise ZeroDivisionError


def check(module: nn.Module, expected: Callable[[Tensor], Tensor], **close: float) -> Model:
    """Gates act on the module, and do what they are expected to."""
    model = wrap(module, None)
    assert model.layout.counts == (HEADS,) * SITES
    assert {site.size for site in model.sites} == {SIZE}
    gates = some_gates(model)
    gated = logits(model, gates)
    assert (gated - logits(model)).abs().max() > 0.1
    torch.testing.assert_close(gated, expected(gates), **close)
    return model


def same_as_plain(gates: Tensor) -> Tensor:
    return by_hand(tiny_model("llama"), gates)


class TestCompiled:
    @pytest.fixture(autouse=True)
    def forgotten(self) -> Iterator[None]:
        """What is compiled here would count towards the limit of the compiler for all tests."""
        yield
        torch._dynamo.reset()

    @pytest.mark.parametrize("ran_before", [False, True])
    @pytest.mark.parametrize("how", ["torch.compile", "model.compile", "layers"])
    def test_gates_act(self, how: str, ran_before: bool) -> None:
        module: Any = tiny_model("llama")
        if how == "torch.compile":
            module = torch.compile(module, backend="eager")
        elif how == "model.compile":
            module.compile(backend="eager")
        else:
            for layer in module.model.layers:
                layer.compile(backend="eager")
        if ran_before:  # the graph is there, and knows of no gates
            logits(module)
        model = check(module, same_as_plain)
        torch.testing.assert_close(logits(model), logits(tiny_model("llama")))
        # Once more, now that the graph without gates has run again.
        gates = some_gates(model)
        torch.testing.assert_close(logits(model, gates), same_as_plain(gates))

    def test_a_compiled_function_around_the_model(self) -> None:
        module = tiny_model("llama")
        model = wrap(module, None)
        function = torch.compile(lambda ids: module(input_ids=ids).logits, backend="eager")
        plain, gates = logits(module), some_gates(model)
        with torch.no_grad():
            torch.testing.assert_close(function(IDS), plain)
            with gating(module, model.sites, gates):
                torch.testing.assert_close(function(IDS), same_as_plain(gates))
            torch.testing.assert_close(function(IDS), plain)


class TestAdapters:
    @pytest.fixture
    def adapted(self) -> Any:
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(
            r=3,
            target_modules=["o_proj", "v_proj", "down_proj"],
            init_lora_weights=False,  # B is not zero
            lora_dropout=0.5,
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return peft.get_peft_model(tiny_model("llama"), config)

    def test_gated_is_merged_and_gated(self, adapted: Any) -> None:
        merged = copy.deepcopy(adapted).merge_and_unload()
        assert (logits(merged) - logits(tiny_model("llama"))).abs().max() > 0.1
        adapted.train()
        model = wrap(adapted, None)
        assert adapted.training
        adapted.eval()
        gates = some_gates(model)
        expected = logits(wrap(merged, None), gates)
        torch.testing.assert_close(logits(model, gates), expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(expected, by_hand(merged, gates), atol=1e-4, rtol=1e-4)
        assert all(not site.module.endswith(("lora_A", "base_layer")) for site in model.sites)

    def test_gates_stay_on_in_generate(self) -> None:
        # A shared block's runs are counted from the start of a pass, and PEFT's `generate` starts
        # passes behind the wrapper.
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
        adapted = peft.get_peft_model(tiny_model("hrm_text"), config)
        bare = tiny_model("hrm_text")
        settings = {"max_new_tokens": 6, "do_sample": False, "use_cache": False}
        texts = []
        for module in (bare, adapted):
            model = wrap(module, None)
            gates = torch.rand(1, model.layout.total, generator=torch.Generator().manual_seed(3))
            last = dict(model.module.named_modules())[model.sites[-1].module]
            with gating(module, model.sites, gates):
                handle = last.register_forward_pre_hook(_fail)
                with pytest.raises(ZeroDivisionError):  # a pass that breaks off
                    module.generate(input_ids=IDS, **settings)
                handle.remove()
                texts.append(module.generate(input_ids=IDS, **settings))
        assert torch.equal(*texts)

    def test_soft_prompts_are_refused(self) -> None:
        # Their logits do not begin with the first token, where every metric would look for it.
        peft = pytest.importorskip("peft")
        config = peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")
        text = refusal(peft.get_peft_model(tiny_model("llama"), config).eval())
        assert "gives logits at 14 positions for a prompt of 11 tokens" in text

    def test_learned_prefixes_of_keys_and_values(self) -> None:
        peft = pytest.importorskip("peft")
        config = peft.PrefixTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")
        module = peft.get_peft_model(tiny_model("llama"), config).eval()
        check(module, lambda gates: by_hand(module, gates))


def dynamic_int8(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch lets go of this, users have not yet
        return torch.ao.quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)


def torchao_weights(module: nn.Module) -> nn.Module:
    quantization = pytest.importorskip("torchao.quantization")
    quantization.quantize_(module, quantization.Int8WeightOnlyConfig())
    return module


def torchao_activations(module: nn.Module) -> nn.Module:
    quantization = pytest.importorskip("torchao.quantization")
    quantization.quantize_(module, quantization.Int8DynamicActivationInt8WeightConfig())
    return module


def quanto(module: nn.Module) -> nn.Module:
    library = pytest.importorskip("optimum.quanto")
    library.quantize(module, weights=library.qint8)
    library.freeze(module)
    return module


def bitsandbytes_int8(module: nn.Module) -> nn.Module:
    layers = pytest.importorskip("bitsandbytes").nn
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                new = layers.Linear8bitLt(
                    child.in_features, child.out_features, bias=False, has_fp16_weights=False
                )
                new.weight = layers.Int8Params(child.weight.data, requires_grad=False)
                setattr(parent, name, new.to("cpu"))
    return module


class TestQuantised:
    @pytest.mark.parametrize(
        "quantise",
        [dynamic_int8, torchao_weights, torchao_activations, quanto, bitsandbytes_int8],
    )
    def test_gates_act(self, quantise: Callable[[nn.Module], nn.Module]) -> None:
        module = quantise(tiny_model("llama"))
        error = (logits(module) - logits(tiny_model("llama"))).abs().max()
        assert 1e-3 < error < 1  # it is quantised, and not broken
        model = check(module, lambda gates: by_hand(module, gates))
        assert model.proof.checks[1].limit > 1e-2

    def test_quantised_models_are_refused_like_others(self) -> None:
        text = refusal(dynamic_int8(CustomLM(Attention, custom.Interleaved)))
        assert "blocks.1.attention" in text
        text = refusal(dynamic_int8(CustomLM(Attention, custom.Bypass)))
        assert "blocks.1.attention" in text

    def test_half_precision(self) -> None:
        for dtype in (torch.bfloat16, torch.float16):
            module = tiny_model("llama").to(dtype)
            check(module, lambda gates, module=module: by_hand(module, gates), atol=0.1, rtol=0.1)

    def test_many_heads_in_half_precision(self) -> None:
        # The more heads, the more roundings in the sum of their writes; and outliers in z.
        module = tiny_model(
            "llama", num_attention_heads=32, num_key_value_heads=8, head_dim=64, hidden_size=256
        )
        with torch.no_grad():
            module.model.layers[0].self_attn.v_proj.weight[5] *= 100
        assert wrap(module.bfloat16(), None).layout.counts == (32, 32)


class TestKernels:
    @pytest.mark.parametrize("kernel", ["eager", "sdpa", "flex_attention"])
    def test_the_same_sites(self, kernel: str) -> None:
        reference = wrap(tiny_model("llama"), None)
        module = tiny_model("llama")
        module.set_attn_implementation(kernel)
        before = fingerprint(module)
        model = wrap(module, None)
        assert str(fingerprint(module)) == str(before)
        assert model.kernel == kernel
        assert model.sites == reference.sites
        gates = some_gates(model)
        expected = logits(reference, gates)
        torch.testing.assert_close(logits(model, gates), expected, atol=1e-4, rtol=1e-4)

    def test_a_function_that_normalises_by_hand(self) -> None:
        module = tiny_model("llama")
        with my_own_kernel():
            module.set_attn_implementation("my_own")
            assert "attention that is normalised by hand" in refusal(module)

    def test_parts_keep_their_kernels(self) -> None:
        module = tiny_model("gemma3")
        module.config._attn_implementation = {"text_config": "flex_attention"}
        kernels = [c._attn_implementation for c in _configs(module)]
        assert len(set(kernels)) == 2
        wrap(module, None)
        assert [c._attn_implementation for c in _configs(module)] == kernels


def _configs(module: Any) -> list[Any]:
    return [module.config, module.config.text_config, module.config.vision_config]


@contextmanager
def my_own_kernel() -> Iterator[None]:
    """A kernel that computes attention where no one sees it."""

    def attend(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, **kwargs: Any) -> Any:
        groups = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
        scores = (q @ k.transpose(2, 3)) * kwargs["scaling"]
        later = torch.ones(scores.shape[-2:]).triu(1).bool()
        weights = scores.masked_fill(later, -1e9).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        return (weights @ v).transpose(1, 2).contiguous(), None

    AttentionInterface.register("my_own", attend)
    try:
        yield
    finally:
        AttentionInterface._global_mapping.pop("my_own")


class TestOffloaded:
    def test_dispatched(self) -> None:
        accelerate = pytest.importorskip("accelerate")
        module = accelerate.dispatch_model(tiny_model("llama"), {"": "cpu"}, force_hooks=True)
        check(module, same_as_plain)

    def test_weights_that_stay_elsewhere(self) -> None:
        accelerate = pytest.importorskip("accelerate")
        module = accelerate.cpu_offload(tiny_model("llama"), torch.device("cpu"))
        assert module.get_input_embeddings().weight.is_meta
        model = check(module, same_as_plain)
        assert model.device == torch.device("cpu")

    def test_weights_on_disk(self, tmp_path: Path) -> None:
        accelerate = pytest.importorskip("accelerate")
        places = {
            "model.embed_tokens": "cpu",
            "model.layers.0": "cpu",
            "model.layers.1": "disk",
            "model.norm": "cpu",
            "model.rotary_emb": "cpu",
            "lm_head": "disk",
        }
        module = accelerate.dispatch_model(
            tiny_model("llama"), places, main_device="cpu", offload_dir=tmp_path
        )
        check(module, same_as_plain)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT = transformers.BertConfig(intermediate_size=32, vocab_size=99, **SMALL)
BART = transformers.BartConfig(
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=32,
    decoder_ffn_dim=32,
    vocab_size=99,
)
VIT = transformers.ViTConfig(intermediate_size=32, image_size=32, patch_size=8, **SMALL)
FOREIGN: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "A NoneType is not a language model: give one from transformers"),
    "name": (lambda: "gpt2", "A str is not a language model"),
    "base": (lambda: tiny_model("llama").model, r"LlamaModel gives no logits.*ForCausalLM"),
    "copies": (lambda: nn.DataParallel(tiny_model("llama")), r"DataParallel .*give its \.module"),
    "weightless": (lambda: tiny_model("llama").to("meta"), "has no weights in memory"),
    "tokens": (
        lambda: transformers.LlamaForTokenClassification(tiny_model("llama").config),
        "gives 2 logits for 101 tokens",
    ),
    "encoder": (lambda: transformers.BertModel(BERT), "BertModel gives no logits"),
    "masked": (lambda: transformers.BertForMaskedLM(BERT), "BertForMaskedLM is not causal"),
    "classes": (lambda: transformers.BertForSequenceClassification(BERT), "one answer per text"),
    "pair": (lambda: transformers.BartForConditionalGeneration(BART), "has an encoder"),
    "vision": (lambda: transformers.ViTForImageClassification(VIT), "no table of token embeddings"),
    "captions": (
        lambda: transformers.BlipForConditionalGeneration(tiny_config("blip")),
        "BlipForConditionalGeneration does not run on token ids alone",
    ),
    "layer": (lambda: nn.Linear(3, 3), "Linear has no table of token embeddings"),
    "pipeline": (
        lambda: transformers.pipeline(
            "text-generation", model=tiny_model("llama"), tokenizer=toy_tokenizer()
        ),
        r"A TextGenerationPipeline is not a language model: give its \.model",
    ),
    "tokenizer": (toy_tokenizer, "is not a language model: give one from transformers"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_objects_get_one_sentence(name: str) -> None:
    make, words = FOREIGN[name]
    with pytest.raises(HeadcountError, match=words):
        wrap(make(), None)


def test_a_wrapped_model_is_wrapped_already() -> None:
    with pytest.raises(HeadcountError, match="This Model is wrapped already: use it as it is"):
        wrap(wrap(tiny_model("llama"), toy_tokenizer()), toy_tokenizer())
