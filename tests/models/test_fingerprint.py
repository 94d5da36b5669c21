from __future__ import annotations

import copy
import json
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from checkpoints import save_checkpoint, tiny_llama, tiny_tokenizer
from filelock import FileLock
from processes import remember_files
from tiny import tiny_model
from torch import nn
from toy import toy_tokenizer

from headcount.errors import HeadcountError
from headcount.models import fingerprint as of_models
from headcount.models.fingerprint import checksum, fingerprint_tensors, fingerprint_tokenizer
from headcount.models.model import wrap
from headcount.system import fingerprint
from headcount.system.fingerprint import fingerprint_files


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the files that are really read."""
    names: list[str] = []
    original = fingerprint.file_digest

    def watched(path: Path) -> str:
        names.append(Path(path).name)
        return original(path)

    monkeypatch.setattr(fingerprint, "file_digest", watched)
    return names


def old_file(path: Path, data: bytes, age: int = 1000) -> Path:
    """A file that was not written just now."""
    path.write_bytes(data)
    os.utime(path, (age, age))
    return path


class TestFiles:
    def test_reads_once(self, tmp_path: Path, hashed: list[str]) -> None:
        file = old_file(tmp_path / "a", b"weights")
        first = fingerprint_files([file])
        assert fingerprint_files([str(file)]) == first
        assert hashed == ["a"]

    def test_touched_file_is_read_again_and_is_the_same(
        self, tmp_path: Path, hashed: list[str]
    ) -> None:
        file = old_file(tmp_path / "a", b"weights")
        first = fingerprint_files([file])
        os.utime(file, (2000, 2000))
        assert fingerprint_files([file]) == first
        assert hashed == ["a", "a"]

    def test_changed_byte_changes_it(self, tmp_path: Path) -> None:
        file = old_file(tmp_path / "a", b"weights")
        first = fingerprint_files([file])
        old_file(file, b"weighty", age=1001)
        assert fingerprint_files([file]) != first

    def test_replaced_file_of_the_same_time_and_size(self, tmp_path: Path) -> None:
        file = old_file(tmp_path / "a", b"weights")
        first = fingerprint_files([file])
        os.replace(old_file(tmp_path / "new", b"weighty"), file)
        assert fingerprint_files([file]) != first

    def test_file_written_just_now_is_not_trusted(self, tmp_path: Path, hashed: list[str]) -> None:
        file = tmp_path / "a"
        file.write_bytes(b"weights")
        moment = file.stat()
        first = fingerprint_files([file])
        file.write_bytes(b"weighty")  # within one tick of a coarse clock
        os.utime(file, ns=(moment.st_atime_ns, moment.st_mtime_ns))
        assert fingerprint_files([file]) != first
        assert hashed == ["a", "a"]

    def test_names_and_order_do_not_matter_but_files_do(self, tmp_path: Path) -> None:
        a, b = old_file(tmp_path / "a", b"one"), old_file(tmp_path / "b", b"two")
        c, d = old_file(tmp_path / "c", b"two"), old_file(tmp_path / "d", b"one")
        joined = old_file(tmp_path / "e", b"onetwo")
        assert fingerprint_files([a, b]) == fingerprint_files([c, d]) == fingerprint_files([b, a])
        assert len({fingerprint_files(x) for x in ([a], [b], [a, b], [a, a], [joined])}) == 5

    def test_link_is_the_file_behind_it(self, tmp_path: Path, hashed: list[str]) -> None:
        file = old_file(tmp_path / "a", b"weights")
        (tmp_path / "link").symlink_to(file)
        assert fingerprint_files([tmp_path / "link"]) == fingerprint_files([file])
        assert len(hashed) == 1

    @pytest.mark.parametrize(
        "damage", ["", "{", "[]", "null", '{"x": 3}', '{"x": "short"}', "\x00\x01"]
    )
    def test_damaged_memory_is_made_again(
        self, tmp_path: Path, cache: Path, hashed: list[str], damage: str
    ) -> None:
        file = old_file(tmp_path / "a", b"weights")
        first = fingerprint_files([file])
        (cache / "fingerprints.json").write_text(damage)
        assert fingerprint_files([file]) == first
        assert fingerprint_files([file]) == first
        assert len(hashed) == 2
        assert len(json.loads((cache / "fingerprints.json").read_text())) == 1

    def test_unwritable_memory_only_costs_time(
        self, tmp_path: Path, cache: Path, hashed: list[str]
    ) -> None:
        cache.mkdir()
        (cache / "fingerprints.json").mkdir()
        file = old_file(tmp_path / "a", b"weights")
        assert fingerprint_files([file]) == fingerprint_files([file])
        assert len(hashed) == 2
        assert not list(cache.glob(".fingerprints-*"))

    def test_memory_does_not_grow_for_ever(
        self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, hashed: list[str]
    ) -> None:
        monkeypatch.setattr(fingerprint, "KEPT", 2)
        files = [old_file(tmp_path / name, name.encode()) for name in "abc"]
        for file in files:
            fingerprint_files([file])
        assert len(json.loads((cache / "fingerprints.json").read_text())) == 2
        fingerprint_files([files[-1]])
        assert hashed == ["a", "b", "c"]

    def test_several_processes_remember_together(self, tmp_path: Path, cache: Path) -> None:
        files = [old_file(tmp_path / f"file{i}", bytes([i])) for i in range(20)]
        context = multiprocessing.get_context("spawn")
        halves = [[str(f) for f in files[start::2]] for start in range(2)]
        processes = [context.Process(target=remember_files, args=(half,)) for half in halves]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
        assert len(json.loads((cache / "fingerprints.json").read_text())) == 20

    def test_waits_for_others_but_not_for_ever(
        self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fingerprint, "PATIENCE", 0.1)
        file = old_file(tmp_path / "a", b"weights")
        cache.mkdir()
        with FileLock(cache / "fingerprints.lock"):
            first = fingerprint_files([file])
            assert not (cache / "fingerprints.json").exists()
        assert fingerprint_files([file]) == first
        assert (cache / "fingerprints.json").exists()

    def test_who_wrote_the_settings_does_not_matter_but_what_they_say_does(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "config.json"
        prints = []
        for text in (
            '{"rms_norm_eps": 1e-05, "transformers_version": "5.17.0", "dtype": "float32"}',
            '{"transformers_version": "5.22.2",\n "rms_norm_eps": 1e-05}',
            '{"rms_norm_eps": 1e-06}',
            '{"rms_norm_eps": 1e-06',
        ):
            path.write_text(text)
            prints.append(fingerprint_files([path]))
        assert prints[0] == prints[1]
        assert len(set(prints)) == 3

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(HeadcountError, match=r"Cannot read the weight file .*gone"):
            fingerprint_files([tmp_path / "gone"])

    def test_no_files(self) -> None:
        with pytest.raises(ValueError, match="no files"):
            fingerprint_files([])


class TestTensors:
    def test_same_weights_same_print(self) -> None:
        assert fingerprint_tensors(tiny_llama()) == fingerprint_tensors(tiny_llama())

    def test_survives_saving_and_loading(self, tmp_path: Path) -> None:
        from headcount.models.load import load_pretrained

        loaded = load_pretrained(save_checkpoint(tmp_path / "model"), device="cpu")
        assert fingerprint_tensors(loaded.model) == fingerprint_tensors(tiny_llama())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_one_weight_changes_it(self, dtype: torch.dtype) -> None:
        model = tiny_llama().to(dtype)
        first = fingerprint_tensors(model)
        with torch.no_grad():
            weight = model.model.layers[1].self_attn.o_proj.weight
            weight[3, 5] = torch.nextafter(weight[3, 5], torch.tensor(9.0, dtype=dtype))
        assert fingerprint_tensors(model) != first

    def test_number_format_changes_it(self) -> None:
        model = tiny_llama()
        assert fingerprint_tensors(model) != fingerprint_tensors(copy.deepcopy(model).bfloat16())

    def test_settings_change_it(self) -> None:
        model = tiny_llama()
        first = fingerprint_tensors(model)
        model.config.rms_norm_eps *= 2
        assert fingerprint_tensors(model) != first
        model.config.rms_norm_eps /= 2
        model.config._name_or_path = "elsewhere"
        assert fingerprint_tensors(model) == first

    def test_buffers_that_are_not_saved_count(self) -> None:
        model = tiny_llama()
        first = fingerprint_tensors(model)
        model.model.rotary_emb.inv_freq[0] *= 2
        assert fingerprint_tensors(model) != first

    def test_names_and_shapes_count(self) -> None:
        def holding(name: str, *shape: int) -> nn.Module:
            module = nn.Module()
            module.register_buffer(name, torch.zeros(shape))
            return module

        prints = {fingerprint_tensors(holding(n, *s)) for n in "ab" for s in [(6,), (2, 3), (7,)]}
        assert len(prints) == 6

    @pytest.mark.parametrize(
        "tensor",
        [
            torch.arange(7, dtype=torch.uint8),
            torch.arange(7).to(torch.float8_e4m3fn),
            torch.tensor([True, False]),
            torch.tensor(3.0),
            torch.zeros(0),
            torch.randn(4, dtype=torch.complex64).conj(),
            torch.randn(6, 4).T,
        ],
        ids=["uint8", "float8", "bool", "scalar", "empty", "complex", "transposed"],
    )
    def test_any_kind_of_tensor(self, tensor: torch.Tensor) -> None:
        module = nn.Module()
        module.register_buffer("value", tensor)
        first = fingerprint_tensors(module)
        module.value = tensor.clone()
        assert fingerprint_tensors(module) == first

    def test_large_tensors_go_piece_by_piece(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model, sizes = tiny_llama(), []
        usual = of_models._digest

        def watched(numbers: torch.Tensor) -> bytes:
            sizes.append(numbers.numel() * numbers.element_size())
            return usual(numbers)

        monkeypatch.setattr(of_models, "_digest", watched)
        monkeypatch.setattr(of_models, "CHUNK", 100)
        many = fingerprint_tensors(model)
        assert max(sizes) == 100
        monkeypatch.setattr(of_models, "MOST_THREADS", 1)
        assert fingerprint_tensors(model) == many

    def test_adapter_counts(self) -> None:
        from peft import LoraConfig

        model = tiny_llama()
        plain = fingerprint_tensors(model)
        prints = set()
        for alpha in (8, 16):
            adapted = tiny_llama()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(1)
                adapted.add_adapter(LoraConfig(r=2, lora_alpha=alpha, target_modules=["v_proj"]))
            prints.add(fingerprint_tensors(adapted))
        assert len(prints | {plain}) == 3

    def test_offloaded_weights_are_refused(self) -> None:
        model = nn.Linear(2, 2, device="meta")
        with pytest.raises(HeadcountError, match="bias is not in memory"):
            fingerprint_tensors(model)


class TestTokenizer:
    def test_using_it_changes_nothing(self) -> None:
        tokenizer = tiny_tokenizer()
        first = fingerprint_tokenizer(tokenizer)
        assert fingerprint_tokenizer(tiny_tokenizer()) == first
        tokenizer.pad_token = tokenizer.eos_token
        padded = fingerprint_tokenizer(tokenizer)
        tokenizer(["hello", "hello hello"], padding=True, truncation=True, max_length=3)
        assert fingerprint_tokenizer(tokenizer) == padded

    def test_what_changes_the_tokens_changes_it(self) -> None:
        changed = [tiny_tokenizer() for _ in range(5)]
        changed[1].chat_template = "{{ messages }}"
        changed[2].add_tokens(["hello world"])
        changed[3].eos_token = "<s>"
        changed[4].backend_tokenizer.pre_tokenizer = None
        assert len({fingerprint_tokenizer(tokenizer) for tokenizer in changed}) == 5

    def test_survives_saving_and_loading(self, tmp_path: Path) -> None:
        from transformers import AutoTokenizer

        save_checkpoint(tmp_path / "model")
        first = AutoTokenizer.from_pretrained(tmp_path / "model")
        first.save_pretrained(tmp_path / "again")
        second = AutoTokenizer.from_pretrained(tmp_path / "again")
        assert fingerprint_tokenizer(first) == fingerprint_tokenizer(second)

    def test_tokenizer_without_a_fast_backend(self) -> None:
        class Slow:
            special_tokens_map = {"eos_token": "</s>"}  # noqa: RUF012

            def __init__(self, words: list[str]) -> None:
                self.words = words

            def get_vocab(self) -> dict[str, int]:
                return {word: number for number, word in enumerate(self.words)}

        first = fingerprint_tokenizer(Slow(["a", "b"]))
        assert fingerprint_tokenizer(Slow(["a", "b"])) == first
        assert fingerprint_tokenizer(Slow(["b", "a"])) != first


def test_the_number_of_threads_does_not_look_like_a_change() -> None:
    module = torch.nn.Linear(1000, 500)
    before, threads = checksum(module), torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert checksum(module) == before
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_other_weights_and_another_order_look_like_a_change(dtype: torch.dtype) -> None:
    module = torch.nn.Linear(8, 8, dtype=dtype)
    seen = [checksum(module)]
    for changed in (module.weight.data.flip(0), module.weight.data.flip(1), module.weight.data * 2):
        module.weight.data = changed
        seen.append(checksum(module))
    assert all(seen[i] != seen[j] for i in range(4) for j in range(i))


def test_another_adapter_or_kernel_is_another_identity() -> None:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules=["v_proj"], init_lora_weights=False)
    module = peft.get_peft_model(tiny_model("llama"), settings, adapter_name="one")
    module.add_adapter("two", settings)
    model = wrap(module, toy_tokenizer())

    def identity() -> str:
        model.notice_changes()
        return str(model.identity)

    first = identity()
    module.set_adapter("two")
    second = identity()
    with module.disable_adapter():
        third = identity()
    module.base_model.model.set_attn_implementation("eager")
    assert len({first, second, third, identity()}) == 4


def test_the_scale_of_an_adapter_is_part_of_the_identity() -> None:
    """PEFT's `set_scale` changes neither a tensor nor the adapter's config."""
    layer = nn.Linear(2, 2)
    module = nn.Sequential(layer)
    module.peft_config = {"default": SimpleNamespace(r=4)}
    layer.scaling = {"default": 2.0}
    before = checksum(module), fingerprint_tensors(module)
    layer.scaling["default"] = 5.0
    assert checksum(module) != before[0]
    assert fingerprint_tensors(module) != before[1]
